"""Reads transcripts and folders of them: every record is used, or skipped with a reason, and the account says so."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from specs.system.errors import UserError
from specs.system.masking import Masker
from specs.system.regular_files import open_regular
from specs.traces.turn import Account, FileAccount, TraceTurn
from training.rules.traces.conversation import Conversations, lineage
from training.rules.traces.record_kinds import CODEX, PartMaker, is_boundary, why_skipped

DUPLICATE = "copy of a record that was read"


class IngestResult(NamedTuple):
    """The turns of some transcripts, and what became of every record; the account's digest is still to be written."""

    turns: list[TraceTurn]
    account: Account


def ingest(
    paths: Sequence[Path], masker: Masker, progress: Callable[[int, int, Path], None] | None = None
) -> IngestResult:
    """Read transcripts, or folders of them.

    Args:
        paths: files, or folders that are searched for ``*.jsonl``.
        masker: takes secrets out of everything that is kept.
        progress: is called before each file with its number, how many there are, and its path.

    Raises:
        UserError: a path is not there or cannot be read, or no record of a conversation is in any file.
    """
    matching_paths, left_aside = _find_transcripts(paths)
    names = _names(matching_paths)
    secrets = _Counting(masker)
    maker = PartMaker(secrets.mask)
    conversations = Conversations(maker)
    seen_texts: set[str] = set()
    files: list[FileAccount] = []
    for number, path in enumerate(sorted(matching_paths, key=lambda path: (_first_time(path), str(path)))):
        if progress is not None:
            progress(number + 1, len(matching_paths), path)
        try:
            files.append(_read(path, names[path], conversations, seen_texts))
        except OSError as error:
            raise UserError(f"cannot be read: {error.strerror}", where=str(path)) from error
    turns = list(conversations.iterate_turns())
    left_aside |= {file.file: CODEX for file in files if not file.used and CODEX in file.skipped}
    account = _account(files, left_aside, turns, conversations, secrets.masked_count)
    account = account.model_copy(update={"opaque": dict(sorted(maker.opaque.items()))})
    if not account.states:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(account.skipped.items())) or "it is empty"
        where = str(paths[0]) if len(paths) == 1 else f"{len(paths)} paths"
        raise UserError(
            f"no answer of a model in {account.records} records ({reasons})",
            where=where,
            hint="name session files of Claude Code, or a folder of ~/.claude/projects; rollouts of Codex are not read",
        )
    return IngestResult(turns, account)


def _find_transcripts(paths: Iterable[Path]) -> tuple[list[Path], dict[str, str]]:
    """Return the transcripts under some paths, and what else is there with the reason why it is not read."""
    results: dict[Path, None] = {}
    remaining: dict[str, str] = {}
    for path in paths:
        if path.is_dir():
            for current_path in sorted(path.rglob("*.jsonl")):
                reason = _why_not(current_path)
                remaining |= {str(current_path.relative_to(path)): reason} if reason else {}
                results |= {} if reason else {current_path.resolve(): None}
        elif path.is_file():
            results[path.resolve()] = None
        else:
            raise UserError("does not exist, or is neither a file nor a folder", where=str(path))
    return list(results), remaining


def _why_not(path: Path) -> str:
    if path.name == "journal.jsonl":
        return "a journal of workflows, not a transcript"
    return "" if path.is_file() else "not a plain file"


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """Return what each file is called in an account: its path below the folder that all of them share."""
    shared = paths[0].parent if paths else Path()
    while not all(path.is_relative_to(shared) for path in paths):
        shared = shared.parent
    return {path: path.relative_to(shared).as_posix().encode("utf-8", "replace").decode() for path in paths}


def _first_time(path: Path) -> str:
    """Return when a transcript begins: a session that was resumed into another file is read after the first."""
    try:
        for number, line in enumerate(read_lines(path)):
            time = line.record.get("timestamp") if line.record else None
            if isinstance(time, str):
                return time
            if number > 50:
                break
    except OSError:
        pass
    return ""


class _NumberedRecord(NamedTuple):
    number: int
    record: dict[str, Any]


