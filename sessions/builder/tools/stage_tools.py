"""Tools with an effect: plans, notes, proposals, launch, submission, tasks of helpers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agents.workbench_protocol import Delegating
from reviews.checks.claim_lookup import look_up
from reviews.evidence.gather import earlier_metrics
from sessions.builder.stage_view import open_stage, view_of
from sessions.builder.tools.tool_context import HelperBench, LaunchRequest, PhaseWork, ToolCallRefusal
from sessions.jobs.sandbox.code_admission import keep_recipe
from sessions.session import Session
from specs.jobs.grant_and_claim import Claim
from specs.stages.registry import kind_of, resolve_parameters
from specs.system.digests import canonical_bytes
from specs.system.errors import BudgetExceeded, BuilderUnavailable
from specs.system.text import plain
from specs.trail.builder_tools import (
    AskPerson,
    Delegate,
    HandIn,
    LaunchStage,
    ProposeAmendment,
    ProposePlan,
    SubmitStage,
    WriteNote,
    WriteRecipe,
)
from specs.trail.gate_bodies import NoteEntry, NoteKind

SENT_BACK = "sent back"
"""The beginning of a refusal of claims that the rows contradict."""
MOST_HANDED_IN = 32_000
"""Bytes of a plan or submission, which has to fit in a trail entry."""
MOST_NAME = 100
"""Characters of a finding's id, or of a stage or metric in a claim."""


def propose_plan(work: PhaseWork, arguments: ProposePlan) -> str:
    """Put a plan on record."""
    return keep_note(work, "plan", arguments.plan)


def write_note(work: PhaseWork, arguments: WriteNote) -> str:
    """Keep a note."""
    return keep_note(work, arguments.kind, arguments.text)


def propose_amendment(work: PhaseWork, arguments: ProposeAmendment) -> str:
    """Keep a proposed change of the spec for a person; the spec stays the same."""
    lines = [f"{change.pointer} = {change.value!r}" for change in arguments.changes]
    named = keep_note(work, "amendment", "\n".join([*lines, "", arguments.reason]))
    work.session.display.say(f"the builder proposes an amendment: {'; '.join(lines)}")
    return f"{named}; a person adopts it with `peergate amend` or does not. Until then the spec stays as it is."


def keep_note(work: PhaseWork, what: NoteKind, text: str) -> str:
    """Keep a text; the same text for the same attempt is kept once."""
    session = work.session
    body = NoteEntry(stage=work.stage.name, attempt=work.attempt, what=what, text=session.store.put_text(text))
    key = note_key(work.call)
    for number, entry in enumerate(session.trail.iterate(NoteEntry), 1):
        if entry.body == body and entry.key != key:
            return f"note.{number} holds this already; nothing was added"
    session.trail.append(body, key)
    return describe_note_name(session, key)


def note_key(call: str) -> str:
    """Return the key of a call's note; a repeated call leaves the same note."""
    return NoteEntry.key_of(call.partition("/")[2])


def describe_note_name(session: Session, key: str) -> str:
    """Return where a note was kept, by the name under which it is read."""
    number = next(number for number, entry in enumerate(session.trail.iterate(NoteEntry), 1) if entry.key == key)
    return f"kept as note.{number}"


def launch_stage(work: PhaseWork, arguments: LaunchStage) -> str:
    """End the planning; the session mints the grant and starts the job next."""
    opening = open_stage(work.session)
    if arguments.stage != opening.stage:
        message = f"stage '{arguments.stage}' has no grant: only '{opening.stage}' (attempt {opening.attempt}) is open"
        raise ToolCallRefusal(f"{message}, and later stages open when its gate has decided")
    changes: dict[str, float | int | str | bool] = dict(arguments.changes)
    _require_mended(work, changes)
    if arguments.code is not None:
        changes["code"] = arguments.code
    try:
        resolve_parameters(work.stage, changes)
    except ValueError as error:
        raise ToolCallRefusal(plain(str(error).splitlines()[0], 500)) from error
    _require_fit(arguments.answers, {"changes": changes, "reason": arguments.reason})
    work.launch = LaunchRequest(arguments.reason, changes, dict(arguments.answers))
    # The session mints the grant and starts the job after this call: whether it may start is not known yet.
    return f"the launch of {work.key} is on record, with {changes or 'the parameters of the spec'}"


def _require_mended(work: PhaseWork, changes: Mapping[str, Any]) -> None:
    """Refuse a launch without a change that the gate required by number, where it can be made."""
    view = view_of(work.session, work.stage, work.attempt)
    for name, value in sorted(view.required.items()):
        low, high = view.ranges.get(name, (math.inf, -math.inf))
        if low <= value <= high and changes.get(name) != value:
            message = (
                f"the gate requires {name} = {value:g}, and this launch has {changes.get(name, view.parameters[name])}"
            )
            raise ToolCallRefusal(f"{message}: put it into changes, or end with ask_person")


