"""Tools that propose another experiment: a stage more, or a sweep whose every session counts all of them.

Neither runs in this session. What is proposed is a draft, which starts only with a person's signature.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reviews.trail.chain.store import write_durably
from sessions.builder.tools.stage_tools import keep_note
from sessions.builder.tools.tool_context import PhaseWork, ToolCallRefusal
from sessions.run.signed_specs import DRAFT
from specs.loading.loading import load_spec
from specs.stages.registry import Stage
from specs.system.errors import PeergateError, SpecError
from specs.system.text import plain
from specs.system.yaml.yaml_positions import dump_yaml
from specs.trail.builder_tools import ProposeStage, ProposeSweep
from specs.trail.gate_bodies import NoteEntry

FOLDER = Path(".peergate") / "proposals"
MOST_PROBLEMS = 5


def propose_stage(work: PhaseWork, arguments: ProposeStage) -> str:
    """Propose this experiment with one stage more."""
    value = _read_registered_spec(work)
    names = [stage["name"] for stage in value["stages"]]
    if arguments.before is not None and arguments.before not in names:
        raise ToolCallRefusal(f"unknown stage '{arguments.before}'; the stages are {', '.join(names)}")
    try:
        stage: Any = json.loads(arguments.stage)
    except ValueError as error:
        raise ToolCallRefusal(f"stage is not JSON: {error}") from error
    place = len(names) if arguments.before is None else names.index(arguments.before)
    value["stages"].insert(place, stage)
    value["name"] = _name(value["name"], f"proposal-{_number(work)}")
    (path,) = _write_drafts(work, [value])
    return _announce_drafts(work, [path], f"a stage more, before {arguments.before or 'the end'}", arguments.reason)


def propose_sweep(work: PhaseWork, arguments: ProposeSweep) -> str:
    """Propose one session for each value, at the registered alpha and budget divided by their number."""
    value = _read_registered_spec(work)
    stage = next((stage for stage in work.session.resolved.spec.stages if stage.name == arguments.stage), None)
    if stage is None:
        raise ToolCallRefusal(f"unknown stage '{arguments.stage}'")
    points = tuple(dict.fromkeys(arguments.values))
    count = len(points)
    if count < 2 or count > stage.gate.max_rounds:
        message = (
            f"a sweep has at least 2 values, and at most the {stage.gate.max_rounds} attempts registered for the stage"
        )
        raise ToolCallRefusal(f"{message}: these are {count}")
    for point in points:
        _require_registered(stage, arguments.parameter, point)
    drafts: list[dict[str, Any]] = []
    for number, point in enumerate(points, 1):
        draft = json.loads(json.dumps(value))
        draft["name"] = _name(value["name"], f"sweep-{_number(work)}-{number}-of-{count}")
        draft["objective"] = (
            f"{value['objective']} (one of {count} values of {arguments.parameter}, all of which count)"
        )
        draft["analysis"]["alpha"] = value["analysis"]["alpha"] / count
        draft["budget"]["max_cost_usd"] = value["budget"]["max_cost_usd"] / count
        trained = next(current_stage for current_stage in draft["stages"] if current_stage["name"] == stage.name)
        trained["parameters"][arguments.parameter] = point
        drafts.append(draft)
    paths = _write_drafts(work, drafts)
    what = f"a sweep of {arguments.parameter} over {', '.join(map(str, points))}, each session at alpha / {count}"
    return _announce_drafts(work, paths, what, arguments.reason)


def _require_registered(stage: Stage, parameter: str, value: float | int | str | bool) -> None:
    """Refuse a value that the spec does not offer."""
    limits, choices = stage.ranges.get(parameter), stage.choices.get(parameter)
    if limits is None and choices is None:
        raise ToolCallRefusal(
            f"'{parameter}' has neither a range nor choices at stage '{stage.name}': it is not registered"
        )
    if choices is not None and value not in choices:
        raise ToolCallRefusal(f"{parameter} = {value} is not among the registered {', '.join(map(str, choices))}")
    if limits is not None and (isinstance(value, str | bool) or not limits.min <= value <= limits.max):
        raise ToolCallRefusal(f"{parameter} = {value} is outside the registered {limits.min:g} to {limits.max:g}")


def _read_registered_spec(work: PhaseWork) -> dict[str, Any]:
    """Return the registered spec as values, its files named by their whole paths."""
    resolved = work.session.history.resolved
    value: dict[str, Any] = resolved.spec.model_dump(mode="json", by_alias=True)
    for element in (value["heldout"], *value.get("data", {}).values()):
        element["path"] = str(resolved.path(element["path"]))
    if value.get("constitution"):
        value["constitution"] = str(resolved.path(value["constitution"]))
    return value


def _number(work: PhaseWork) -> int:
    """Return the number of this proposal: no draft takes the place of an earlier one."""
    return 1 + sum(entry.body.what == "amendment" for entry in work.session.trail.iterate(NoteEntry))


def _name(name: str, suffix: str) -> str:
    return f"{name[: 63 - len(suffix)]}-{suffix}"


def _write_drafts(work: PhaseWork, drafts: list[dict[str, Any]]) -> list[Path]:
    """Write drafts next to the run folders; Refused, with nothing written, if one of them cannot be registered."""
    folder = work.session.run.parent / FOLDER
    paths: list[Path] = []
    try:
        for draft in drafts:
            path = folder / f"{draft['name']}{DRAFT}"
            write_durably(path, dump_yaml(draft).encode(), mode=0o600)
            paths.append(path)
            load_spec(path)
    except (PeergateError, OSError, ValueError, TypeError, KeyError) as error:
        for path in paths:
            path.unlink(missing_ok=True)
        raise ToolCallRefusal("; ".join(_problems(work, error))) from error
    return paths


def _problems(work: PhaseWork, error: Exception) -> Iterator[str]:
    yield "this could not be registered"
    if isinstance(error, SpecError):
        yield from (
            work.wall.clean(f"{problem.keys}: {problem.message}", 400) for problem in error.problems[:MOST_PROBLEMS]
        )
    else:
        yield plain(type(error).__name__, 100)


def _announce_drafts(work: PhaseWork, paths: list[Path], what: str, reason: str) -> str:
    files = ", ".join(path.name for path in paths)
    named = keep_note(work, "amendment", f"proposed: {what}\n{files}\n\n{reason}")
    work.session.display.say(f"the builder proposes {what}: {', '.join(map(str, paths))}")
    return f"{named}; a person who wants it signs and starts {files}. This session stays as it is."
