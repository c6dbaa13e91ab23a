"""The audit of the order of events: was every job granted, every grant opened, every answer carried out?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from reviews.evidence.gather import find, is_in_force
from reviews.evidence.heldout_screen import is_screened, screen_items
from reviews.evidence.registered_evidence import registered_spec
from reviews.evidence.resumable_steps import takeover_damage
from reviews.gate.challenge import witness_order
from reviews.gate.conditions import open_for
from reviews.gate.human_answers import answer_effect, is_design_again, is_without_verdict, overrides
from reviews.gate.panel import NAME as PANEL
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.retractions import JUDGEMENTS, find_retracted_judgements, newest_judgement
from specs.jobs.job_records import WITNESS, JobOrder
from specs.session.session_spec import ResolvedSpec
from specs.stages.registry import resolve_parameters
from specs.system.digests import digest_bytes, digest_value
from specs.trail.entry import DESIGN

REGISTERED_CODE = "registration.code"
"""The check that a person may lift where another version of Peergate judges than the registered one."""
AFTER_THE_END = frozenset({"retraction", "pruned", "replication", "replicated"})
"""Kinds of entries that people may add to the trail of a closed session."""


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


def order_damage(entries: list[RecordedEntry]) -> Iterator[str]:
    """Check that every launch had a grant, every grant the opening in force, and nothing ran twice."""
    seen_recorded_entries: dict[str, RecordedEntry] = {}
    for recorded in entries:
        yield from _out_of_order(entries, seen_recorded_entries, recorded)
        if recorded.kind == "packet" and recorded.raw["stage"] == DESIGN:
            yield from _design_again(seen_recorded_entries, recorded)
        if recorded.kind == "close":
            yield from _overridden(entries[: recorded.seq], recorded)
        seen_recorded_entries[recorded.key] = recorded


def _out_of_order(
    entries: list[RecordedEntry], seen_recorded_entries: dict[str, RecordedEntry], recorded: RecordedEntry
) -> Iterator[str]:
    """Check one entry against those before it."""
    number, kind, body = recorded.seq, recorded.kind, recorded.raw
    # Copied only where it is needed: a copy for every entry of a long trail takes minutes.
    before = entries[:number] if kind in ("grant", "launch") else []
    if kind == "grant":
        judged = newest_judgement(before)
        opens = judged.raw.get("opens") if judged else None
        if judged is None or judged.digest != body["decision"]:
            yield f"entry {number} (grant): is not from the judgement in force then"
        if opens != {"stage": body["stage"], "attempt": body["attempt"]}:
            yield f"entry {number} (grant): no decision before it opens {body['stage']}.{body['attempt']}"
    elif kind == "launch":
        grant = seen_recorded_entries.get(f"grant/{body['key']}")
        if grant is None:
            yield f"entry {number} (launch): job {body['key']} had no grant"
        elif any(
            recorded_entry.digest == grant.raw["decision"] and recorded_entry.seq in find_retracted_judgements(before)
            for recorded_entry in before
        ):
            yield f"entry {number} (launch): the judgement that granted job {body['key']} had been retracted"
        elif (judged := newest_judgement(before)) is None or judged.digest != grant.raw["decision"]:
            yield f"entry {number} (launch): a newer judgement was in force than that which granted job {body['key']}"
    elif kind in ("exit", "lost", "challenge", "witness"):
        yield from _without_cause(seen_recorded_entries, recorded)
    elif kind == "decision" and body["stage"] is not None:
        for needed in ("metrics", "checks", "packet", "verdict"):
            if f"{needed}/{body['stage']}.{body['attempt']}" not in seen_recorded_entries:
                yield f"entry {number} (decision): there is no '{needed}' entry before it"


def _overridden(before: list[RecordedEntry], close: RecordedEntry) -> Iterator[str]:
    """Check that a session which reached its goal over a gate does not say that it was accepted, nor the reverse."""
    count, decision = len(overrides(before)), close.raw["decision"]
    if decision == ("approve" if count else "overridden"):
        yield f"entry {close.seq} (close): says '{decision}', and people decided over {count} gates or checks"


def _without_cause(seen_recorded_entries: dict[str, RecordedEntry], recorded: RecordedEntry) -> Iterator[str]:
    """Check that only launched jobs ended, only ended ones were witnessed, and no witness spoke unasked."""
    number, kind, body = recorded.seq, recorded.kind, recorded.raw
    if kind in ("exit", "lost"):
        if f"launch/{body['key']}" not in seen_recorded_entries:
            yield f"entry {number} ({kind}): job {body['key']} was never launched"
        return
    job, attempt = body["key"].removesuffix(WITNESS), f"{body['stage']}.{body['attempt']}"
    before = f"exit/{job}" if kind == "challenge" else f"challenge/{attempt}"
    if before not in seen_recorded_entries or job == body["key"]:
        yield f"entry {number} ({kind}): there is no '{before}' entry before it"


def _design_again(seen_recorded_entries: dict[str, RecordedEntry], packet: RecordedEntry) -> Iterator[str]:
    """Check that a design was judged again only if it had no verdict and a person wanted that."""
    number, attempt = packet.seq, packet.raw["attempt"]
    before = f"{DESIGN}.{attempt - 1}"
    answered = seen_recorded_entries.get(f"human/decision/{before}")
    if attempt > 1 and not is_without_verdict(seen_recorded_entries.get(f"verdict/{before}")):
        yield f"entry {number} (packet): the design had a verdict and was judged again"
    if attempt > 1 and (answered is None or not is_design_again(answered.raw)):
        yield f"entry {number} (packet): no person wanted the design to be judged again"


def launch_damage(entries: list[RecordedEntry], store: Store) -> Iterator[str]:
    """Check that every grant was for what was planned, and every job for its grant and what stages had left."""
    stage_outputs = _StageOutputs()
    for recorded in entries:
        number, body = recorded.seq, recorded.raw
        if recorded.kind in ("open", "amendment"):
            resolved, registered = registered_spec(entries[: number + 1], store)
            if resolved.registration() != registered:
                kind = recorded.kind
                yield f"entry {number} ({kind}): the registration is {resolved.registration()}, recorded {registered}"
        elif recorded.kind == "grant":
            yield from _grant_damage(entries, store, recorded)
        elif recorded.kind == "exit":
            stage_outputs.take(recorded)
        elif recorded.kind == "challenge":
            yield from _challenge_damage(entries, store, recorded)
        elif recorded.kind == "launch":
            order = JobOrder.model_validate_json(store.get(body["order"]))
            granted = find(entries, f"grant/{body['key']}")
            grant, inputs = order.grant, {role: artifact.digest for role, artifact in order.inputs.items()}
            ordered = (order.key, grant.content_digest(), digest_value(order.parameters), inputs)
            ordered += (order.kind, order.task, order.max_seconds)
            allowed = (body["key"], body["grant"], grant.parameters, grant.inputs)
            allowed += (grant.kind, grant.task, grant.max_seconds)
            if granted is None or grant.model_dump(mode="json") != granted.raw or ordered != allowed:
                yield f"entry {number} (launch): job {body['key']} was ordered with something else than was granted"
            else:
                resolved, registered = registered_spec(entries[:number], store)
                if granted.raw["registration"] != registered:
                    yield f"entry {number} (launch): job {body['key']} was granted before the registration was amended"
                yield from stage_outputs.damage(recorded, order, resolved, store)
            yield from takeover_damage(entries, store, recorded, order)


def _challenge_damage(entries: list[RecordedEntry], store: Store, recorded: RecordedEntry) -> Iterator[str]:
    """Check that a witness was asked for what the end of its job draws, under the grant of that job."""
    number, key = recorded.seq, recorded.raw["key"]
    job_order = witness_order(entries[:number], store, key.removesuffix(WITNESS))
    ordered = JobOrder.model_validate_json(store.get(recorded.raw["order"]))
    # How long it may run follows from what the job took, which the ledger says.
    if job_order is None or ordered != job_order.model_copy(update={"max_seconds": ordered.max_seconds}):
        yield f"entry {number} (challenge): witness {key} was ordered with something else than the job's end draws"


class _StageOutputs:
    """The outputs that stages have left so far, entry by entry of a trail."""

    def __init__(self) -> None:
        self._digests: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    def take(self, ended: RecordedEntry) -> None:
        """Add what an ``exit`` entry names."""
        for output, artifact in ended.raw["outputs"].items():
            self._digests[ended.raw["stage"], output].add(artifact["digest"])

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


def _grant_damage(entries: list[RecordedEntry], store: Store, grant: RecordedEntry) -> Iterator[str]:
    number, body = grant.seq, grant.raw
    resolved, registered = registered_spec(entries[:number], store)
    plan = find(entries, f"plan/{body['stage']}.{body['attempt']}")
    try:
        stage = resolved.spec.stage(body["stage"])
        planned = digest_value(resolve_parameters(stage, plan.raw["changes"] if plan else {}).model_dump(mode="json"))
    except (KeyError, ValueError) as error:
        yield f"entry {number} (grant): what was planned is not allowed: {error}"
        return
    if (body["registration"], body["parameters"]) != (registered, planned):
        yield f"entry {number} (grant): is not for the registered spec and the planned parameters"
    for obligation in open_for(entries[:number], resolved, stage.name, grant.time_ns):
        yield f"entry {number} (grant): condition {obligation.id} was open"


def code_damage(entries: list[RecordedEntry]) -> Iterator[str]:
    """Check that no stage was approved by unregistered measuring code, unless a person lifted that check."""
    registered = ""
    lifted: set[str] = set()
    for recorded in entries:
        kind, body = recorded.kind, recorded.raw
        if kind == "open":
            registered = body["measured_by"]
        elif is_in_force(recorded):
            registered = body["code"]
        elif kind == "override" and body["check"] == REGISTERED_CODE:
            lifted.add(body["stage"])
        elif kind == "decision" and body["stage"] is not None and body["outcome"] == "approve":
            code = body["code"]
            if code != registered and body["stage"] not in lifted:
                where = f"entry {recorded.seq} (decision)"
                yield f"{where}: approves by the measuring code {code}, registered was {registered}"


def people_damage(entries: list[RecordedEntry], store: Store) -> Iterator[str]:
    """Check effects of answers, retractions, overrides, and that every verdict is that of a registered reviewer."""
    by_digest = {entry.digest: entry for entry in entries}
    reviewers: tuple[str, ...] = ()
    for recorded in entries:
        number, kind, body = recorded.seq, recorded.kind, recorded.raw
        if kind == "human":
            recorded_entry = by_digest.get(body["asked"])
            if recorded_entry is None or recorded_entry.seq >= number:
                yield f"entry {number} (human): answers a question that was not asked before it"
                continue
            before = entries[:number]
            effect = answer_effect(registered_spec(before, store)[0], before, recorded_entry, body["answer"])
            stated = {name: body.get(name) for name in effect}
            if stated != effect:
                yield f"entry {number} (human): does {stated}, but '{body['answer']}' does {effect}"
        elif kind == "retraction":
            used = entries[body["since"]] if 0 <= body["since"] < number else None
            if used is None or used.kind not in JUDGEMENTS or used.seq in find_retracted_judgements(entries[:number]):
                yield f"entry {number} (retraction): entry {body['since']} is not a judgement in force"
        elif kind in ("open", "amendment"):
            reviewers = _reviewers(entries[: number + 1], store)
        elif kind == "verdict" and body["reviewer"] not in reviewers:
            who = ", ".join(reviewers)
            yield f"entry {number} (verdict): '{body['reviewer']}' is not a reviewer here, registered are: {who}"
        elif kind == "override" and (body["check"] is None) == (body["condition"] is None):
            yield f"entry {number} (override): lifts {'nothing' if body['check'] is None else 'two things'}"


def _reviewers(entries: list[RecordedEntry], store: Store) -> tuple[str, ...]:
    spec = registered_spec(entries, store)[0].spec
    every = tuple(
        f"{reviewer.vendor}:{reviewer.model}" if reviewer.asks_a_model else reviewer.vendor
        for reviewer in spec.reviewers()
    )
    return (*dict.fromkeys(every), *((PANEL,) if spec.panel else ()))
