"""Tools that leave something: plans, notes, proposals, the wish to launch, the submission."""

from __future__ import annotations

import math

from reviews.claims import look_up
from reviews.collect import gather
from sessions.grounds import open_stage
from sessions.tools.work import Launch, Refused, Submission, Work
from specs.metrics import MetricSet
from specs.stages import resolve_parameters
from specs.tools import AskPerson, LaunchStage, ProposeAmendment, ProposePlan, SubmitStage, WriteNote


def propose_plan(work: Work, arguments: ProposePlan) -> str:
    """Put a plan on record."""
    return _note(work, "plan", arguments.plan)


def write_note(work: Work, arguments: WriteNote) -> str:
    """Keep a note."""
    return _note(work, arguments.kind, arguments.text)


def propose_amendment(work: Work, arguments: ProposeAmendment) -> str:
    """Keep a proposed change of the spec for a person; nothing changes by it."""
    lines = [f"{one.pointer} = {one.value!r}" for one in arguments.changes]
    named = _note(work, "amendment", "\n".join([*lines, "", arguments.reason]))
    work.session.display.say(f"the builder proposes an amendment: {'; '.join(lines)}")
    return f"{named}; a person adopts it with `peergate amend` or does not. Until then the spec stays as it is."


def _note(work: Work, what: str, text: str) -> str:
    session = work.session
    key = f"note/{work.call.partition('/')[2]}"
    body = {"stage": work.stage.name, "attempt": work.attempt, "what": what}
    session.trail.append("note", key, body | {"text": session.store.put(text.encode("utf-8", "replace"))})
    number = next(place for place, one in enumerate(session.trail.iterate("note"), 1) if one.entry.key == key)
    return f"kept as note.{number}"


def launch_stage(work: Work, arguments: LaunchStage) -> str:
    """End the planning with the wish to launch; the grant is minted and the job started next."""
    opening = open_stage(work.session)
    if arguments.stage != opening.stage:
        raise Refused(
            f"stage '{arguments.stage}' has no grant: only '{opening.stage}' (attempt {opening.attempt}) is open, and "
            "what comes after it opens when its gate has decided"
        )
    try:
        resolve_parameters(work.stage, dict(arguments.changes))
    except ValueError as error:
        raise Refused(str(error).splitlines()[0]) from error
    work.launch = Launch(arguments.reason, dict(arguments.changes), dict(arguments.answers))
    return f"{work.key} is launched with {dict(arguments.changes) or 'the parameters of the spec'}"


def ask_person(work: Work, arguments: AskPerson) -> str:
    """End the planning: a person decides how it goes on."""
    work.launch = Launch(arguments.reason, escalate=True)
    return "a person is asked"


def submit_stage(work: Work, arguments: SubmitStage) -> str:
    """Hand the attempt in, unless one of the claims is contradicted by what was measured."""
    session = work.session
    if bad := [one.metric for one in arguments.claims if not (math.isfinite(one.value) and one.tolerance >= 0)]:
        raise Refused(f"claims about {', '.join(bad)} state no number")
    evidence = gather(session.run, list(session.trail.iterate()), session.store, work.stage.name, work.attempt)
    measured = session.trail.find(f"metrics/{work.stage.name}.{work.attempt}")
    digest = measured.body["metrics"] if measured else None
    here = {work.stage.name: MetricSet.model_validate(session.store.get_value(digest))} if digest else {}
    results = look_up(arguments.claims, {**evidence.earlier, **here})
    told = [f"{one.status}: {one.claim.stage} {one.claim.metric} = {one.claim.value:g}" for one in results]
    if any(one.status == "contradicted" for one in results):
        raise Refused(
            "\n".join([*told, "nothing was submitted: read_metrics gives the measured values; correct or drop a claim"])
        )
    work.submission = Submission(arguments.claims, dict(arguments.answers))
    return "\n".join([*told, f"{work.key} is submitted; its gate decides next"])
