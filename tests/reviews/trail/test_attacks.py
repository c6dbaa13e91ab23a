"""What someone does to a closed session, alone and against heads kept elsewhere: which of it is found, and which not.

The rows that cannot be found alone are asserted as not found: the docs say the same. Five trials a row here, fifty
under the marker `nightly`. Attacks and verifier have one author: this shows this list, not every attacker.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from reviews.audit import verify
from reviews.audit.verify import verify_run
from reviews.trail.anchors import Anchor
from reviews.trail.chain.keys import KeyFolder
from reviews.trail.signing import new_policy
from reviews.trail.tables.open_table import read_entries
from reviews.trail.tables.trail_file import StoredEntry
from reviews.trail.trail import Trail
from testing.factories.bodies import append_json, body_of
from testing.factories.forgery import Rows, chained, entries_of, head_of, keys_of, put, rows_of, signed, with_body
from testing.fixtures.command_sessions import called as peergate
from testing.fixtures.reviewer_here import lenient


class Session(NamedTuple):
    """A closed session with real evidence, and heads of it that were kept elsewhere."""

    run: Path
    keys: KeyFolder
    anchors: list[Anchor]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    return closed(tmp_path_factory.mktemp("attacked"), 80, (20, 50, 70))


def closed(folder: Path, further: int, anchored: tuple[int, ...]) -> Session:
    """Make a closed session with so many entries next to those of its own, and heads of it that were kept elsewhere."""
    done = peergate("start", "demo_leaky", "--runs", folder / "first")
    assert done.returncode == 3, done.stderr
    run = folder / "runs" / "demo_leaky"
    shutil.copytree(folder / "first" / "demo_leaky", run)
    for name in ("trail.sqlite", "trail.seal"):
        (run / name).unlink()
    *before, close = read_entries(folder / "first" / "demo_leaky" / "trail.sqlite")
    trail = Trail(run / "trail.sqlite", "demo_leaky")
    lenient(trail)
    for entry in before:
        append_json(trail, entry.kind, entry.key, entry.raw)  # pyright: ignore[reportArgumentType]
    saved = {recorded_entry.kind: recorded_entry.raw for recorded_entry in before}
    with trail.alone():
        for n in range(further):
            kind = ("spend", "plan", "verdict", "packet")[n % 4]
            at = {"stage": "late"} if kind == "spend" else {"stage": "late", "attempt": n}
            append_json(trail, kind, f"{kind}/late.{n}", body_of(kind) | saved.get(kind, {}) | at)
    append_json(trail, "close", "close", close.raw)
    trail.close()
    rows, keys = rows_of(trail.path), keys_of(trail.path)
    sizes = [Anchor(f"kept {size}", head_of(rows[:size], keys)) for size in (*anchored, len(rows))]
    return Session(run, keys, sizes)


@pytest.fixture(autouse=True)
def no_rederiving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here changes rows or decisions without breaking a digest first; deriving again is tested elsewhere."""

    def nothing(*_: object) -> int:
        return 0

    monkeypatch.setattr(verify, "rederive", nothing)


def verdicts(rows: Rows) -> list[int]:
    return [entry.seq for entry in entries_of(rows) if entry.kind == "verdict"]


# ---- attacks: (rows, all keys, random) -> rows; anyone who attacks uses only the keys the row names
# --------------------


def flip_a_byte(rows: Rows, keys: KeyFolder, chance: random.Random) -> Rows:
    n = chance.randrange(len(rows))
    payload = bytearray(rows[n].payload)
    place = chance.randrange(len(payload))
    payload[place] = (payload[place] % 126) + 1 if payload[place] < 126 else 65
    return [*rows[:n], rows[n]._replace(payload=bytes(payload)), *rows[n + 1 :]]


def delete_and_renumber(rows: Rows, keys: KeyFolder, chance: random.Random) -> Rows:
    n = chance.randrange(len(rows) - 1)
    return [row._replace(seq=k) for k, row in enumerate([*rows[:n], *rows[n + 1 :]])]


def swap_two(rows: Rows, keys: KeyFolder, chance: random.Random) -> Rows:
    number, two = sorted(chance.sample(range(len(rows)), 2))
    changed = list(rows)
    changed[number], changed[two] = rows[two]._replace(seq=number), rows[number]._replace(seq=two)
    return changed


def verdict_with_an_unknown_key(rows: Rows, keys: KeyFolder, chance: random.Random) -> Rows:
    n = chance.choice(verdicts(rows))
    forged = signed(with_body(entries_of(rows)[n], error="x"), _strangers(keys), "reviewer")
    return [*rows[:n], forged, *rows[n + 1 :]]


def verdict_with_the_builders_key(rows: Rows, keys: KeyFolder, chance: random.Random) -> Rows:
    """Builder and log keys: everything of the log after it is signed anew, other roles' entries stay as they are."""
    n = chance.choice(verdicts(rows))
    entries = entries_of(rows)
    changed: Rows = [*rows[:n], signed(with_body(entries[n], error="x"), keys, "builder")]
    for row, entry in zip(rows[n + 1 :], entries[n + 1 :], strict=True):
        changed = chained([entry], keys, stored_entries=changed) if entry.kind != "verdict" else [*changed, row]
    return changed


