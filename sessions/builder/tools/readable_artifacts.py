"""Everything a builder may read, by name. What reads held-out items leaves nothing that may be read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from sessions.builder.heldout_outputs import sees_heldout
from sessions.session import Session
from specs.digests import Digest
from specs.stages.registry import outputs_of

MOST_FILES = 200
"""Of one attempt's files; the rest can be seen in the job folder."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")
"""What may stand for an artifact in a call."""


class Readable(NamedTuple):
    """An artifact in the content store under a name."""

    name: str
    digest: Digest
    what: str
    suffix: str
    """How a file with it would be called."""


def artifacts(session: Session) -> Iterator[Readable]:
    """Yield what may be read: spec, constitution, training data, outputs of stages without held-out items, notes."""
    opened = session.trail.find("open")
    if opened is not None:
        yield Readable("constitution", opened.body["constitution"], "the principles, YAML", ".yaml")
    for name, digest in sorted(session.resolved.data_digests.items()):
        if name != "heldout":
            yield Readable(f"data.{name}", digest, "items for training, one JSON a line", ".jsonl")
    stages = {stage.name: stage for stage in session.resolved.spec.stages}
    for ended in session.trail.iterate("exit"):
        stage, attempt = stages.get(ended.body["stage"]), ended.body["attempt"]
        if stage is None or sees_heldout(session.resolved.spec, stage):
            continue
        if ended.body["manifest"]:
            yield Readable(f"{stage.name}.{attempt}.manifest", ended.body["manifest"], "what really ran", ".json")
        for output, kind in outputs_of(stage.kind, stage.parameters).items():
            made = ended.body["outputs"].get(output)
            name = f"{stage.name}.{attempt}.{output}"
            if made is not None and kind == "files":
                yield from _files(session, name, made["digest"])
            elif made is not None and made["stored"]:
                yield Readable(name, made["digest"], f"{made['bytes']} bytes, one JSON a line", ".jsonl")
    for number, note in enumerate(session.trail.iterate("note"), 1):
        told = f"{note.body['what']} note of {note.body['stage']}.{note.body['attempt']}"
        yield Readable(f"note.{number}", note.body["text"], told, ".md")


def _files(session: Session, name: str, digest: str) -> Iterator[Readable]:
    """Yield the files that a recipe left, under their paths with dots in the place of slashes."""
    kept: dict[str, str] = session.store.get_value(digest)
    for path, file in sorted(kept.items())[:MOST_FILES]:
        called = f"{name}.{path.replace('/', '.')}"
        if _NAME.fullmatch(called):
            yield Readable(called, file, "a file the script left", ".txt")


def find_artifact(session: Session, name: str) -> Readable | None:
    """Return the artifact with a name if it may be read."""
    return next((one for one in artifacts(session) if one.name == name), None)
