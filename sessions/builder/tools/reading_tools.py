"""Tools that read: the spec, artifacts by name, measured metrics, nothing made from held-out items."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from reviews.evidence.row_queries import MOST_READABLE as MOST_READABLE
from reviews.evidence.row_queries import part_of
from sessions.builder.redaction import sees_heldout
from sessions.builder.tools.tool_context import PhaseWork, ToolCallRefusal
from sessions.session import Session
from specs.stages.base.metric import MetricSet
from specs.stages.metric_catalog import METRICS
from specs.stages.registry import outputs_of
from specs.system.digests import Digest, digest_bytes
from specs.system.text import mark
from specs.trail.builder_tools import ListArtifacts, ReadMetrics, ReadSpec
from specs.trail.gate_bodies import MetricsEntry, NoteEntry
from specs.trail.session_bodies import ExitEntry, OpenEntry
from specs.trail.tool_arguments import ReadArtifact

MOST_FILES = 200
"""Files of one attempt; the job folder has the rest."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")
"""The name of an artifact in a call."""

PRIVATE = ("reviewer", "panel", "reading")
"""A builder must not know who judges it, nor what they read first."""
HELD_BACK = "held_back"
"""Money for evaluation, reviews and teardown, with which no builder plans."""
WHY = 500


def read_spec(work: PhaseWork, arguments: ReadSpec) -> str:
    """Return the registered spec or a part of it."""
    history = work.session.history
    value: Any = {
        name: part for name, part in history.resolved.spec.model_dump(mode="json").items() if name not in PRIVATE
    }
    value["budget"].pop(HELD_BACK, None)
    value["registration"] = history.registration
    for part in arguments.section.split("/")[1:]:
        try:
            # No index from the end, and no digits of other scripts.
            place: Any = int(part) if isinstance(value, list) and re.fullmatch("[0-9]+", part) else part
            value = value[place]
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise ToolCallRefusal(f"the spec has no {arguments.section}: unknown key '{part}'") from error
    return json.dumps(value, indent=1, ensure_ascii=False)


def list_artifacts(work: PhaseWork, _: ListArtifacts) -> str:
    """List what can be read."""
    parts = [f"{readable.name}: {readable.what}" for readable in artifacts(work.session)]
    withheld = "Held-out items and what was generated from them cannot be read; read_metrics gives their metrics."
    return "\n".join([*parts, withheld])


def read_artifact(work: PhaseWork, arguments: ReadArtifact) -> str:
    """Return a part of an artifact's text, with its place."""
    readable = require_artifact(work.session, arguments.name)
    return part_of(readable.name, work.wall.readable(readable.digest, MOST_READABLE), arguments)


def read_metrics(work: PhaseWork, arguments: ReadMetrics) -> str:
    """Return the metrics of an attempt with unit, population and interval."""
    session = work.session
    measured = [
        entry.body
        for entry in session.trail.iterate(MetricsEntry)
        if entry.body.stage == arguments.stage and arguments.attempt in (None, entry.body.attempt)
    ]
    if not measured:
        attempt = f" attempt {arguments.attempt}" if arguments.attempt else ""
        raise ToolCallRefusal(f"nothing was measured of stage '{arguments.stage}'{attempt} yet")
    body = measured[-1]
    if not body.metrics:
        why = work.wall.clean(body.why, WHY)
        raise ToolCallRefusal(f"{body.stage}.{body.attempt} could not be measured: {mark('reason', why)}")
    metric_set = MetricSet.model_validate(session.store.get_value(body.metrics))
    facts = {
        metric.id: {
            "value": metric.value,
            "n": metric.n,
            "unit": metric.unit,
            "interval_95": metric.interval,
            "better": METRICS[metric.id].direction if metric.id in METRICS else "none",
            "definition": metric.definition,
        }
        for metric in metric_set.metrics.values()
    }
    return json.dumps({"stage": metric_set.stage, "attempt": metric_set.attempt, "metrics": facts}, indent=1)


class ReadableArtifact(NamedTuple):
    """An artifact in the content store under a name."""

    name: str
    digest: Digest
    what: str
    suffix: str


def artifacts(session: Session) -> Iterator[ReadableArtifact]:
    """Yield what may be read: spec, constitution, training data, outputs of stages without held-out items, notes.

    The file of the user's own task is among it only where the spec says so.
    """
    opened = session.find(OpenEntry)
    if opened is not None and (constitution := opened.body.constitution) is not None:
        yield ReadableArtifact("constitution", constitution, "the principles, YAML", ".yaml")
    resolved = session.resolved
    if resolved.task_text is not None and resolved.spec.verifier.builder_reads:
        yield ReadableArtifact("verifier", digest_bytes(resolved.task_text.encode()), "the task's file, Python", ".py")
    for name, digest in sorted(session.resolved.data_digests.items()):
        if name not in resolved.spec.hidden_data():
            yield ReadableArtifact(f"data.{name}", digest, "rows for training, one JSON a line", ".jsonl")
    stages = {stage.name: stage for stage in session.resolved.spec.stages}
    for ended in (entry.body for entry in session.trail.iterate(ExitEntry)):
        stage, attempt = stages.get(ended.stage), ended.attempt
        if stage is None or sees_heldout(session.resolved.spec, stage):
            continue
        if ended.manifest:
            yield ReadableArtifact(f"{stage.name}.{attempt}.manifest", ended.manifest, "what really ran", ".json")
        for output, kind in outputs_of(stage.kind, stage.parameters).items():
            made = ended.outputs.get(output)
            name = f"{stage.name}.{attempt}.{output}"
            if made is not None and kind == "files":
                yield from _files(session, name, made.digest)
            elif made is not None and made.stored:
                yield ReadableArtifact(name, made.digest, f"{made.bytes} bytes, one JSON a line", ".jsonl")
    for number, note in enumerate((entry.body for entry in session.trail.iterate(NoteEntry)), 1):
        message = f"{note.what} note of {note.stage}.{note.attempt}"
        yield ReadableArtifact(f"note.{number}", note.text, message, ".md")


def _files(session: Session, name: str, digest: str) -> Iterator[ReadableArtifact]:
    """Yield the files that a recipe left, under their paths with dots for slashes."""
    value: dict[str, str] = session.store.get_value(digest)
    for path, file in sorted(value.items())[:MOST_FILES]:
        called = f"{name}.{path.replace('/', '.')}"
        if _NAME.fullmatch(called):
            yield ReadableArtifact(called, file, "a file the script left", ".txt")


def find_artifact(session: Session, name: str) -> ReadableArtifact | None:
    """Return the artifact with a name if it may be read."""
    return next((readable for readable in artifacts(session) if readable.name == name), None)


def require_artifact(session: Session, name: str) -> ReadableArtifact:
    """Return the artifact with a name; raises Refused if it may not be read."""
    readable = find_artifact(session, name)
    if readable is None:
        names = ", ".join(readable.name for readable in artifacts(session))
        raise ToolCallRefusal(f"no artifact '{name}' may be read; available: {names}")
    return readable
