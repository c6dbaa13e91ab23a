"""Tools that read: the spec, artifacts by name, measured metrics."""

from __future__ import annotations

import json
from typing import Any

from reviews.evidence.gather import registered_spec
from sessions.builder.tools.readable_artifacts import artifacts, find_artifact
from sessions.builder.tools.tool_context import Refused, Work
from specs.stages.metric import MetricSet
from specs.stages.metric_catalog import METRICS
from specs.trail.builder_tools import ListArtifacts, ReadArtifact, ReadMetrics, ReadSpec
from specs.vendors.untrusted_text import enclose, mark

PRIVATE = ("reviewer", "panel")
"""Who judges is no business of whoever is judged."""
HELD_BACK = "held_back"
"""What is kept for evaluation, reviews and teardown is nothing to plan with."""
MOST_READABLE = 4_000_000
"""Characters of an artifact that can be read; rows beyond that tell nothing new."""
WHY = 500


def read_spec(work: Work, arguments: ReadSpec) -> str:
    """Return the registered spec or a part of it."""
    session = work.session
    resolved, registration = registered_spec(list(session.trail.iterate()), session.store)
    value: Any = {name: part for name, part in resolved.spec.model_dump(mode="json").items() if name not in PRIVATE}
    value["budget"].pop(HELD_BACK, None)
    value["registration"] = registration
    for part in arguments.section.split("/")[1:]:
        try:
            value = value[_index(part)] if isinstance(value, list) else value[part]
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise Refused(f"the spec has no {arguments.section}: '{part}' is not there") from error
    return json.dumps(value, indent=1, ensure_ascii=False)


def _index(part: str) -> int:
    if not (part.isascii() and part.isdigit()):
        raise ValueError("no index")
    return int(part)


def list_artifacts(work: Work, _: ListArtifacts) -> str:
    """List what can be read."""
    told = [f"{one.name}: {one.what}" for one in artifacts(work.session)]
    withheld = "Held-out items and what was generated from them cannot be read; read_metrics gives their metrics."
    return "\n".join([*told, withheld])


def read_artifact(work: Work, arguments: ReadArtifact) -> str:
    """Return a part of an artifact's text, with where it stands."""
    found = find_artifact(work.session, arguments.name)
    if found is None:
        names = ", ".join(one.name for one in artifacts(work.session))
        raise Refused(f"no artifact '{arguments.name}' may be read; there are: {names}")
    text = work.wall.readable(found.digest, MOST_READABLE)
    part = text[arguments.offset : arguments.offset + arguments.limit]
    if not part and arguments.offset:
        raise Refused(f"{found.name} has {len(text)} characters, there is none at {arguments.offset}")
    end = arguments.offset + len(part)
    more = f"; go on with offset {end}" if end < len(text) else ""
    return f"{found.name}, characters {arguments.offset} to {end} of {len(text)}{more}\n{enclose('artifact', part)}"


def read_metrics(work: Work, arguments: ReadMetrics) -> str:
    """Return the metrics of an attempt with unit, population and interval."""
    session = work.session
    measured = [
        one
        for one in session.trail.iterate("metrics")
        if one.body["stage"] == arguments.stage and arguments.attempt in (None, one.body["attempt"])
    ]
    if not measured:
        attempt = f" attempt {arguments.attempt}" if arguments.attempt else ""
        raise Refused(f"nothing was measured of stage '{arguments.stage}'{attempt} yet")
    body = measured[-1].body
    if not body["metrics"]:
        why = work.wall.clean(body["why"], WHY)
        raise Refused(f"{body['stage']}.{body['attempt']} could not be measured: {mark('reason', why)}")
    found = MetricSet.model_validate(session.store.get_value(body["metrics"]))
    told = {
        one.id: {
            "value": one.value,
            "n": one.n,
            "unit": one.unit,
            "interval_95": one.interval,
            "better": METRICS[one.id].direction if one.id in METRICS else "none",
            "definition": one.definition,
        }
        for one in found.metrics.values()
    }
    return json.dumps({"stage": found.stage, "attempt": found.attempt, "metrics": told}, indent=1)