def verdict_with_the_logs_key(rows: Rows, keys: KeyFolder, chance: random.Random) -> Rows:
    """The session itself writes the verdict it wants, with the key that it signs everything else with."""
    n = chance.choice(verdicts(rows))
    entries = entries_of(rows)
    forged = signed(with_body(entries[n], error="x"), keys, "log")
    return chained(
        [entry for entry in entries[n + 1 :] if entry.kind != "verdict"], keys, stored_entries=[*rows[:n], forged]
    )


def replay_a_verdict(rows: Rows, keys: KeyFolder, chance: random.Random) -> Rows:
    old, new = sorted(chance.sample(verdicts(rows), 2))
    return [*rows[:new], rows[old]._replace(seq=new), *rows[new + 1 :]]


def cut_the_tail(rows: Rows, keys: KeyFolder, chance: random.Random) -> Rows:
    return rows[: chance.randrange(8, len(rows) - 1)]


def cut_and_close_again(rows: Rows, keys: KeyFolder, chance: random.Random) -> Rows:
    """The log key alone is enough: the entry that closes is the log's."""
    return chained([entries_of(rows)[-1]], keys, stored_entries=cut_the_tail(rows, keys, chance))


def write_all_anew(rows: Rows, keys: KeyFolder, chance: random.Random) -> Rows:
    n = chance.choice(verdicts(rows))
    return chained([with_body(entry, error="x") if entry.seq == n else entry for entry in entries_of(rows)], keys)


def fork(rows: Rows, keys: KeyFolder, chance: random.Random) -> Rows:
    """All keys: the same beginning, another end."""
    n = chance.randrange(8, len(rows) - 8)
    others = [with_body(entry, error="x") if entry.kind == "verdict" else entry for entry in entries_of(rows)[n:]]
    return chained(others, keys, stored_entries=rows[:n])


def write_all_anew_with_other_keys(rows: Rows, keys: KeyFolder, chance: random.Random) -> Rows:
    """No key at all: a new workspace, and a policy that names its keys."""
    strangers = _strangers(keys)
    first, *others = entries_of(rows)
    policy = new_policy("demo_leaky", strangers).model_dump(mode="json")
    return chained([first.model_copy(update={"policy": policy}), *others], strangers)


def an_older_clock(rows: Rows, keys: KeyFolder, chance: random.Random) -> Rows:
    """Even with all keys: times go one way."""
    n = chance.randrange(1, len(rows))
    earlier = str(int(entries_of(rows)[n - 1].time_ns) - chance.randrange(1, 10**9))
    return chained(
        [entry.model_copy(update={"time_ns": earlier}) if entry.seq == n else entry for entry in entries_of(rows)], keys
    )


def _strangers(keys: KeyFolder) -> KeyFolder:
    strangers = KeyFolder(keys.folder.parent / "strangers")
    strangers.create()
    return strangers


Attack = Callable[[Rows, KeyFolder, random.Random], list[StoredEntry]]
CAUGHT_ALONE: list[Attack] = [
    flip_a_byte, delete_and_renumber, swap_two, verdict_with_an_unknown_key, verdict_with_the_builders_key,
    verdict_with_the_logs_key,
    replay_a_verdict, cut_the_tail, an_older_clock,
]  # fmt: skip
CAUGHT_WITH_ANCHORS_ONLY: list[Attack] = [cut_and_close_again, write_all_anew, fork, write_all_anew_with_other_keys]
TRIALS = [pytest.param(range(5), id="5"), pytest.param(range(50), id="50", marks=pytest.mark.nightly)]


def attacked(session: Session, folder: Path, attack: Attack, seed: int, *, with_head: bool = True) -> Path:
    """Copy the session and attack it; head, frontier and seal are made to agree as well as the attacker can."""
    run = folder / attack.__name__ / str(seed) / "demo_leaky"
    shutil.copytree(session.run, run, symlinks=True)
    rows = rows_of(run / "trail.sqlite")
    changed = attack(rows, session.keys, random.Random(seed))
    assert changed != rows
    stranger = attack is write_all_anew_with_other_keys
    put(run / "trail.sqlite", changed, _strangers(session.keys) if stranger else session.keys, head=with_head)
    return run


def code(run: Path, anchors: list[Anchor] | None = None) -> int:
    return verify_run(run, "trail.sqlite", "store", anchors=anchors or []).exit_code


def test_an_untouched_session_is_verified_alone_and_with_anchors(session: Session) -> None:
    """The control: nothing below is found because of how the session was made."""
    assert (code(session.run), code(session.run, session.anchors)) == (0, 0)


def test_an_anchor_that_does_not_reach_the_end_leaves_it_unanchored(session: Session) -> None:
    audit = verify_run(session.run, "trail.sqlite", "store", anchors=session.anchors[:2])
    assert (audit.exit_code, audit.verdict, audit.anchored, audit.damage) == (2, "unanchored", 50, [])
    assert any("entries 50 to" in line for line in audit.not_proven)


