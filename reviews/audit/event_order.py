"""What the audit asks of the order of events: was every job granted, every grant opened, every answer carried out?"""

from __future__ import annotations

from collections.abc import Iterator

from reviews.audit.job_inputs import Left
from reviews.evidence.gather import find, is_in_force, registered_spec
from reviews.evidence.resumable_steps import takeover_damage
from reviews.gate.conditions import open_for
from reviews.gate.human_answers import answer_effect, is_design_again, is_without_verdict
from reviews.gate.packet import DESIGN
from reviews.gate.panel import NAME as PANEL
from reviews.trail.envelope import Recorded
from reviews.trail.retractions import JUDGEMENTS, newest_judgement, retracted
from reviews.trail.store import Store
from specs.digests import digest_value
from specs.job_records import JobOrder
from specs.stages.registry import resolve_parameters

REGISTERED_CODE = "registration.code"
"""The check that a person may lift where another version of Peergate judges than the registered one."""
AFTER_THE_END = ("retraction",)
"""What may follow the end of a session: a result can be taken back, nothing can be added to it."""


def sequence_damage(entries: list[Recorded]) -> Iterator[str]:
    """Check that every key appears once, and that nothing follows the end but what may; no body is read."""
    seen: set[str] = set()
    for recorded in entries:
        if recorded.entry.key in seen:
            yield f"entry {recorded.entry.seq}: key '{recorded.entry.key}' appears twice"
        seen.add(recorded.entry.key)
    closing = next((n for n, one in enumerate(entries) if one.entry.kind == "close"), None)
    if closing is not None:
        late = {one.entry.kind for one in entries[closing + 1 :]} - set(AFTER_THE_END)
        if late:
            yield f"entries of kind {', '.join(sorted(late))} follow the 'close' entry"


def order_damage(entries: list[Recorded]) -> Iterator[str]:
    """Check that every launch had a grant, every grant the opening that stood, and nothing ran twice."""
    seen: dict[str, Recorded] = {}
    for recorded in entries:
        yield from _out_of_order(entries, seen, recorded)
        if recorded.entry.kind == "packet" and recorded.body["stage"] == DESIGN:
            yield from _design_again(seen, recorded)
        seen[recorded.entry.key] = recorded


def _out_of_order(entries: list[Recorded], seen: dict[str, Recorded], recorded: Recorded) -> Iterator[str]:
    """Check one entry against those before it."""
    number, kind, body = recorded.entry.seq, recorded.entry.kind, recorded.body
    # Cut only where it is looked at: a cut for every entry of a long trail takes minutes.
    before = entries[:number] if kind in ("grant", "launch") else []
    if kind == "grant":
        judged = newest_judgement(before)
        opens = judged.body.get("opens") if judged else None
        if judged is None or judged.digest != body["decision"]:
            yield f"entry {number} (grant): is not from the judgement that stood then"
        if opens != {"stage": body["stage"], "attempt": body["attempt"]}:
            yield f"entry {number} (grant): no decision before it opens {body['stage']}.{body['attempt']}"
    elif kind == "launch":
        grant = seen.get(f"grant/{body['key']}")
        if grant is None:
            yield f"entry {number} (launch): job {body['key']} had no grant"
        elif any(one.digest == grant.body["decision"] for one in _taken_back(before)):
            yield f"entry {number} (launch): the judgement that granted job {body['key']} had been retracted"
        elif (judged := newest_judgement(before)) is None or judged.digest != grant.body["decision"]:
            yield f"entry {number} (launch): a newer judgement stood than the one that granted job {body['key']}"
    elif kind in ("exit", "lost") and f"launch/{body['key']}" not in seen:
        yield f"entry {number} ({kind}): job {body['key']} was never launched"
    elif kind == "decision" and body["stage"] is not None:
        for needed in ("metrics", "checks", "packet", "verdict"):
            if f"{needed}/{body['stage']}.{body['attempt']}" not in seen:
                yield f"entry {number} (decision): there is no '{needed}' entry before it"


def _design_again(seen: dict[str, Recorded], packet: Recorded) -> Iterator[str]:
    """Check that a design was judged again only where it had no verdict, and a person wanted that."""
    number, attempt = packet.entry.seq, packet.body["attempt"]
    before = f"{DESIGN}.{attempt - 1}"
    answered = seen.get(f"human/decision/{before}")
    if attempt > 1 and not is_without_verdict(seen.get(f"verdict/{before}")):
        yield f"entry {number} (packet): the design had a verdict and was judged again"
    if attempt > 1 and (answered is None or not is_design_again(answered.body)):
        yield f"entry {number} (packet): nobody wanted the design to be judged again"


