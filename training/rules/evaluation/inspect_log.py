"""Reads and writes ``.eval`` logs of inspect_ai: archives of JSON, of which the library is not needed here.

The log of a job was written by other people's code: its size is limited, and nothing of it is trusted to have a form.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

NAME = "inspect.eval"
"""The log's name among the outputs of a stage."""
HEADER, SUMMARIES = "header.json", "summaries.json"
SAMPLES = "samples/"
MOST_BYTES = 1 << 30
"""The limit for all members together, unpacked."""
MOST_MEMBERS = 200_000
_ATTACHED = "attachment://"
_DATE = (1980, 1, 1, 0, 0, 0)


class NotALog(ValueError):
    """The file is not a log, or not a whole one; the message says why."""


class ScorerValue(NamedTuple):
    """What one scorer says of a sample."""

    name: str
    value: str | bool | float | None
    """None if it gives several values."""


class LoggedAnswer(NamedTuple):
    """One answer of the model, as the log has it."""

    id: str
    text: str


class LoggedSample(NamedTuple):
    """One sample of the task."""

    id: str
    epoch: int
    error: bool
    target: tuple[str, ...]
    output: str
    """The text that the scorers saw."""
    scores: tuple[ScorerValue, ...]
    answers: tuple[LoggedAnswer, ...]
    """All answers that the model gave for it, in order."""
    metadata: dict[str, Any]


class Log(NamedTuple):
    """A whole log."""

    status: str
    task: str
    arguments: dict[str, Any]
    scorers: dict[str, tuple[str, dict[str, Any]]]
    """The scorer and its options, by name of the score."""
    samples: tuple[LoggedSample, ...]


def read_log(path: Path) -> Log:
    """Return what a log holds; raises NotALog, or OSError if the file cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) > MOST_MEMBERS or sum(zip_info.file_size for zip_info in members) > MOST_BYTES:
                raise NotALog(f"it holds {len(members)} members, or more than {MOST_BYTES} bytes")
            names = [zip_info.filename for zip_info in members]
            if len(set(names)) != len(names):
                raise NotALog("it holds two members of one name")
            header = _json(archive, HEADER) if HEADER in names else {}
            samples = [_sample(_json(archive, name)) for name in names if name.startswith(SAMPLES)]
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError) as error:
        raise NotALog(f"it is not an archive that can be read: {error}") from error
    task, results = _mapping(header.get("eval")), _mapping(header.get("results"))
    return Log(
        status=str(header.get("status")),
        task=str(task.get("task")),
        arguments=_mapping(task.get("task_args_passed")),
        scorers={
            str(value.get("name")): (str(value.get("scorer")), _mapping(value.get("params")))
            for value in map(_mapping, _list(results.get("scores")))
        },
        samples=tuple(samples),
    )


def _json(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
    try:
        return _mapping(json.loads(archive.read(name)))
    except (ValueError, RecursionError) as error:
        raise NotALog(f"{name} is not JSON") from error


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _sample(raw: dict[str, Any]) -> LoggedSample:
    attached = _mapping(raw.get("attachments"))
    target = raw.get("target")
    events = (value for value in map(_mapping, _list(raw.get("events"))) if value.get("event") == "model")
    outputs = [_mapping(event.get("output")) for event in events]
    scores = _mapping(raw.get("scores")).items()
    return LoggedSample(
        id=str(raw.get("id")),
        epoch=raw["epoch"] if isinstance(raw.get("epoch"), int) else 0,
        error=raw.get("error") is not None,
        target=tuple(str(value) for value in (target if isinstance(target, list) else [target])),
        output=_text(_mapping(raw.get("output")), attached),
        scores=tuple(ScorerValue(str(name), _value(_mapping(value).get("value"))) for name, value in scores),
        answers=tuple(LoggedAnswer(str(output.get("response_id")), _text(output, attached)) for output in outputs),
        metadata=_mapping(raw.get("metadata")),
    )


def _value(value: Any) -> str | bool | float | None:
    if isinstance(value, bool | str):
        return value
    return float(value) if isinstance(value, int | float) else None


def _text(output: dict[str, Any], attached: dict[str, Any]) -> str:
    choice = _mapping(next(iter(_list(output.get("choices"))), None))
    content = _mapping(choice.get("message")).get("content")
    if not isinstance(content, str):
        return ""
    return str(attached.get(content.removeprefix(_ATTACHED), "")) if content.startswith(_ATTACHED) else content


def write_log(path: Path, header: Mapping[str, Any], samples: Iterable[Mapping[str, Any]]) -> None:
    """Write a log that the library reads: its header, and each sample with its ``id`` and ``epoch``."""
    members = {f"{SAMPLES}{sample['id']}_epoch_{sample['epoch']}.json": sample for sample in samples}
    remaining = ("id", "epoch", "input", "target", "metadata", "scores")
    summaries = [
        {name: member[name] for name in remaining if name in member} | {"completed": True}
        for member in members.values()
    ]
    start = {"version": header["version"], "eval": header["eval"], "plan": header["plan"]}
    with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED) as archive:
        for name, value in (("_journal/start.json", start), *members.items(), (SUMMARIES, summaries), (HEADER, header)):
            # Without the time of writing: the same evaluation gives the same file.
            archive.writestr(_member(name), json.dumps(value, ensure_ascii=False, sort_keys=True))


def _member(name: str) -> zipfile.ZipInfo:
    zip_info = zipfile.ZipInfo(name, _DATE)
    zip_info.compress_type = zipfile.ZIP_DEFLATED
    return zip_info
