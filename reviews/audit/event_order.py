"""The audit of the order of events: was every job granted, every grant opened, every answer carried out?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from reviews.evidence.heldout_screen import is_screened, screen_items
from reviews.evidence.resumable_steps import takeover_damage
from reviews.gate.challenge import witness_order
from reviews.gate.conditions import open_for
from reviews.gate.human_answers import answer_effect, is_without_verdict
from reviews.gate.panel import NAME as PANEL
from reviews.history.history import History
from reviews.history.people import is_design_again, overrides
from reviews.history.recorded_history import is_in_force
from reviews.trail.chain.envelope import RecordedEntry, as_entry_of
from reviews.trail.chain.store import Store
from specs.jobs.job_records import WITNESS, JobOrder
from specs.session.session_spec import ResolvedSpec, SessionSpec
from specs.stages.registry import resolve_parameters
from specs.system.digests import digest_bytes, digest_value
from specs.trail.bodies import AFTER_THE_END
from specs.trail.entry import DESIGN
from specs.trail.gate_bodies import (
    AmendmentEntry,
    ChecksEntry,
    DecisionEntry,
    GrantEntry,
    HumanAnswerEntry,
    MetricsEntry,
    OverrideEntry,
    PacketEntry,
    RetractionEntry,
    VerdictEntry,
)
from specs.trail.session_bodies import (
    ChallengeEntry,
    CloseEntry,
    ExitEntry,
    LaunchEntry,
    LostJobEntry,
    OpenEntry,
    WitnessEntry,
)

REGISTERED_CODE = "registration.code"
"""The check that a person may lift where another version of Peergate judges than the registered one."""
_ORDERED = {
    form.KIND
    for form in (GrantEntry, LaunchEntry, ExitEntry, LostJobEntry, ChallengeEntry, WitnessEntry, DecisionEntry)
}


def sequence_damage(entries: list[RecordedEntry]) -> Iterator[str]:
    """Check that every key appears once and that only :data:`AFTER_THE_END` follows it; no body is read."""
    seen_texts: set[str] = set()
    for recorded in entries:
        if recorded.key in seen_texts:
            yield f"entry {recorded.seq}: key '{recorded.key}' appears twice"
        seen_texts.add(recorded.key)
    kinds = [entry.kind for entry in entries]
    if "close" in kinds and (late := set(kinds[kinds.index("close") + 1 :]) - AFTER_THE_END):
        yield f"entries of kind {', '.join(sorted(late))} follow the 'close' entry"


def order_damage(history: History) -> Iterator[str]:
    """Check that every launch had a grant, every grant the opening in force, and nothing ran twice."""
    for entry in history:
        if entry.kind in _ORDERED:
            yield from _out_of_order(history, entry)
        if entry.kind == PacketEntry.KIND:
            yield from _design_again(history, as_entry_of(entry, PacketEntry))
        if entry.kind == CloseEntry.KIND:
            yield from _overridden(history, as_entry_of(entry, CloseEntry))


def _out_of_order(history: History, entry: RecordedEntry) -> Iterator[str]:
    """Check one entry against those before it."""
    number, body = entry.seq, entry.body
    if isinstance(body, GrantEntry | LaunchEntry):
        yield from _not_opened(history, as_entry_of(entry, GrantEntry, LaunchEntry))
    elif isinstance(body, ExitEntry | LostJobEntry):
        if not _is_before(history, LaunchEntry.key_of(body.key), entry):
            yield f"entry {number} ({entry.kind}): job {body.key} was never launched"
    elif isinstance(body, ChallengeEntry | WitnessEntry):
        # Only ended jobs are witnessed, and no witness speaks unasked.
        job, witnesses = body.key.removesuffix(WITNESS), isinstance(body, WitnessEntry)
        cause = ChallengeEntry.key_of(body.stage, body.attempt) if witnesses else ExitEntry.key_of(job)
        if job == body.key or not _is_before(history, cause, entry):
            yield f"entry {number} ({entry.kind}): no '{cause}' entry before it"
    elif isinstance(body, DecisionEntry) and body.stage is not None:
        for form in (MetricsEntry, ChecksEntry, PacketEntry, VerdictEntry):
            if not _is_before(history, form.key_of(body.stage, body.attempt), entry):
                yield f"entry {number} (decision): no '{form.KIND}' entry before it"


def _not_opened(history: History, entry: RecordedEntry[GrantEntry | LaunchEntry]) -> Iterator[str]:
    """Check that a grant or launch follows from the judgement in force."""
    number, body, before = entry.seq, entry.body, history.before(entry)
    judged = before.newest_judgement
    if isinstance(body, GrantEntry):
        opens = None if judged is None or isinstance(judged.body, RetractionEntry) else judged.body.opens
        if judged is None or judged.digest != body.decision:
            yield f"entry {number} (grant): is not from the judgement in force then"
        if opens is None or (opens.stage, opens.attempt) != (body.stage, body.attempt):
            yield f"entry {number} (grant): no decision before it opens {body.stage}.{body.attempt}"
    else:
        grant = before.find(GrantEntry, body.key)
        opening = before.find_digest(grant.body.decision) if grant else None
        if grant is None:
            yield f"entry {number} (launch): job {body.key} had no grant"
        elif opening is not None and opening.seq in before.retracted:
            yield f"entry {number} (launch): the judgement that granted job {body.key} had been retracted"
        elif judged is None or judged.digest != grant.body.decision:
            yield f"entry {number} (launch): a newer judgement was in force than that which granted job {body.key}"


def _is_before(history: History, key: str, entry: RecordedEntry) -> bool:
    earlier = history.find_key(key)
    return earlier is not None and earlier.seq < entry.seq


def _overridden(history: History, close: RecordedEntry[CloseEntry]) -> Iterator[str]:
    """Check that a session which reached its goal over a gate does not say that it was accepted, nor the reverse."""
    count, decision = len(overrides(history.before(close))), close.body.decision
    if decision == ("approve" if count else "overridden"):
        yield f"entry {close.seq} (close): says '{decision}', and people decided over {count} gates or checks"


def _design_again(history: History, packet: RecordedEntry[PacketEntry]) -> Iterator[str]:
    """Check that a design was judged again only if it had no verdict and a person wanted that."""
    if packet.body.stage != DESIGN or packet.body.attempt <= 1:
        return
    before = history.before(packet).attempt(DESIGN, packet.body.attempt - 1)
    if not is_without_verdict(before.verdict):
        yield f"entry {packet.seq} (packet): the design had a verdict and was judged again"
    if before.answer is None or not is_design_again(before.answer.body):
        yield f"entry {packet.seq} (packet): no person wanted the design to be judged again"


def launch_damage(history: History) -> Iterator[str]:
    """Check that every grant was for what was planned, and every job for its grant and what stages had left."""
    stage_outputs = _StageOutputs()
    for entry in history.of(OpenEntry, AmendmentEntry, GrantEntry, ExitEntry, ChallengeEntry, LaunchEntry):
        number, body = entry.seq, entry.body
        if isinstance(body, OpenEntry | AmendmentEntry):
            now = history[: number + 1]
            if now.resolved.registration() != now.registration:
                where = f"entry {number} ({entry.kind})"
                yield f"{where}: the registration is {now.resolved.registration()}, recorded {now.registration}"
        elif isinstance(body, GrantEntry):
            yield from _grant_damage(history, entry, body)
        elif isinstance(body, ExitEntry):
            stage_outputs.take(body)
        elif isinstance(body, ChallengeEntry):
            yield from _challenge_damage(history, entry, body)
        else:
            order = JobOrder.model_validate_json(history.store.get(body.order))
            granted = history.find(GrantEntry, body.key)
            grant, inputs = order.grant, {role: artifact.digest for role, artifact in order.inputs.items()}
            ordered = (order.key, grant.content_digest(), digest_value(order.parameters), inputs)
            ordered += (order.kind, order.task, order.max_seconds)
            allowed = (body.key, body.grant, grant.parameters, grant.inputs)
            allowed += (grant.kind, grant.task, grant.max_seconds)
            if granted is None or grant.model_dump() != granted.body.model_dump() or ordered != allowed:
                yield f"entry {number} (launch): job {body.key} was ordered with something other than its grant"
            else:
                before = history.before(entry)
                if granted.body.registration != before.registration:
                    yield f"entry {number} (launch): job {body.key} was granted before the registration was amended"
                yield from stage_outputs.damage(entry, order, before.resolved, history.store)
            yield from takeover_damage(history, as_entry_of(entry, LaunchEntry), order)


def _challenge_damage(history: History, entry: RecordedEntry, body: ChallengeEntry) -> Iterator[str]:
    """Check that a witness was asked for what the end of its job draws, under the grant of that job."""
    job_order = witness_order(history.before(entry), body.key.removesuffix(WITNESS))
    ordered = JobOrder.model_validate_json(history.store.get(body.order))
    # How long it may run follows from what the job took, which the ledger says.
    if job_order is None or ordered != job_order.model_copy(update={"max_seconds": ordered.max_seconds}):
        where = f"entry {entry.seq} (challenge)"
        yield f"{where}: witness {body.key} was ordered with something other than the draw at the job's end"


class _StageOutputs:
    """The outputs that stages have left so far, entry by entry of a trail."""

    def __init__(self) -> None:
        self._digests: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    def take(self, ended: ExitEntry) -> None:
        """Add what an ``exit`` entry names."""
        for name, output in ended.outputs.items():
            self._digests[ended.stage, name].add(output.digest)

    def damage(self, launch: RecordedEntry, order: JobOrder, resolved: ResolvedSpec, store: Store) -> Iterator[str]:
        """Return which inputs of a job no stage has left.

        An input counts as it was left; instructions that a model wrote count after screening.
        """
        stages = {stage.name: stage for stage in resolved.spec.stages}
        for role, artifact in order.inputs.items():
            owner, _, output = artifact.name.partition(".")
            if not output or owner not in stages:
                continue
            made = self._digests[owner, output]
            if artifact.digest in made:
                continue
            if is_screened(stages[owner], output) and any(
                (data := screen_items(store, resolved, text)) is not None and digest_bytes(data) == artifact.digest
                for text in sorted(made)
            ):
                continue
            message = f"input '{role}' of job {order.key} is not what '{owner}' left as {output}"
            yield f"entry {launch.seq} (launch): {message}"


def _grant_damage(history: History, entry: RecordedEntry, grant: GrantEntry) -> Iterator[str]:
    before, plan, number = history.before(entry), history.attempt_of(grant).plan, entry.seq
    resolved = before.resolved
    try:
        stage = resolved.spec.stage(grant.stage)
        planned = digest_value(resolve_parameters(stage, plan.body.changes if plan else {}).model_dump(mode="json"))
    except (KeyError, ValueError) as error:
        yield f"entry {number} (grant): the plan is not allowed: {error}"
        return
    if (grant.registration, grant.parameters) != (before.registration, planned):
        yield f"entry {number} (grant): is not for the registered spec and the planned parameters"
    for obligation in open_for(before, resolved, stage.name, entry.time_ns):
        yield f"entry {number} (grant): condition {obligation.id} was open"


def code_damage(history: History) -> Iterator[str]:
    """Check that no stage was approved by unregistered measuring code, unless a person lifted that check."""
    registered = ""
    lifted: set[str | None] = set()
    for entry in history.of(OpenEntry, AmendmentEntry, OverrideEntry, DecisionEntry):
        match body := entry.body:
            case OpenEntry():
                registered = body.measured_by
            case AmendmentEntry():
                registered = body.code if is_in_force(entry) else registered
            case OverrideEntry():
                lifted |= {body.stage} if body.check == REGISTERED_CODE else set()
            case DecisionEntry():
                approves = body.stage is not None and body.outcome == "approve" and body.stage not in lifted
                if approves and body.code != registered:
                    where = f"entry {entry.seq} (decision)"
                    yield f"{where}: approves by the measuring code {body.code}, expected the registered {registered}"


def people_damage(history: History) -> Iterator[str]:
    """Check effects of answers, retractions, overrides, and that every verdict is that of a registered reviewer."""
    reviewers: tuple[str, ...] = ()
    forms = (HumanAnswerEntry, RetractionEntry, OpenEntry, AmendmentEntry, VerdictEntry, OverrideEntry)
    for entry in history.of(*forms):
        number, body = entry.seq, entry.body
        if isinstance(body, HumanAnswerEntry):
            request = history.find_digest(body.question)
            if request is None or request.seq >= number:
                yield f"entry {number} (human): answers a question that was not asked before it"
                continue
            before = history.before(entry)
            effect = answer_effect(before.resolved, before, request, body.answer)
            stated = {"opens": body.opens and body.opens.model_dump(), "waives": list(body.waives)}
            if stated != effect:
                yield f"entry {number} (human): does {stated}, but '{body.answer}' does {effect}"
        elif isinstance(body, RetractionEntry):
            used = history[body.since] if 0 <= body.since < number else None
            judged = used is not None and used.kind in (DecisionEntry.KIND, HumanAnswerEntry.KIND)
            if used is None or not judged or used.seq in history.before(entry).retracted:
                yield f"entry {number} (retraction): entry {body.since} is not in force"
        elif isinstance(body, OpenEntry | AmendmentEntry):
            reviewers = _reviewers(history[: number + 1].resolved.spec)
        elif isinstance(body, VerdictEntry):
            if body.reviewer not in reviewers:
                who = ", ".join(reviewers)
                yield f"entry {number} (verdict): '{body.reviewer}' is not a reviewer here; registered: {who}"
        elif (body.check is None) == (body.condition is None):
            yield f"entry {number} (override): lifts {'nothing' if body.check is None else 'two things'}"


def _reviewers(spec: SessionSpec) -> tuple[str, ...]:
    every = tuple(
        f"{reviewer.vendor}:{reviewer.model}" if reviewer.asks_a_model else reviewer.vendor
        for reviewer in spec.reviewers()
    )
    return (*dict.fromkeys(every), *((PANEL,) if spec.panel else ()))