def _read(path: Path, name: str, conversations: Conversations, seen_texts: set[str]) -> FileAccount:
    """Put all records of a file in their place; raises OSError if it cannot be read."""
    skipped: dict[str, list[int]] = {}
    remaining: list[_NumberedRecord] = []
    records, replaced = 0, False
    for line in read_lines(path):
        records += 1
        replaced = replaced or line.replaced
        record = line.record
        reason = line.skipped if record is None else _reason(record, seen_texts)
        if reason:
            skipped.setdefault(reason, []).append(line.number)
        if record is None or reason == DUPLICATE:
            continue
        conversations.know(lineage(record))
        if not reason or is_boundary(record):
            remaining.append(_NumberedRecord(line.number, record))
    used = 0
    for number, record in remaining:
        if is_boundary(record):
            conversations.compact(lineage(record))
        elif conversations.add(record, (name, number)):
            used += 1
        else:
            skipped.setdefault("nothing in it", []).append(number)
    ranges = {reason: tuple(_ranges(sorted(lines))) for reason, lines in sorted(skipped.items())}
    return FileAccount(file=name, records=records, used=used, skipped=ranges, replaced_bytes=replaced)


def _reason(record: dict[str, Any], seen_texts: set[str]) -> str:
    """Return why a record is skipped: it is a copy, or no part of a conversation."""
    uuid = record.get("uuid")
    if isinstance(uuid, str):
        if uuid in seen_texts:
            return DUPLICATE
        seen_texts.add(uuid)
    return why_skipped(record)


def _ranges(lines: Sequence[int]) -> Iterator[tuple[int, int]]:
    for _, run in groupby(enumerate(lines), lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in run]
        yield numbers[0], numbers[-1]


class _Counting:
    """Masks texts and JSON values, and counts what was masked."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self.masked_count = 0

    def mask(self, value: Any) -> Any:
        if isinstance(value, str):
            masked = self._masker.mask(value)
            self.masked_count += masked.secrets
            return masked.text
        changed = self._masker.value(value)
        self.masked_count += changed is not value
        return changed


def _account(
    files: list[FileAccount],
    remaining: dict[str, str],
    turns: list[TraceTurn],
    conversations: Conversations,
    secrets: int,
) -> Account:
    skipped: Counter[str] = Counter()
    for file_account in files:
        for reason, ranges in file_account.skipped.items():
            skipped[reason] += sum(last - first + 1 for first, last in ranges)
    actions = [turn for turn in turns if turn.kind == "action"]
    return Account(
        files=tuple(files),
        left_aside=remaining,
        records=sum(file_account.records for file_account in files),
        used=sum(file_account.used for file_account in files),
        skipped=dict(sorted(skipped.items())),
        states=len(actions),
        branches=conversations.branches,
        compactions=conversations.compactions,
        calls=sum(part.type == "tool_use" for turn in actions for part in turn.parts),
        unanswered=sum(len(turn.unanswered) for turn in actions),
        orphans=conversations.orphans,
        secrets=secrets,
        turns="",
    )


MOST_BYTES = 64 * 2**20
"""The limit of one line. A longer line is skipped, and never in memory as a whole."""
_BOM = b"\xef\xbb\xbf"

MOST_FILE_BYTES = 1 << 32
"""The limit of a transcript."""


class TranscriptLine(NamedTuple):
    """One line: its record, or why it holds none."""

    number: int
    record: dict[str, Any] | None
    skipped: str
    replaced: bool


def read_lines(path: Path) -> Iterator[TranscriptLine]:
    """Yield every line of a transcript; raises OSError if the file cannot be read."""
    with open_regular(path, MOST_FILE_BYTES) as file:
        number = 0
        while data := file.readline(MOST_BYTES + 1):
            number += 1
            whole = data.endswith(b"\n")
            if len(data) > MOST_BYTES and not whole:
                _skip_line(file)
                yield TranscriptLine(number, None, "line too long", False)
                continue
            yield _read_line(number, data.removeprefix(_BOM) if number == 1 else data, whole)


def _skip_line(file: Any) -> None:
    while (data := file.readline(2**20)) and not data.endswith(b"\n"):
        pass


def _read_line(number: int, data: bytes, whole: bool) -> TranscriptLine:
    if not data.strip():
        return TranscriptLine(number, None, "empty line", False)
    try:
        text, replaced = data.decode("utf-8"), False
    except UnicodeDecodeError:
        text, replaced = data.decode("utf-8", "replace"), True
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        # A program that still writes, or was killed, leaves the last line unfinished.
        return TranscriptLine(number, None, "malformed line" if whole else "unfinished last line", replaced)
    if not isinstance(record, dict):
        return TranscriptLine(number, None, "not an object", replaced)
    return TranscriptLine(number, record, "", replaced)