def launch_damage(entries: list[Recorded], store: Store) -> Iterator[str]:
    """Check that every job was ordered with its grant, and every grant is for what was registered and planned then.

    And that every job read what stages before it had left.
    """
    left = Left()
    for recorded in entries:
        number, body = recorded.entry.seq, recorded.body
        if recorded.entry.kind in ("open", "amendment"):
            resolved, registered = registered_spec(entries[: number + 1], store)
            if resolved.registration() != registered:
                kind = recorded.entry.kind
                yield f"entry {number} ({kind}): the registration is {resolved.registration()}, recorded {registered}"
        elif recorded.entry.kind == "grant":
            yield from _grant_damage(entries, store, recorded)
        elif recorded.entry.kind == "exit":
            left.take(recorded)
        elif recorded.entry.kind == "launch":
            order = JobOrder.model_validate_json(store.get(body["order"]))
            granted = find(entries, f"grant/{body['key']}")
            inputs = {role: artifact.digest for role, artifact in order.inputs.items()}
            if (
                granted is None
                or order.key != body["key"]
                or order.grant.model_dump(mode="json") != granted.body
                or order.grant.content_digest() != body["grant"]
                or digest_value(order.parameters) != order.grant.parameters
                or inputs != order.grant.inputs
                or (order.kind, order.task, order.max_seconds)
                != (order.grant.kind, order.grant.task, order.grant.max_seconds)
            ):
                yield f"entry {number} (launch): job {body['key']} was ordered with something else than was granted"
            else:
                resolved, registered = registered_spec(entries[:number], store)
                if granted.body["registration"] != registered:
                    yield f"entry {number} (launch): job {body['key']} was granted before the registration was amended"
                yield from left.damage(recorded, order, resolved, store)
            yield from takeover_damage(entries, store, recorded, order)


def _grant_damage(entries: list[Recorded], store: Store, grant: Recorded) -> Iterator[str]:
    number, body = grant.entry.seq, grant.body
    resolved, registered = registered_spec(entries[:number], store)
    plan = find(entries, f"plan/{body['stage']}.{body['attempt']}")
    try:
        stage = resolved.spec.stage(body["stage"])
        planned = digest_value(resolve_parameters(stage, plan.body["changes"] if plan else {}).model_dump(mode="json"))
    except (KeyError, ValueError) as error:
        yield f"entry {number} (grant): what was planned is not allowed: {error}"
        return
    if (body["registration"], body["parameters"]) != (registered, planned):
        yield f"entry {number} (grant): is not for the registered spec and the planned parameters"
    for one in open_for(entries[:number], resolved, stage.name, int(grant.entry.time_ns)):
        yield f"entry {number} (grant): condition {one.id} was open"


def code_damage(entries: list[Recorded]) -> Iterator[str]:
    """Check that no stage was approved by other measuring code than was registered, but where a person lifted that.

    Nothing is asked of trails that do not tell which code was registered.
    """
    registered: str | None = None
    lifted: set[str] = set()
    for recorded in entries:
        kind, body = recorded.entry.kind, recorded.body
        if kind == "open":
            registered = body.get("measured_by")
        elif registered is None:
            continue
        elif is_in_force(recorded):
            registered = body["code"]
        elif kind == "override" and body["check"] == REGISTERED_CODE:
            lifted.add(body["stage"])
        elif kind == "decision" and body["stage"] is not None and body["outcome"] == "approve":
            code = body.get("code")
            if code != registered and body["stage"] not in lifted:
                where = f"entry {recorded.entry.seq} (decision)"
                yield f"{where}: approves by the measuring code {code}, registered was {registered}"


def people_damage(entries: list[Recorded], store: Store) -> Iterator[str]:
    """Check what people and reviewers decided.

    Every answer has the effect it must have, every retraction takes a judgement back, every verdict is of somebody who
    is registered to give one: a person's key cannot stand in for a model's.
    """
    by_digest = {one.digest: one for one in entries}
    reviewers: tuple[str, ...] = ()
    for recorded in entries:
        number, kind, body = recorded.entry.seq, recorded.entry.kind, recorded.body
        if kind == "human":
            asked = by_digest.get(body["asked"])
            if asked is None or asked.entry.seq >= number:
                yield f"entry {number} (human): answers a question that was not asked before it"
                continue
            resolved, _ = registered_spec(entries[:number], store)
            effect = answer_effect(resolved, entries[:number], asked, body["answer"])
            told = {name: body.get(name) for name in effect}
            if told != effect:
                yield f"entry {number} (human): does {told}, but '{body['answer']}' does {effect}"
        elif kind == "retraction":
            taken = entries[body["since"]] if 0 <= body["since"] < number else None
            if taken is None or taken.entry.kind not in JUDGEMENTS or taken.entry.seq in retracted(entries[:number]):
                yield f"entry {number} (retraction): entry {body['since']} is no judgement that stood"
        elif kind in ("open", "amendment"):
            reviewers = _reviewers(entries[: number + 1], store)
        elif kind == "verdict" and body["reviewer"] not in reviewers:
            who = ", ".join(reviewers)
            yield f"entry {number} (verdict): '{body['reviewer']}' is no reviewer here, registered are: {who}"
        elif kind == "override" and (body["check"] is None) == (body["condition"] is None):
            yield f"entry {number} (override): lifts {'nothing' if body['check'] is None else 'two things'}"


def _reviewers(entries: list[Recorded], store: Store) -> tuple[str, ...]:
    spec = registered_spec(entries, store)[0].spec
    every = tuple(f"{one.vendor}:{one.model}" if one.asks_a_model else one.vendor for one in spec.reviewers())
    return (*dict.fromkeys(every), *((PANEL,) if spec.panel else ()))


def _taken_back(entries: list[Recorded]) -> list[Recorded]:
    void = retracted(entries)
    return [one for one in entries if one.entry.seq in void]