def write_recipe(work: PhaseWork, arguments: WriteRecipe) -> str:
    """Keep the script of a recipe, without running it."""
    if not kind_of(work.stage).runs_code:
        message = f"stage '{work.stage.name}' is of kind {work.stage.kind}"
        raise ToolCallRefusal(f"{message}; only stages of kind recipe take a script")
    if not work.stage.allow_code:
        raise ToolCallRefusal(f"stage '{work.stage.name}' runs the registered script; launch_stage needs no code")
    return f"kept as {keep_recipe(work.session.store, arguments.script)}; launch_stage takes that as code"


def hand_in(work: PhaseWork, arguments: HandIn) -> str:
    """End a helper's task with its result."""
    note = keep_note(work, "helper", arguments.result)
    text = work.session.store.put_text(arguments.result)
    notes = enumerate(work.session.trail.iterate(NoteEntry), 1)
    work.handed_in = next(f"note.{number}" for number, entry in notes if entry.body.text == text)
    return note


def ask_person(work: PhaseWork, arguments: AskPerson) -> str:
    """End the planning; a person decides how to continue."""
    work.launch = LaunchRequest(arguments.reason, escalate=True)
    return "a person is asked"


def submit_stage(work: PhaseWork, arguments: SubmitStage) -> str:
    """Hand the attempt in, unless the measured metrics contradict a claim."""
    for claim in arguments.claims:
        _require_number(claim)
    _require_fit(arguments.answers, {"claims": [claim.model_dump(mode="json") for claim in arguments.claims]})
    measured = work.session.metrics(*work.at)
    here = {work.stage.name: measured} if measured else {}
    results = look_up(arguments.claims, {**earlier_metrics(work.session.history, *work.at), **here})
    parts = [
        f"{result.status}: {result.claim.stage} {result.claim.metric} = {result.claim.value:g}" for result in results
    ]
    if any(result.status == "contradicted" for result in results):
        hint = "nothing was submitted: read_metrics gives the measured values; correct or drop a claim"
        raise ToolCallRefusal("\n".join([f"{SENT_BACK}: the rows contradict a claim", *parts, hint]))
    work.submission = arguments
    return "\n".join([*parts, f"{work.key} is submitted; its gate decides next"])


def _require_number(claim: Claim) -> None:
    about = f"{plain(claim.stage, MOST_NAME)} {plain(claim.metric, MOST_NAME)}"
    if len(claim.stage) > MOST_NAME or len(claim.metric) > MOST_NAME:
        raise ToolCallRefusal(
            f"{SENT_BACK}: the claim about {about} names nothing; a name has at most {MOST_NAME} characters"
        )
    if not (math.isfinite(claim.value) and math.isfinite(claim.tolerance) and claim.tolerance >= 0):
        number = f"{claim.value:g}, tolerance {claim.tolerance:g}"
        raise ToolCallRefusal(f"{SENT_BACK}: the claim about {about} states no number: {number}")


def _require_fit(answers: dict[str, str], rest: dict[str, Any]) -> None:
    """Refuse what no trail entry can hold, before a phase ends."""
    if long := [name for name in answers if len(name) > MOST_NAME]:
        raise ToolCallRefusal(f"'{plain(long[0], MOST_NAME)}' is not an id of a finding")
    size = len(canonical_bytes(rest | {"answers": answers}))
    if size > MOST_HANDED_IN:
        raise ToolCallRefusal(
            f"this has {size} bytes, at most {MOST_HANDED_IN} can be handed in; notes can hold long texts"
        )


def delegate(work: PhaseWork, arguments: Delegate) -> str:
    """Have all tasks worked on at once and return their results."""
    builder = work.session.builder
    if not isinstance(builder, Delegating):
        raise ToolCallRefusal(f"the builder '{builder.name}' has no helpers; only a builder that asks a model has")
    if work.open_helper is None:
        raise ToolCallRefusal("delegating is not allowed here")
    benches = [work.open_helper(work, number, task) for number, task in enumerate(arguments.tasks, 1)]

    def carry_out(bench: HelperBench) -> str:
        try:
            builder.help(bench)
        except (BudgetExceeded, BuilderUnavailable) as error:
            return plain(error.message, 300)
        return ""

    with ThreadPoolExecutor(max_workers=len(benches)) as threads:
        errors = list(threads.map(carry_out, benches))
    why = (
        error or bench.ended_by or "it ended without handing anything in"
        for bench, error in zip(benches, errors, strict=True)
    )
    parts = [
        bench.work.handed_in or f"nothing was handed in: {reason}" for bench, reason in zip(benches, why, strict=True)
    ]
    return "\n".join(f"task {number}: {part}" for number, part in enumerate(parts, 1))
