"""Family ``paths``: every path that a person names is a FIFO, a device, a link, a folder or a sparse file of 100 GB.

An attack is missed if the command does not end soon, ends in a traceback, or says that all is well.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from bench.attack.exports import closed_session
from bench.attack.outcome import Outcome
from testing.factories.spec_files import write_spec
from testing.factories.transcripts import Transcript
from testing.fixtures.command_sessions import called
from testing.fixtures.quick_session import open_quick

SOON_S = 30
SPARSE = 100 * 10**9


def make_sparse(path: Path) -> None:
    """Write a file that is longer than memory and takes no room."""
    with path.open("wb") as file:
        file.truncate(SPARSE)


KINDS: dict[str, Callable[[Path], None]] = {
    "FIFO": lambda path: os.mkfifo(path),
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "terminal": lambda path: path.symlink_to("/dev/tty"),
    "link to nothing": lambda path: path.symlink_to(path.with_name("nowhere")),
    "link to itself": lambda path: path.symlink_to(path),
    "100 GB": make_sparse,
    "folder": lambda path: path.mkdir(),
}
LISTING = ("list ", "review request ")
"""Commands that also list what they cannot read, and end well."""
INSIDE = ("trail.sqlite", "trail.seal", "lease.json", "lease.lock")
COMMANDS = (
    *(
        "spec check X.yaml",
        "spec show X.yaml",
        "spec pin X.yaml",
        "start X.yaml",
        "pod plan X.yaml",
        "spec sign X.yaml",
    ),
    *("init new --data X.jsonl", "init new --data X.csv", "init new --data X.parquet", "init new --data X.json"),
    *("init new --verifier X.py --data GOOD", "review draft-spec goal --heldout X.jsonl", "view X"),
    *("audit verify X", "audit verify RUN --policy X.json", "audit verify RUN --anchor X.note", "audit list X"),
    *("audit cosign RUN --name ada --key X.pem", "audit cosign RUN --name ada --key KEY --seen X.note"),
    *("review ask --topic t --question q --reviewer X.yaml", "review ask --topic t --question q --context X.md"),
    *("review request X.md --kind design", "review adversarial X.md", "replay RUN --reviewer X.yaml"),
    *("review give --file X.json RUN", "review import FOLDER", "traces ingest X.jsonl", "traces ingest FOLDER"),
    *("traces stats X", "traces show X", "traces replay X", "traces replay FOLDER --teachers X.yaml"),
    *("ship check X", "ship check MODEL", "ship check GOODMODEL --base X", "retrospective RUN --audit X.yaml"),
    *("pod plan SPEC --pod X.yaml", "status X", "report X", "list --runs X"),
    *(f"{command}/{name}" for command in ("status OPEN", "list --runs OPENED/small") for name in INSIDE),
    *("report RUN/report/report.md", "report RUN/report/report.json --json", "audit show RUN/report/report.md claim"),
    *("list --runs OPENED/.peergate/list.json", "audit verify EXPORT/checkpoint", "audit verify EXPORT/policy.json"),
    *("audit list EXPORT/checkpoint", "audit anchor EXPORT/checkpoint --folder HERE"),
    "audit cosign EXPORT/checkpoint --name ada --key KEY",
    "traces replay TRACES/replay/replies.jsonl --teachers TEACHERS --dry-run",
)
"""X is what is hostile; FOLDER and MODEL hold it, and so does the copy of what stands before a slash."""
TEACHER = "{{id: {0}, model: {1}, family: {0}, license: test, base_url: 'http://127.0.0.1:9', {2}}}"
PRICE = "usd_per_million_tokens: {input: 1, output: 1}"
FOLDERS = {
    "FOLDER": ("turns.jsonl", "account.json", "review.md", "session.jsonl"),
    "MODEL": ("config.json", "model.safetensors", "tokenizer.json", "generation_config.json"),
}


def run(seed: int, folder: Path) -> Outcome:
    """Run every command on everything hostile."""
    outcome = Outcome()
    closed = closed_session(folder)
    good = good_files(folder / "good", closed)
    attacks = [(kind, command) for kind in KINDS for command in COMMANDS]
    random.Random(seed).shuffle(attacks)

    def late(_: int, __: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    try:
        for number, (kind, command) in enumerate(attacks):
            signal.alarm(SOON_S)
            try:
                wrong = attack(kind, command, good, closed, folder / str(number))
            except Exception as error:  # whatever it is, it is a defect
                wrong = type(error).__name__
            signal.alarm(0)
            outcome.record(not wrong, f"{command}, where X is a {kind}: {wrong}")
    finally:
        signal.signal(signal.SIGALRM, before)
    return outcome


def good_files(folder: Path, closed: Path) -> Path:
    """Write the other files that the commands need."""
    folder.mkdir()
    write_spec(folder)
    open_quick(folder)
    called("audit", "export", closed, folder / "export")
    made = Transcript()
    made.says("Change the file.")
    made.answers("I change it.", "Edit")
    made.write(folder / "turns.jsonl")
    called("traces", "ingest", folder / "turns.jsonl", "--out", folder / "traces")
    teachers = [TEACHER.format(*words, PRICE) for words in (("qwen", "qwen/qwen3-coder"), ("llama", "meta/llama-4"))]
    (folder / "teachers.yaml").write_text(f"student: smollm\nteachers: [{', '.join(teachers)}]\n", encoding="utf-8")
    rows = "".join(f"say {number},{number}\n" for number in range(40))
    (folder / "good.csv").write_text(f"prompt,completion\n{rows}", encoding="utf-8")
    return folder


def attack(kind: str, command: str, good: Path, closed: Path, place: Path) -> str:
    """Run a command on hostile paths; return what is wrong with its end, empty if nothing is."""
    words = list(_words(kind, command, good, closed, place))
    done = called(*words, cwd=place)
    if done.returncode not in range(7) or re.search("Traceback|Usage:", done.stderr):
        return f"exit code {done.returncode}: {done.stderr[-2000:]}"
    is_named = any(word.partition(".")[0] == "X" for word in command.split())
    if done.returncode == 0 and kind != "folder" and is_named and not command.startswith(LISTING):
        return f"exit code 0: {done.stdout[-500:]}"
    return ""


def _words(kind: str, command: str, good: Path, closed: Path, place: Path) -> Iterator[str]:
    named = {"RUN": closed, "SPEC": good / "spec.yaml", "GOOD": good / "good.csv", "KEY": place / "key.pem"}
    named |= {"GOODMODEL": closed / "jobs", "FOLDER": place / "folder", "MODEL": place / "model", "HERE": place}
    named |= {"TEACHERS": good / "teachers.yaml"}
    for folder, names in FOLDERS.items():
        named[folder].mkdir(parents=True)
        for name in names if folder in command.split() else ():
            KINDS[kind](named[folder] / name)
    sources = {"OPEN": good / "runs/small", "OPENED": good / "runs", "TRACES": good / "traces"}
    sources |= {"RUN": closed, "EXPORT": good / "export"}
    for word in command.split():
        stem, _, suffix = word.partition(".")
        holder, _, inside = word.partition("/")
        if inside:
            copied = shutil.copytree(sources[holder], place / holder / sources[holder].name)
            (path := copied / inside).unlink(missing_ok=True)
            path.parent.mkdir(exist_ok=True)
            KINDS[kind](path)
            yield str(copied)
        elif stem == "X":
            KINDS[kind](path := place / f"hostile.{suffix}")
            yield str(path)
        else:
            yield str(named.get(word, word))
