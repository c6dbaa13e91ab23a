"""Family ``exports``: exports that someone manipulated or forged, before both verifiers.

An attack is missed if the two disagree, if one accepts what has to be refused, or if Peergate's own ends in an error.
What is compared is the part of the answer that both give (docs/explanation/trail.md, "Two verifiers, one answer").
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.attack import forged_policies, forgeries
from bench.attack.forged_trail import Original, copy_trail, forge_trail, rewrite, spoiled_base64
from bench.attack.outcome import Outcome
from reviews.audit.export import export_run, verify_export
from reviews.trail.chain.keys import KeyFolder
from reviews.trail.chain.tiles import CHECKPOINT, is_export
from sessions.pages.report.trail_page import trail_page
from testing.factories.fuzzing import mutated
from testing.fixtures.quick_session import drive, open_quick, quick_session

HOME = Path(__file__).parents[2]
ATTEMPTS = 1000
BATCH = 40
"""Exports that lie on the disk at the same time."""
PACKAGES = Path("/usr/share/gocode/src/golang.org/x/mod/sumdb")
ACCEPTED = (0, 2)
FORGERIES: dict[forgeries.Maker, int] = {
    forgeries.duplicate_names: 6, forgeries.other_case: 4, forgeries.other_spelling: 8, forgeries.other_numbers: 4,
    forgeries.other_type: 5, forgeries.newer_version: 2, forgeries.other_members: 8, forgeries.other_time: 4,
    forgeries.another_session: 3, forgeries.time_backwards: 4, forgeries.another_signer: 5, forgeries.another_tree: 2,
    forgeries.key_twice: 3, forgeries.after_the_end: 3, forgeries.another_beginning: 2, forgeries.cut: 3,
    forgeries.missing_evidence: 4, forgeries.another_body: 12, forged_policies.another_envelope: 9,
    forged_policies.signed_twice: 1, forged_policies.another_first_policy: 9, forged_policies.changed_keys: 8,
    forgeries.control: 1,
}  # fmt: skip
"""With how often each is tried."""


def run(seed: int, folder: Path) -> Outcome:
    """Try :data:`ATTEMPTS` manipulations."""
    outcome = Outcome()
    if missing := missing_packages():
        return Outcome(not_run=missing)
    attack(outcome, original(folder), build_verifier(folder), seed, ATTEMPTS, folder / "tried")
    return outcome


def missing_packages() -> str:
    """Return what ``verify/`` needs to be built and is not installed; empty if nothing is missing."""
    installed = shutil.which("go") and PACKAGES.is_dir()
    return "" if installed else "needs Debian's golang-go and golang-golang-x-mod-dev"


def closed_session(folder: Path) -> Path:
    """Drive a small session to its end and return its run folder."""
    run = open_quick(folder)
    drive(quick_session(run))
    return run


def original(folder: Path) -> Original:
    """Drive a small session to its end and export it."""
    run = closed_session(folder)
    export_run(run, "trail.sqlite", "store", folder / "export", trail_page)
    return Original.of(folder / "export", KeyFolder.of_trail(run / "trail.sqlite"))


def build_verifier(folder: Path, source: Path = HOME / "verify") -> Path:
    """Build ``verify/`` with Debian's packages.

    Raises:
        RuntimeError: it does not compile.
    """
    program = folder / "verify"
    environment = os.environ | {
        "GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOFLAGS": "",
        "GOCACHE": os.environ.get("GOCACHE", str(folder / "go-cache")),
    }  # fmt: skip
    command = ["go", "build", "-o", str(program), "."]
    done = subprocess.run(
        command, cwd=source, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return program


def attack(
    outcome: Outcome, whole: Original, verifier: Path, seed: int, attempts: int, folder: Path, keep: Path | None = None
) -> None:
    """Try seeded manipulations and record each.

    Args:
        outcome: takes the counts.
        whole: the export to begin with.
        verifier: the program of ``verify/``.
        seed: of the first manipulation; the next has the next.
        attempts: how many.
        folder: where the manipulated exports lie for a while.
        keep: where an export stays that shows a difference.
    """
    for first in range(0, attempts, BATCH):
        seeds = range(seed * 1_000_000 + first, seed * 1_000_000 + min(first + BATCH, attempts))
        made = [(seed, *manipulate_export(whole, seed, folder / str(seed))) for seed in seeds]
        theirs = go_codes(verifier, [folder / str(seed) for seed in seeds])
        for (value, what, harmful), their in zip(made, theirs, strict=True):
            ours = python_code(folder / str(value))
            flag = ours == their and not (harmful and their in ACCEPTED)
            outcome.record(flag, f"seed {value}: {what}: Peergate says {ours}, verify/ says {their}")
            if not flag and keep is not None:
                shutil.copytree(folder / str(value), keep / str(value), symlinks=True)
        shutil.rmtree(folder)


def python_code(folder: Path) -> int | str:
    """Return the exit code that belongs to the part of Peergate's answer that ``verify/`` gives too."""
    if not is_export(folder):
        return 3
    try:
        audit = verify_export(folder)
    except Exception as error:  # whatever it is, it is a defect
        return f"{type(error).__name__}: {error}"
    if audit.integrity == "damaged":
        return 1
    return 2 if audit.is_open else 0


