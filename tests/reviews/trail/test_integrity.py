"""What the walk over a trail says of policies, keys of the log, bodies and signers."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reviews.trail.chain.keys import key_id
from reviews.trail.chain.signed_head import parse_note
from reviews.trail.integrity import TrailVerification, log_keys, walk_trail
from reviews.trail.signing import signed_note
from reviews.trail.tables.open_table import read_trail, stream_trail
from reviews.trail.trail import Trail
from specs.system.errors import AuditDamage, UserError
from specs.trail.key_policy import Policy, PolicyKey
from testing.factories.bodies import append_json, body_of
from testing.factories.forgery import Rows, chained, entries_of, keys_of, rows_of
from testing.fixtures.reviewer_here import lenient


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed trail of three entries."""
    path = tmp_path_factory.mktemp("written") / "trail.sqlite"
    trail = Trail(path, "small")
    for n in range(3):
        append_json(trail, "spend", f"spend/{n}", body_of("spend", seconds=n))
    trail.close()
    return path


def begun_with(written: Path, policy: Any) -> Rows:
    """Return the first entry again, holding another policy."""
    first = entries_of(rows_of(written))[0]
    return chained([first.model_copy(update={"policy": policy})], keys_of(written))


def renamed(policy: dict[str, Any]) -> None:
    policy["keys"][0]["id"] = "0" * 64


def doubled(policy: dict[str, Any]) -> None:
    policy["keys"].append(policy["keys"][0])


def misspelt_witness(policy: dict[str, Any]) -> None:
    # The key of Go's reference implementation, with another letter in the digest of its name and key.
    policy["witnesses"] = ["PeterNeumann+c74f20a4+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"]


def written_otherwise(policy: dict[str, Any]) -> None:
    policy["keys"][0]["since"] = "0"


def more_than_a_policy(policy: dict[str, Any]) -> None:
    policy["more"] = 1


@pytest.mark.parametrize("change", [renamed, doubled, misspelt_witness, written_otherwise, more_than_a_policy])
def test_a_policy_that_is_none_begins_no_trail(written: Path, change: Callable[[dict[str, Any]], None]) -> None:
    policy: dict[str, Any] = TrailVerification().go(rows_of(written)[:1]).policies[0].model_dump(mode="json")
    assert not TrailVerification().go(begun_with(written, policy)).damage, "the control: as it was, it is one"
    change(policy)
    walk = TrailVerification().go(begun_with(written, policy))
    assert walk.damage == ["entry 0: holds no policy: nothing says whose keys may sign"] and walk.policy is None


def test_a_policy_with_a_witness_in_its_one_spelling_is_taken(written: Path) -> None:
    policy: dict[str, Any] = TrailVerification().go(rows_of(written)[:1]).policies[0].model_dump(mode="json")
    policy["witnesses"] = ["PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"]
    assert not TrailVerification().go(begun_with(written, policy)).damage


def test_a_body_without_the_form_of_its_kind_is_damage_that_only_this_finds(written: Path) -> None:
    rows, keys = rows_of(written), keys_of(written)
    bare = entries_of(rows)[2].model_copy(update={"body": {"usd": 1}})
    walk = TrailVerification().go(chained([bare], keys, stored_entries=rows[:2]))
    assert len(walk.damage) == 1 and walk.damage[0].startswith("entry 2 (spend): does not have its form: ")
    assert walk.misfits == walk.damage and walk.notes == []


def test_signatures_are_counted_by_role_and_those_of_verdicts_again(tmp_path: Path) -> None:
    trail = Trail(tmp_path / "trail.sqlite", "small")
    lenient(trail)
    for kind, key in (("open", "o"), ("verdict", "v/1"), ("verdict", "v/2"), ("spend", "s")):
        append_json(trail, kind, key, body_of(kind))  # pyright: ignore[reportArgumentType]
    trail.close()
    walk = walk_trail(read_trail(trail.path))
    (reviewer,) = (pair for pair in walk.signed if pair[0] == "reviewer")
    (log,) = (pair for pair in walk.signed if pair[0] == "log")
    assert walk.signed == {reviewer: 2, log: 2} and walk.verdicts == {reviewer: 2}


def test_a_head_of_another_log_is_reported(written: Path) -> None:
    walk = TrailVerification().go(rows_of(written))
    policy = walk.policy
    assert policy is not None
    other = policy.model_copy(update={"origin": "peergate/other"})
    note = signed_note(other, 3, walk.tree.root(), keys_of(written))
    assert walk.against(parse_note(note.encode())) == ["is of the log 'peergate/other', this is 'peergate/small'"]
    assert TrailVerification().against(parse_note(note.encode())) == [], "without a policy nothing can be said"


def named(public: str, role: Any = "log", **fields: Any) -> PolicyKey:
    return PolicyKey(id=public * 64, role=role, public=public * 64, **fields)


def test_a_key_of_the_log_signs_heads_of_the_entries_it_may_sign() -> None:
    """A head of n entries ends with entry n - 1."""
    keys = (named("a", until=4), named("b", since=4), named("c", role="human"))
    policies = [Policy(origin="peergate/small", keys=keys, roles={"*": ("log",)})]

    def signers(size: int | None) -> list[str]:
        return [key.public.hex()[0] for key in log_keys(policies, size)]

    assert [signers(size) for size in (1, 4, 5, 9)] == [["a"], ["a"], ["b"], ["b"]]
    assert signers(None) == ["a", "b"] and log_keys([], 1) == []


def test_after_a_change_of_keys_the_old_key_at_hand_signs_nothing_more(tmp_path: Path) -> None:
    trail = Trail(tmp_path / "runs" / "small" / "trail.sqlite", "small")
    append_json(trail, "workspace", "workspace", {})
    policy = trail.policy()
    assert policy is not None
    old = next(key for key in policy.keys if key.role == "log")
    public = trail.keys.make("log", "log.next")
    new = PolicyKey(id=key_id(public), role="log", public=public.hex(), since=2)
    ended = tuple(key.model_copy(update={"until": 2}) if key.id == old.id else key for key in policy.keys)
    body = {"role": "log", "old": old.id, "new": new.id, "revoked": False, "by": "ada", "reason": "due"}
    append_json(trail, "keys", "keys/1", body, policy.model_copy(update={"keys": (*ended, new)}))
    with pytest.raises(UserError, match=rf"signs as 'log' with the key {old.id[:16]}, the trail's is {new.id[:16]}"):
        append_json(trail, "spend", "spend/1", body_of("spend"))
    trail.close()
    assert walk_trail(read_trail(trail.path)).damage == [] and len(rows_of(trail.path)) == 2


def test_rows_are_read_in_parts_and_without_what_is_appended_meanwhile(tmp_path: Path) -> None:
    trail = Trail(tmp_path / "trail.sqlite", "small")
    with trail.alone():
        for n in range(600):
            append_json(trail, "spend", f"spend/{n}", body_of("spend", seconds=n))
    with stream_trail(trail.path) as (rows, head):
        later = iter(rows)
        first = next(later)
        append_json(trail, "spend", "spend/later", body_of("spend"))
        numbers = [first.seq, *(row.seq for row in later)]
    assert head is not None and numbers == list(range(head[0])) == list(range(600))
    assert walk_trail(read_trail(trail.path)).damage == [] and len(rows_of(trail.path)) == 601


def test_a_trail_without_its_head_is_not_built_upon(written: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(written, tmp_path / "trail.sqlite"))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM head")
    trail = Trail(path, "small")
    with pytest.raises(AuditDamage, match="head: not a checkpoint note"):
        trail.verify_chain()
    trail.close()
