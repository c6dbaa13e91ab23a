"""Exports, anchors, witnesses and key changes, through the command line and through what is below it."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from reviews.audit.export import PROOFS, verify_export
from reviews.audit.verify import verify_run
from reviews.trail.anchors import read_anchor, read_policy
from reviews.trail.chain.keys import KeyFolder, load_key
from reviews.trail.chain.tiles import bundles_of, read_bundles, tile_name, tiles_of
from reviews.trail.integrity import walk_trail
from reviews.trail.key_rotation import rotate
from reviews.trail.tables.open_table import read_trail
from reviews.trail.trail import Trail
from sessions.run.lease import lease
from specs.system.errors import UserError
from specs.trail.entry import Entry
from testing.factories.bodies import append_json, body_of
from testing.factories.forgery import chained, entries_of, keys_of, put, rows_of, with_body
from testing.fixtures.command_sessions import called as peergate
from testing.fixtures.reviewer_here import lenient
from testing.fixtures.tlog_proofs import parse_proof, verify_proof

HOME = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("exported") / "runs"
    done = peergate("start", "demo_leaky", "--runs", runs)
    assert done.returncode == 3, done.stderr
    return runs / "demo_leaky"


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("export") / "out"
    done = peergate("audit", "export", run, target)
    assert done.returncode == 0, done.stderr
    return target


def verified(*arguments: str | Path) -> tuple[int, dict[str, object]]:
    done = peergate("audit", "verify", *arguments, "--json")
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


# ---- the export --------------------------------------------------------------------------------------------------


def test_an_export_is_verified_and_says_what_it_does_not_prove(exported: Path) -> None:
    code, report = verified(exported)
    assert (code, report["verdict"], report["damage"]) == (0, "verified", [])
    assert any("not derived again" in line for line in report["not_proven"])  # pyright: ignore[reportGeneralTypeIssues]
    assert not [path for path in exported.rglob("*") if b"PRIVATE" in (path.read_bytes() if path.is_file() else b"")]


def test_exporting_again_gives_the_same_bytes(run: Path, exported: Path, tmp_path: Path) -> None:
    assert peergate("audit", "export", run, tmp_path / "out").returncode == 0
    row, two = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (exported, tmp_path / "out")
    )
    assert row == two
    assert peergate("audit", "export", run, tmp_path / "out").returncode == 2


def test_a_damaged_trail_is_not_exported(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "demo_leaky"
    shutil.copytree(run, copy)
    rows = rows_of(copy / "trail.sqlite")
    put(copy / "trail.sqlite", [rows[0]._replace(payload=rows[0].payload.replace(b"paired", b"Paired")), *rows[1:]])
    done = peergate("audit", "export", copy, tmp_path / "out")
    assert done.returncode == 5 and "does not hold" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo_leaky"]


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("what", ["deleted", "emptied", "one byte more"])
def test_every_file_of_an_export_is_needed_as_it_is(exported: Path, tmp_path: Path, what: str) -> None:
    for number, original in enumerate(files_of(exported)):
        if original.name == "report.html":
            continue  # the page is made again and compared by the command: below
        copy = tmp_path / str(number)
        shutil.copytree(exported, copy)
        path = copy / original.relative_to(exported)
        if what == "deleted":
            path.unlink()
        else:
            path.write_bytes(b"" if what == "emptied" else path.read_bytes() + b"\n")
        # A file of the store that no entry names may go; it proves nothing.
        unnamed = "store" in path.parts and what == "deleted" and verify_export(copy).exit_code == 0
        assert verify_export(copy).exit_code == 1 or unnamed, path
        shutil.rmtree(copy)


def test_the_page_is_compared_with_the_entries(exported: Path, tmp_path: Path) -> None:
    copy = tmp_path / "out"
    shutil.copytree(exported, copy)
    page = copy / "report.html"
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text and "default-src 'none'" in text and "http" not in text.replace("http-equiv", "")
    page.write_text(text.replace("reject", "approve"), encoding="utf-8")
    code, report = verified(copy)
    assert (code, report["damage"]) == (1, ["report.html: does not show these entries"])
    shutil.copyfile(exported / "report.html", page)
    (copy / "more.txt").write_text("x", encoding="utf-8")
    assert verified(copy)[1]["damage"] == ["more.txt: is not part of the export"]


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(200, id="200"),
        pytest.param(1000, id="1000", marks=pytest.mark.slow),
        pytest.param(100_000, id="100000", marks=[pytest.mark.nightly, pytest.mark.timeout(7200)]),
    ],
)
def test_no_mutated_export_is_verified_and_none_ends_in_a_traceback(exported: Path, tmp_path: Path, count: int) -> None:
    """Bits flipped, bytes cut out, doubled and inserted, in every file that is parsed: notes, bundles, proofs, keys."""
    copy = tmp_path / "out"
    shutil.copytree(exported, copy)
    files = [path for path in files_of(copy) if "store" not in path.parts and path.name != "report.html"]
    chance = random.Random(7)
    for number in range(count):
        path = chance.choice(files)
        data = path.read_bytes()
        changed = mutated(data, chance)
        if changed == data:
            continue
        path.write_bytes(changed)
        assert verify_export(copy).exit_code in (1, 3), (number, path)
        if path.suffix == ".tlog-proof":
            entry = read_bundles(exported, 7)[3]
            with suppress(UserError):
                assert not verify_proof(changed, entry, read_policy(exported / "policy.json")), (number, path)
        path.write_bytes(data)
    assert verify_export(copy).exit_code == 0


def mutated(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data))
    length = chance.choice([1, 1, 1, 2, 8, 100])
    how = chance.randrange(5)
    if how == 0:
        return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]
    if how == 1:
        return data[:place] + data[place + length :]
    if how == 2:
        return data[:place] + data[place : place + length] + data[place:]
    if how == 3:
        return data[:place] + chance.randbytes(length) + data[place:]
    return data[:place]


def test_a_proof_stands_alone(exported: Path) -> None:
    path = next((exported / PROOFS).iterdir())
    policy = read_policy(exported / "policy.json")
    entries = read_bundles(exported, 7)
    proof = parse_proof(path.read_bytes())
    assert [verify_proof(path.read_bytes(), entry, policy) for entry in entries] == [n == proof.seq for n in range(7)]
    other = policy.model_copy(update={"origin": "peergate/other"})
    assert not verify_proof(path.read_bytes(), entries[proof.seq], other)


@pytest.mark.parametrize("size", [1, 255, 256, 257, 512, 70_000])
def test_tiles_have_the_names_and_widths_of_the_standard(size: int) -> None:
    names = [name for name, _ in tiles_of([bytes(32)] * size)]
    levels: dict[int, int] = {}
    for name in names:
        levels[int(name.split("/")[1])] = levels.get(int(name.split("/")[1]), 0) + 1
    hashes, expected = size, {}
    for level in range(3):
        if hashes:
            expected[level] = -(-hashes // 256)
        hashes //= 256
    assert levels == expected
    assert len(names) == len(set(names))


def test_tile_names_are_those_of_the_examples_in_the_standard() -> None:
    assert tile_name("0", 1_234_067) == "tile/0/x001/x234/067"
    assert tile_name("entries", 0, 7) == "tile/entries/000.p/7"
    assert tile_name("1", 1000) == "tile/1/x001/000"
    names = [name for name, _ in tiles_of([bytes(32)] * 70_000)]
    assert {"tile/0/273.p/112", "tile/1/001.p/17", "tile/2/000.p/1"} <= set(names)


@pytest.mark.parametrize("data", [b"\x00", b"\x00\x02a", b"\x00\x01a\x00", b"", b"\x00\x01a\x00\x01b\x00\x01c"])
def test_a_bundle_of_another_form_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / tile_name("entries", 0, 2)
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    with pytest.raises(UserError, match="bundle"):
        read_bundles(tmp_path, 2)


def test_bundles_read_back(tmp_path: Path) -> None:
    entries = [os.urandom(n % 50) for n in range(600)]
    for name, data in bundles_of(entries):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    assert read_bundles(tmp_path, 600) == entries


# ---- the verifier that is not ours -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def go_verifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build verify/ with Debian's Go and its golang.org/x/mod."""
    source = Path("/usr/share/gocode/src/golang.org/x/mod/sumdb")
    if shutil.which("go") is None or not source.is_dir():
        pytest.skip("needs the Debian packages golang-go and golang-golang-x-mod-dev")
    folder = tmp_path_factory.mktemp("go")
    environment = os.environ | {"GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOFLAGS": ""}
    done = subprocess.run(
        ["go", "build", "-o", str(folder / "verify"), "."],
        cwd=HOME / "verify", env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "verify"


def go(verifier: Path, *arguments: str | Path) -> tuple[int, str]:
    done = subprocess.run([verifier, *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_go_verifier_accepts_our_exports_and_agrees_on_damage(
    go_verifier: Path, exported: Path, tmp_path: Path
) -> None:
    code, output = go(go_verifier, "-anchor", exported / "checkpoint", exported)
    assert code == 0 and output.endswith("OK\n"), output
    assert "1 signed by reviewer, 6 signed by log" in output
    copy = tmp_path / "out"
    shutil.copytree(exported, copy)
    chance = random.Random(3)
    skipped = ("report.html", ".pem", "policy.json", "log.vkey")
    for path in [file_path for file_path in files_of(copy) if not file_path.name.endswith(skipped)]:
        data = path.read_bytes()
        place = chance.randrange(len(data))
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        assert go(go_verifier, copy)[0] in (1, 3), path
        path.write_bytes(data)
    assert go(go_verifier, copy)[0] == 0


def test_the_go_verifier_finds_a_rewrite_against_an_anchor(
    go_verifier: Path, run: Path, exported: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "runs" / "demo_leaky"
    shutil.copytree(run, copy)
    path, keys = copy / "trail.sqlite", keys_of(run / "trail.sqlite")
    entries = entries_of(rows_of(path))
    entries[3] = with_body(entries[3], usd=1.0)
    put(path, chained(entries, keys), keys)
    assert peergate("audit", "export", copy, tmp_path / "out").returncode == 0
    assert go(go_verifier, tmp_path / "out")[0] == 0
    code, output = go(go_verifier, "-anchor", exported / "checkpoint", tmp_path / "out")
    assert code == 1 and "another history" in output


# ---- anchors, witnesses ------------------------------------------------------------------------------------------


def test_heads_are_kept_in_a_folder_in_git_and_by_a_command_and_compared(run: Path, tmp_path: Path) -> None:
    remote, places = tmp_path / "remote.git", tmp_path / "places"
    subprocess.run(["git", "init", "--quiet", "--bare", str(remote)], check=True)
    command = f"cat > {tmp_path / 'note'}; echo $PEERGATE_NOTE > {tmp_path / 'name'}"
    for older in (0, 1):
        done = peergate("audit", "anchor", run, "--folder", places, "--git", str(remote), "--command", command)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count(f"agrees with {older} heads") == 2
    folder = places / "peergate-demo_leaky" / "00000007.note"
    views = ["git", "--git-dir", str(remote), "show", "peergate-heads:peergate-demo_leaky/00000007.note"]
    assert subprocess.run(views, capture_output=True, check=True).stdout == folder.read_bytes()
    assert (tmp_path / "note").read_bytes() == folder.read_bytes()
    assert (tmp_path / "name").read_text(encoding="utf-8").strip() == "peergate-demo_leaky/00000007.note"
    assert verified(run, "--anchor", folder)[0] == 0

    other = tmp_path / "runs" / "demo_leaky"
    shutil.copytree(run, other)
    path, keys = other / "trail.sqlite", keys_of(run / "trail.sqlite")
    put(path, chained(entries_of(rows_of(path)), keys, change=a_moment_later), keys)
    for option, place in (("--folder", places), ("--git", remote)):
        done = peergate("audit", "anchor", other, option, place)
        assert done.returncode == 5 and "another history" in done.stderr, done.stderr
    assert verified(other, "--anchor", folder)[0] == 1


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ([], "no destination specified"),
        (["--command", "exit 3"], "the command 'exit 3' ended with 3"),
        (["--git", "/nowhere/at/all.git"], "git ls-remote ended with 128"),
    ],
)
def test_an_anchor_that_cannot_be_kept_is_an_error(run: Path, arguments: list[str], output: str) -> None:
    done = peergate("audit", "anchor", run, *arguments)
    assert done.returncode in (1, 2) and output in done.stderr and "Traceback" not in done.stderr


def test_a_witness_signs_only_what_grew_from_what_it_saw(run: Path, exported: Path, tmp_path: Path) -> None:
    key, note = tmp_path / "ada.pem", tmp_path / "head.note"
    done = peergate("audit", "cosign", exported, "--name", "ada.example", "--key", key, "--out", note)
    assert done.returncode == 0, done.stderr
    assert key.stat().st_mode & 0o777 == 0o600
    witness = done.stderr.split("witness key: ")[1].strip()
    # A second witness adds its line to the same note.
    args = ("--name", "bob.example", "--key", tmp_path / "bob.pem", "--out", note, "--seen", note)
    assert peergate("audit", "cosign", run, *args).returncode == 0
    assert len(read_anchor(note).head.signatures) == 3
    policy = json.loads((exported / "policy.json").read_text(encoding="utf-8"))
    trusted = tmp_path / "trusted.json"
    trusted.write_text(json.dumps(policy | {"witnesses": [witness]}), encoding="utf-8")
    code, report = verified(run, "--anchor", note, "--policy", trusted)
    assert code == 0
    assert "cosigned by ada.example at 20" in str(report["anchors"]) and "1 further signatures" in str(
        report["anchors"]
    )

    other = tmp_path / "runs" / "demo_leaky"
    shutil.copytree(run, other)
    path, keys = other / "trail.sqlite", keys_of(run / "trail.sqlite")
    put(path, chained(entries_of(rows_of(path)), keys, change=a_moment_later), keys)
    done = peergate("audit", "cosign", other, "--name", "ada.example", "--key", key, "--seen", note)
    assert done.returncode == 5 and "another history" in done.stderr and done.stdout == ""


@pytest.mark.parametrize("data", [b"", b"not a note", b"\xff\xfe"])
def test_an_anchor_or_policy_that_cannot_be_read_is_no_verification(run: Path, tmp_path: Path, data: bytes) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes(data)
    assert verified(run, "--anchor", bad)[0] == 3
    assert verified(run, "--policy", bad)[0] == 3
    assert verified(run, "--anchor", tmp_path / "not there")[0] == 3


def a_moment_later(entry: Entry) -> Entry:
    """Make another history of the same length, every entry of which has its form."""
    return entry.model_copy(update={"time_ns": str(int(entry.time_ns) + 1)})


# ---- key changes -------------------------------------------------------------------------------------------------


def open_trail(folder: Path, name: str = "small") -> Trail:
    trail = Trail(folder / "runs" / name / "trail.sqlite", name)
    lenient(trail)
    append_json(trail, "open", "open", body_of("open"))
    append_json(trail, "verdict", "verdict/a.1", body_of("verdict"))
    return trail


@pytest.mark.parametrize("role", ["log", "reviewer", "human"])
def test_a_key_is_replaced_and_what_it_signed_before_still_holds(tmp_path: Path, role: str) -> None:
    trail = open_trail(tmp_path)
    old = load_key(trail.keys.path(role))
    trail.close()
    done = peergate("audit", "rotate", role, "--reason", "laptop stolen", "--revoke", "--runs", tmp_path / "runs")
    assert done.returncode == 0, done.stderr
    trail = Trail(trail.path, "small")
    new = load_key(trail.keys.path(role))
    changed = trail.find(f"keys/{new.id[:16]}")
    assert changed is not None and changed.raw["old"] == old.id and changed.raw["revoked"]
    lenient(trail)
    append_json(trail, "verdict", "verdict/a.2", body_of("verdict"))
    append_json(trail, "human", "human/1", body_of("human"))
    trail.verify_chain()
    trail.close()
    walk = walk_trail(read_trail(trail.path))
    assert not walk.damage
    assert {id for text, id in walk.signed if text == role} <= {old.id, new.id}
    audit = verify_run(trail.path.parent, "trail.sqlite", "store")
    assert any("was revoked" in note for note in audit.notes)


def test_no_key_is_replaced_under_a_session_that_runs(tmp_path: Path) -> None:
    """It could not sign its next entry: it holds the keys it began with."""
    trail = open_trail(tmp_path)
    log, before = trail.keys.path("log"), trail.head().size
    content = log.read_bytes()
    with lease(trail.path.parent):
        done = peergate("audit", "rotate", "log", "--reason", "due", "--runs", tmp_path / "runs")
    assert done.returncode != 0 and "another process is running this session" in done.stderr
    assert "peergate pause" in done.stderr and log.read_bytes() == content
    append_json(trail, "pause", "pause/1", {"by": "ada"})
    assert trail.head().size == before + 1


def test_an_entry_of_the_old_key_after_its_end_is_found(tmp_path: Path) -> None:
    trail = open_trail(tmp_path)
    stolen = KeyFolder(tmp_path / "stolen")
    shutil.copytree(trail.keys.folder, stolen.folder)
    rotate(trail.keys, [(trail.path, "small")], "reviewer", by="ada", reason="stolen", revoke=True)
    trail.close()
    rows = rows_of(trail.path)
    late = entries_of(rows)[2].model_copy(
        update={"kind": "verdict", "key": "verdict/late", "policy": None, "body": body_of("verdict")}
    )
    put(trail.path, chained([late], stolen, stored_entries=rows), KeyFolder(trail.keys.folder))
    assert "entry 3 (verdict): signed with the unknown key" in walk_trail(read_trail(trail.path)).damage[0]


def test_a_policy_that_rewrites_the_past_is_refused(tmp_path: Path) -> None:
    """The human key alone cannot make an old key valid where it was not."""
    trail = open_trail(tmp_path)
    policy = trail.policy()
    trail.close()
    assert policy is not None
    keys, rows = KeyFolder(trail.keys.folder), rows_of(trail.path)
    for changed in (
        policy.model_copy(update={"roles": policy.roles | {"verdict": ("builder",)}}),
        policy.model_copy(update={"keys": policy.keys[1:]}),
        policy.model_copy(update={"keys": (policy.keys[0].model_copy(update={"since": 5}), *policy.keys[1:])}),
        policy.model_copy(update={"keys": (*policy.keys, policy.keys[0].model_copy(update={"role": "reviewer"}))}),
        policy.model_copy(update={"origin": "peergate/other"}),
    ):
        entry = entries_of(rows)[1].model_copy(
            update={"kind": "keys", "key": "keys/x", "policy": changed.model_dump(mode="json"), "body": body_of("keys")}
        )
        put(trail.path, chained([entry], keys, stored_entries=rows), keys)
        damage = walk_trail(read_trail(trail.path)).damage
        assert damage and "changes the policy, which cannot be" in damage[0], damage


def test_rotating_goes_on_after_a_crash(tmp_path: Path) -> None:
    result, two = open_trail(tmp_path, "one"), open_trail(tmp_path, "two")
    keys = result.keys
    with pytest.raises(UserError, match="no such trail"):
        rotate_half(keys, result, two)
    new = rotate(
        KeyFolder(keys.folder), [(result.path, "one"), (two.path, "two")], "log", by="a", reason="r", revoke=False
    )
    for trail in (result, two):
        again = Trail(trail.path, trail.session)
        assert [entry.key for entry in again.iterate("keys")] == [f"keys/{new[:16]}"]
        append_json(again, "spend", "spend/1", body_of("spend"))
        again.verify_chain()
        again.close()
        trail.close()


def rotate_half(keys: KeyFolder, trail: Trail, two: Trail) -> None:
    """Die after the first trail has recorded the change."""

    def trails() -> list[tuple[Path, str]]:
        class Stops(list[tuple[Path, str]]):
            def __iter__(self):  # type: ignore[no-untyped-def]
                yield trail.path, "one"
                raise UserError("no such trail")

        return Stops()

    rotate(keys, trails(), "log", by="a", reason="r", revoke=False)