def go_codes(verifier: Path, folders: Sequence[Path]) -> list[int]:
    """Return what ``verify/`` says of each export."""
    # With one export it prints more, so there are always two.
    command = [str(verifier), *map(str, folders), str(folders[0])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    codes = [int(line.split(" ", 1)[0]) for line in done.stdout.splitlines()]
    if len(codes) != len(folders) + 1:
        raise RuntimeError(f"verify/ said {done.stdout[-500:]} {done.stderr[-2000:]}")
    return codes[:-1]


def manipulate_export(whole: Original, seed: int, target: Path) -> tuple[str, bool]:
    """Write a manipulated export; returns what was done and whether it has to be refused."""
    chance = random.Random(seed)
    if chance.random() < 0.55:
        made = chance.choices(list(FORGERIES), list(FORGERIES.values()))[0](whole, chance)
        forge_trail(whole, made.steps, target, policy=made.policy, size=made.size)
        return f"forged: {made.what}", made.harmful
    copy_trail(whole, target)
    how = chance.choices((_bytes, _tree, _note), (4, 5, 3))[0]
    return how(target, chance)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _bytes(folder: Path, chance: random.Random) -> tuple[str, bool]:
    """Change bytes of a file; what the page shows is not for both."""
    path = chance.choice([path for path in _files(folder) if "store" not in path.parts or chance.random() < 0.1])
    before = path.read_bytes()
    after = mutated(before, chance)
    rewrite(path, after)
    return f"bytes of {path.relative_to(folder)}", after != before and path.name != "report.html"


# ---- files and folders -------------------------------------------------------------------------------------------


def _tree(folder: Path, chance: random.Random) -> tuple[str, bool]:
    name, how = chance.choice(sorted(_TREES.items()))
    damage = how(folder, chance)
    # A file of the store that no entry names proves nothing; it may be there or not.
    harmless = name == "one more file of evidence"
    return f"{name}: {damage}", not harmless


def _delete_file(folder: Path, chance: random.Random) -> str:
    path = chance.choice(_files(folder))
    path.unlink()
    return str(path.relative_to(folder))


def _delete_folder(folder: Path, chance: random.Random) -> str:
    path = chance.choice(sorted(path for path in folder.rglob("*") if path.is_dir()))
    shutil.rmtree(path)
    return str(path.relative_to(folder))


def _delete_large_folder(folder: Path, chance: random.Random) -> str:
    name = chance.choice(["store", "proofs", "keys", "tile", "tile/0", "tile/entries"])
    shutil.rmtree(folder / name)
    return name


def _add_file(folder: Path, chance: random.Random) -> str:
    name = chance.choice([
        "more.txt", ".hidden", "proofs/000001-x.tlog-proof", "keys/log-0.pem", "tile/0/001", "tile/entries/001",
        "store/x", "store/aa/x", "store/AA/" + "0" * 62, "store/aa/bb/" + "0" * 62, "Checkpoint", "checkpoint~",
        "store/.DS_Store", "tile/entries/000", "store/aa/" + "g" * 62, "a\nb", "report.html.bak",
        "store/aa/" + "0" * 62 + "\n", "\udcff",
        "store/." + "0" * 62 + ".12.00000000", "store/aa/" + "0" * 62,
    ])  # fmt: skip
    rewrite(folder / name, chance.choice([b"", b"x"]))
    return repr(name)


def _add_folder(folder: Path, chance: random.Random) -> str:
    name = chance.choice(["more", "store/aa/bb", "proofs/x", "keys/a/b", "store/" + "zz", "tile/9", "STORE"])
    (folder / name).mkdir(parents=True, exist_ok=True)
    return name


def _folder_for_file(folder: Path, chance: random.Random) -> str:
    path = chance.choice(_files(folder))
    path.unlink()
    path.mkdir()
    if chance.random() < 0.5:
        (path / "x").write_bytes(b"x")
    return str(path.relative_to(folder))


def _file_for_folder(folder: Path, chance: random.Random) -> str:
    path = chance.choice(sorted(path for path in folder.rglob("*") if path.is_dir()))
    shutil.rmtree(path)
    path.write_bytes(b"x")
    return str(path.relative_to(folder))


def _link_for_file(folder: Path, chance: random.Random) -> str:
    """The same bytes, from elsewhere."""
    path = chance.choice(_files(folder))
    away = folder.parent / f"{folder.name}.away"
    away.mkdir(exist_ok=True)
    shutil.copyfile(path, away / path.name)
    path.unlink()
    path.symlink_to((away / path.name).resolve())
    return str(path.relative_to(folder))


def _link_for_folder(folder: Path, chance: random.Random) -> str:
    path = chance.choice(sorted(path for path in folder.rglob("*") if path.is_dir()))
    away = folder.parent / f"{folder.name}.away"
    shutil.copytree(path, away)
    shutil.rmtree(path)
    path.symlink_to(away.resolve())
    return str(path.relative_to(folder))


def _other(make: Callable[[Path], None]) -> Callable[[Path, random.Random], str]:
    def change(folder: Path, chance: random.Random) -> str:
        path = chance.choice([*_files(folder), folder / "new", folder / "store" / "new"])
        path.unlink(missing_ok=True)
        make(path)
        return str(path.relative_to(folder))

    return change


def _socket(path: Path) -> None:
    # A path of a socket may have 107 bytes only.
    here = os.open(path.parent, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as current_socket:
            current_socket.bind(f"/proc/self/fd/{here}/s")
        (path.parent / "s").rename(path)
    finally:
        os.close(here)


def _swap(folder: Path, chance: random.Random) -> str:
    path, two = chance.sample(_files(folder), 2)
    first, second = path.read_bytes(), two.read_bytes()
    rewrite(path, second)
    rewrite(two, first)
    if first == second:
        path.unlink()
    return f"{path.relative_to(folder)} and {two.relative_to(folder)}"


def _rename(folder: Path, chance: random.Random) -> str:
    path = chance.choice([path for path in folder.rglob("*") if len(path.relative_to(folder).parts) < 4])
    other = path.with_name(
        chance.choice([path.name.upper() + "X", f"{path.name} ", f".{path.name}", f"{path.name}.gz"])
    )
    path.rename(other)
    return f"{path.relative_to(folder)} to {other.name!r}"


def _more_evidence(folder: Path, chance: random.Random) -> str:
    import hashlib

    data = chance.randbytes(20)
    name = hashlib.sha256(data).hexdigest()
    rewrite(folder / "store" / name[:2] / name[2:], data)
    return name


_TREES: dict[str, Callable[[Path, random.Random], str]] = {
    "a file deleted": _delete_file,
    "a folder deleted": _delete_folder,
    "a large folder deleted": _delete_large_folder,
    "a file added": _add_file,
    "a folder added": _add_folder,
    "a folder instead of a file": _folder_for_file,
    "a file instead of a folder": _file_for_folder,
    "a link instead of a file": _link_for_file,
    "a link instead of a folder": _link_for_folder,
    "a link that leads nowhere": _other(lambda path: path.symlink_to("/nowhere/at/all")),
    "a link that leads to itself": _other(lambda path: path.symlink_to(path.name)),
    "a FIFO": _other(os.mkfifo),
    "a socket": _other(_socket),
    "two files swapped": _swap,
    "a file renamed": _rename,
    "one more file of evidence": _more_evidence,
}


# ---- the files around the entries, said otherwise ----------------------------------------------------------------


def _note(folder: Path, chance: random.Random) -> tuple[str, bool]:
    name, data, harmful = chance.choice(list(_notes(folder, chance)))
    path = {"c": folder / CHECKPOINT, "p": folder / "policy.json", "v": folder / "log.vkey"}[name[0]]
    if name.startswith("proof"):
        path = chance.choice(sorted((folder / "proofs").iterdir()))
    before = path.read_bytes()
    after = data(before)
    rewrite(path, after)
    if harmful is False:
        # The proofs hold the note too.
        for proof in (folder / "proofs").iterdir():
            rewrite(proof, proof.read_bytes().replace(before, after))
    return f"{path.name} {name}", after != before and harmful


def _notes(folder: Path, chance: random.Random) -> Iterator[tuple[str, Callable[[bytes], bytes], bool]]:
    def spoil_file(line: int) -> Callable[[bytes], bytes]:
        def change(data: bytes) -> bytes:
            lines = data.decode().split("\n")
            words = lines[line].split(" ")
            words[-1] = spoiled_base64(words[-1])
            lines[line] = " ".join(words)
            return "\n".join(lines).encode()

        return change

    stranger = "\u2014 ada.example AAAAAAAAAAAA\n".encode()
    yield "checkpoint: root in another spelling", spoil_file(2), True
    yield "checkpoint: signature in another spelling", spoil_file(4), True
    yield "checkpoint: a leading zero", lambda data: data.replace(b"\n8", b"\n08", 1), True
    yield "checkpoint: line ends of another system", lambda data: data.replace(b"\n", b"\r\n"), True
    yield "checkpoint: an extension line", lambda data: data.replace(b"\n\n", b"\nextension\n\n", 1), True
    yield "checkpoint: a line end too much", lambda data: data + b"\n", True
    yield "checkpoint: no last line end", lambda data: data[:-1], True
    yield "checkpoint: a name in capitals", lambda data: data.replace(b"peergate", b"Peergate"), True
    yield "checkpoint: a wrong signature in front", _double_line(first=True), False
    yield "checkpoint: a wrong signature behind", _double_line(first=False), False
    yield "checkpoint: a signature of a stranger", lambda data: data + stranger, False
    yield "checkpoint: 150 signatures of strangers", lambda data: data + stranger * 150, False
    yield "checkpoint: a signature of a stranger, too short", lambda data: data + "\u2014 a AAAA\n".encode(), True
    yield "checkpoint: a signature of a stranger, not base64", lambda data: data + "\u2014 a AA-A\n".encode(), True
    yield "checkpoint: a stranger with a plus", lambda data: data + stranger.replace(b"ada", b"a+a"), True
    yield (
        "checkpoint: a stranger with a wide space",
        lambda data: data + stranger.replace(b"ada", "a\u3000a".encode()),
        True,
    )
    yield "policy.json: a space", lambda data: data.replace(b",", b", ", 1), True
    yield "policy.json: a name twice", lambda data: data.replace(b'{"keys"', b'{"keys":[],"keys"', 1), True
    yield "policy.json: a name in capitals", lambda data: data[:-1] + b',"Keys":[]}', True
    yield "policy.json: no witnesses", lambda data: data.replace(b',"witnesses":[]', b""), True
    yield "vkey: no line end", lambda data: data.strip(), True
    yield "vkey: another name", lambda data: b"x" + data, True
    yield "vkey: two keys", lambda data: data * 2, True
    yield "proof: a hash in another spelling", spoil_file(3), True
    yield "proof: another number", lambda data: data.replace(b"index ", b"index 0", 1), True
    yield "proof: a line of extra data", lambda data: data.replace(b"index", b"extra AAAA\nindex", 1), True


def _double_line(*, first: bool) -> Callable[[bytes], bytes]:
    """A second signature line under the log's own name and key, which does not hold."""

    def change(data: bytes) -> bytes:
        text, gap, line = data.partition(b"\n\n")
        wrong = line[:-12] + (b"AAAA" if line[-12:-8] != b"AAAA" else b"BBBB") + line[-8:]
        return text + gap + (wrong + line if first else line + wrong)

    return change