@pytest.mark.parametrize("seeds", TRIALS)
@pytest.mark.parametrize("attack", CAUGHT_ALONE, ids=lambda item: item.__name__)
def test_found_alone(session: Session, tmp_path: Path, attack: Attack, seeds: range) -> None:
    runs = [attacked(session, tmp_path, attack, seed) for seed in seeds]
    # A tail that was cut off is found only because the session then is not closed.
    expected = 2 if attack is cut_the_tail else 1
    assert [code(run) for run in runs] == [expected] * len(runs)
    assert [code(run, session.anchors) for run in runs] == [1] * len(runs)


@pytest.mark.parametrize("seeds", TRIALS)
@pytest.mark.parametrize("attack", CAUGHT_WITH_ANCHORS_ONLY, ids=lambda item: item.__name__)
def test_found_with_anchors_only(session: Session, tmp_path: Path, attack: Attack, seeds: range) -> None:
    runs = [attacked(session, tmp_path, attack, seed) for seed in seeds]
    alone = [verify_run(run, "trail.sqlite", "store") for run in runs]
    assert [audit.exit_code for audit in alone] == [0] * len(runs), (
        "if this is found alone now, the docs have to say so"
    )
    assert all(any("truncated or rewritten" in line for line in audit.not_proven) for audit in alone)
    assert [code(run, session.anchors) for run in runs] == [1] * len(runs)


def test_other_keys_are_found_with_a_policy_that_was_kept(session: Session, tmp_path: Path) -> None:
    run = attacked(session, tmp_path, write_all_anew_with_other_keys, 0)
    policy = new_policy("demo_leaky", session.keys)
    assert verify_run(session.run, "trail.sqlite", "store", policy=policy).exit_code == 0
    audit = verify_run(run, "trail.sqlite", "store", policy=policy)
    assert audit.exit_code == 1 and any("was never a policy of this trail" in line for line in audit.damage)


@pytest.mark.parametrize("seeds", TRIALS)
def test_a_tail_that_was_cut_off_contradicts_the_head_that_was_left(
    session: Session, tmp_path: Path, seeds: range
) -> None:
    """Without the log's key the newest head cannot be made to agree."""
    runs = [attacked(session, tmp_path, cut_the_tail, seed, with_head=False) for seed in seeds]
    assert [code(run) for run in runs] == [1] * len(runs)
    assert [code(run, session.anchors) for run in runs] == [1] * len(runs)


@pytest.mark.parametrize("seeds", TRIALS)
@pytest.mark.parametrize("what", ["swapped", "deleted", "edited"])
def test_evidence_is_found(session: Session, tmp_path: Path, what: str, seeds: range) -> None:
    digests = sorted({
        digest for entry in read_entries(session.run / "trail.sqlite") for name, digest in entry.raw.items()
        if name in ("packet", "verdict", "checks", "decision", "source") and str(digest).startswith("sha256:")
    })  # fmt: skip
    for seed in seeds:
        run = tmp_path / str(seed) / "demo_leaky"
        shutil.copytree(session.run, run)
        chance = random.Random(seed)
        first, second = (run / "store" / value[7:9] / value[9:] for value in chance.sample(digests, 2))
        if what == "deleted":
            first.unlink()
        elif what == "edited":
            data = bytearray(first.read_bytes())
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            first.write_bytes(data)
        else:
            item, two = first.read_bytes(), second.read_bytes()
            first.write_bytes(two)
            second.write_bytes(item)
        assert (code(run), code(run, session.anchors)) == (1, 1), (what, seed)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_all_of_it_holds_for_100_000_entries(tmp_path: Path) -> None:
    large = closed(tmp_path / "large", 100_000, (20, 50_000, 99_000))
    run = large.run
    assert len(rows_of(run / "trail.sqlite")) > 100_000
    assert (code(run), code(run, large.anchors)) == (0, 0)
    expected: dict[Attack, tuple[int, int]] = {
        flip_a_byte: (1, 1), swap_two: (1, 1), replay_a_verdict: (1, 1), verdict_with_an_unknown_key: (1, 1),
        cut_the_tail: (2, 1), cut_and_close_again: (0, 1), write_all_anew: (0, 1),
    }  # fmt: skip
    results: dict[Attack, tuple[int, int]] = {}
    for attack in expected:
        changed = attacked(large, tmp_path, attack, 7)
        results[attack] = code(changed), code(changed, large.anchors)
        shutil.rmtree(changed)
    assert results == expected
    listed = json.loads(peergate("audit", "list", run, "--kind", "verdict", "--limit", "3", "--json").stdout)
    assert listed["count"] > 25_000 and len(listed["entries"]) == 3
    for command in (
        ["search", "late.99998"],
        ["show", "plan/late.77777"],
        ["log"],
        ["diff", "plan/late.1", "plan/late.5"],
    ):
        done = peergate("audit", command[0], run, *command[1:])
        assert done.returncode == 0 and done.stdout, (command, done.stderr)
