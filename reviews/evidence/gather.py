"""Makes :class:`reviews.evidence.evidence.Evidence` from trail and store, for the gate and for the audit.

Only entries up to the end of the attempt's job count, and what the builder handed in after it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from reviews.evidence.defect_waves import due_at
from reviews.evidence.evidence import ArmEvidence, Evidence, WitnessEvidence
from reviews.evidence.weight_lineage import lineages
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.retractions import find_retracted_judgements, standing
from specs.jobs.grant_and_claim import Claim, Grant
from specs.jobs.job_records import Artifact, ExitRecord, HeldoutUse, JobOrder, Manifest, ObservedRuntime
from specs.session.design import Design, ResolvedDesign
from specs.stages.base.artifacts import Example, Item, Preference
from specs.stages.base.kind import StageKind
from specs.stages.base.metric import MetricSet
from specs.stages.registry import kind_of
from specs.system.errors import AuditDamage, EvidenceMissing
from specs.system.text import plain
from specs.trail.tool_arguments import CANCEL_TOOL

LOG_TAIL_BYTES = 16_384
MOST_WHY = 500
"""Characters of the reason why a builder ended its job."""
NOT_STARTED = "not started"
"""The outcome of an attempt that the budget did not reach for."""


def find(entries: Sequence[RecordedEntry], key: str) -> RecordedEntry | None:
    """Return the entry with this key, if there is one."""
    return next((entry for entry in entries if entry.key == key), None)


def registering_entry(entries: Sequence[RecordedEntry]) -> RecordedEntry:
    """Return the entry that says what is registered at the end of these: ``open``, or the newest approved amendment.

    Raises:
        EvidenceMissing: the trail has no ``open`` entry.
    """
    newest = next((entry for entry in reversed(entries) if is_in_force(entry)), None)
    return newest or _opening(entries)


def registered_code(entries: Sequence[RecordedEntry]) -> str:
    """Return the digest of the measuring code that is registered at the end of these entries.

    Raises:
        EvidenceMissing: the trail has no ``open`` entry.
    """
    entry = registering_entry(entries)
    return entry.raw["measured_by" if entry.kind == "open" else "code"]


def _opening(entries: Sequence[RecordedEntry]) -> RecordedEntry:
    opened = find(entries, "open")
    if opened is None:
        raise EvidenceMissing("the trail has no 'open' entry: nothing was registered")
    return opened


def is_in_force(entry: RecordedEntry) -> bool:
    """Return whether an entry is an amendment that a review or a person over it approved."""
    return entry.kind == "amendment" and (entry.raw["outcome"] == "approve" or entry.raw["overridden"])


def load_items(store: Store, digest: str) -> tuple[Item, ...]:
    """Return the items of a data file kept in the store when the session opened."""
    return tuple(Item.model_validate_json(line) for line in store.get(digest).splitlines() if line.strip())


def load_data(store: Store, resolved: ResolvedDesign, name: str) -> tuple[Item, ...]:
    """Return the rows of a registered data file as items: of examples and pairs, what they ask."""
    digest, current = resolved.data_digests[name], resolved.spec.data[name].held if name in resolved.spec.data else None
    if current not in ("examples", "preferences"):
        return load_items(store, digest)
    lines = [line for line in store.get(digest).splitlines() if line.strip()]
    return tuple(as_item(line, current, number) for number, line in enumerate(lines, 1))


_TAUGHT = ("completion", "chosen", "rejected")


def load_texts(store: Store, resolved: ResolvedDesign) -> tuple[tuple[str, str], ...]:
    """Return what registered examples and pairs show a model as answers, and the turns before, each with a name."""
    pairs: list[tuple[str, str]] = []
    for name, named in sorted(resolved.spec.data.items()):
        if named.held in ("examples", "preferences"):
            lines = store.get(resolved.data_digests[name]).splitlines()
            for number, line in enumerate((line for line in lines if line.strip()), 1):
                row = json.loads(line)
                pairs += [(f"{name}:{number}", row[column]) for column in _TAUGHT if column in row]
                pairs += [(f"{name}:{number}", turn["content"]) for turn in row.get("before", ())]
    return tuple(pairs)


def as_item(line: bytes, text: str, number: int) -> Item:
    """Return what a registered example or pair asks."""
    if text == "examples":
        example = Example.model_validate_json(line)
        return Item(
            id=example.item,
            group=example.group,
            kind=example.kind,
            prompt=example.prompt,
            constraint={},
            before=example.before,
        )
    pair = Preference.model_validate_json(line)
    return Item(
        id=str(number), group=pair.group, kind=pair.source, prompt=pair.prompt, constraint={}, before=pair.before
    )


def accepted_attempt(entries: Sequence[RecordedEntry], stage: str) -> int | None:
    """Return the attempt of a stage that opened the next one (by the gate, or by a person over it)."""
    attempt = None
    for recorded in standing(entries):
        body = recorded.raw
        decided = recorded.kind == "decision" and body.get("outcome") == "approve"
        overridden = recorded.kind == "human" and body.get("answer") == "approve"
        if (decided or overridden) and body.get("stage") == stage:
            attempt = body["attempt"]
    return attempt


def entries_of_attempt(entries: Sequence[RecordedEntry], stage: str, attempt: int) -> Sequence[RecordedEntry]:
    """Return the entries up to the end of the attempt's job; all of them while it runs."""
    key = f"{entries[0].session}.{stage}.{attempt}"
    ended = find(entries, f"exit/{key}") or find(entries, f"lost/{key}")
    return entries[: ended.seq + 1] if ended else entries


def collect_evidence(
    run: Path,
    entries: Sequence[RecordedEntry],
    store: Store,
    stage_name: str,
    attempt: int,
    resolved: ResolvedDesign,
    registered: str,
) -> Evidence:
    """Collect the evidence of one attempt under a registered spec; what is absent stays absent.

    Raises:
        AuditDamage: something in the store has other bytes than its name.
    """
    key = f"{entries[0].session}.{stage_name}.{attempt}"
    ended = find(entries, f"exit/{key}") or find(entries, f"lost/{key}")
    seen_recorded_entries = entries_of_attempt(entries, stage_name, attempt)
    stage = resolved.spec.stage(stage_name)
    granted = find(seen_recorded_entries, f"grant/{key}")
    order = _order(find(seen_recorded_entries, f"launch/{key}"), store)
    analysis = resolved.spec.analysis
    baseline = _arm(run, seen_recorded_entries, store, analysis.baseline) if stage_name == analysis.treatment else None
    baseline = baseline or ArmEvidence(None, None, {})
    plan = resolved.spec.evaluation
    compared = [value.before for value in ((*plan.drift, *plan.paired) if plan else ()) if value.after == stage_name]
    if stage_name == analysis.treatment:
        compared += [name for control in analysis.controls for name in (control.before, control.after)]
    if stage.pilot is not None:
        compared.append(stage.pilot)
    heldout_input = order.inputs.get("items") if order else None
    heldout_digest = resolved.data_digests["heldout"]
    return Evidence(
        resolved=resolved,
        registered=registered,
        measured_by=registered_code(seen_recorded_entries),
        measured_files=_files_of(registered_code(seen_recorded_entries), store),
        stage=stage,
        attempt=attempt,
        grant=Grant.model_validate(granted.raw) if granted else None,
        parameters=dict(order.parameters) if order else {},
        heldout=load_items(store, heldout_digest),
        heldout_digest=heldout_input.digest if heldout_input else heldout_digest,
        data={name: load_data(store, resolved, name) for name in resolved.data_digests if name != "heldout"},
        observed=_read_observation(ended),
        launched=_read_launch_time(find(seen_recorded_entries, f"launch/{key}")),
        ended=_read_entry_time(ended),
        inputs={role: _input(run, store, artifact) for role, artifact in order.inputs.items()} if order else {},
        ordered_code=order.code if order else None,
        code=_code(order, store),
        lineages=lineages(seen_recorded_entries, store, resolved.spec, order) if order else {},
        attempts=_attempts(seen_recorded_entries, stage_name),
        evaluations_of_heldout=evaluations(seen_recorded_entries, resolved),
        heldout_elsewhere=_used(ended),
        required_families=due_at(seen_recorded_entries, store, stage_name),
        earlier=_earlier(seen_recorded_entries, store, resolved),
        arms={name: arm for name in compared if (arm := _arm(run, seen_recorded_entries, store, name)) is not None},
        withdrawn=_withdrawn(seen_recorded_entries, store, stage_name, attempt),
        **_left_behind(run, ended, store),
        **_read_submission(entries, stage_name, attempt),
        witness=_witness(entries, store, stage_name, attempt),
        baseline_rows=baseline.rows,
        baseline_manifest=baseline.manifest,
        baseline_parameters=baseline.parameters,
    )


def _files_of(code: str | None, store: Store) -> dict[str, str]:
    """Return the files of the registered measuring code, as far as they are kept: they only name what differs."""
    return store.get_value(code) if code is not None and store.path(code).is_file() else {}


def _withdrawn(entries: Sequence[RecordedEntry], store: Store, stage: str, attempt: int) -> str:
    """Return why the builder had the attempt's job ended, by its own call; empty if it did not, or was refused."""
    if (ended := find(entries, f"exit/{entries[0].session}.{stage}.{attempt}")) is None:
        return ""
    if store.get_value(ended.raw["exit"])["reason"] != "cancelled":
        return ""
    refused = {entry.raw["call"] for entry in entries if entry.kind == "result" and entry.raw["is_error"]}
    calls = [entry for entry in entries if entry.kind == "call" and entry.key not in refused]
    mine = [
        recorded_entry
        for recorded_entry in calls
        if (recorded_entry.raw["stage"], recorded_entry.raw["attempt"]) == (stage, attempt)
    ]
    recorded_entry = next(
        (recorded_entry for recorded_entry in mine if recorded_entry.raw["tool"] == CANCEL_TOOL), None
    )
    return plain(str(store.get_value(recorded_entry.raw["arguments"])["reason"]), MOST_WHY) if recorded_entry else ""


def _read_submission(entries: Sequence[RecordedEntry], stage: str, attempt: int) -> dict[str, Any]:
    """Return what the builder claims of the attempt. It may only say so once: the key is the attempt's."""
    submitted = find(entries, f"submit/{stage}.{attempt}")
    if submitted is None:
        return {}
    claims = tuple(Claim.model_validate(claim) for claim in submitted.raw["claims"])
    return {"claims": claims, "sent_back": submitted.raw["sent_back"]}


def _witness(entries: Sequence[RecordedEntry], store: Store, stage: str, attempt: int) -> WitnessEvidence | None:
    recorded_entry, message = (find(entries, f"{kind}/{stage}.{attempt}") for kind in ("challenge", "witness"))
    challenge = order.challenge if (order := _order(recorded_entry, store)) else None
    if challenge is None:
        return None
    if message is None:
        return WitnessEvidence(challenge, None, None, "it has not ended")
    body = message.raw
    for digest in (body["rows"], body["manifest"]):
        if digest:
            store.get(digest)
    manifest = Manifest.model_validate_json(store.get(body["manifest"])) if body["manifest"] else None
    return WitnessEvidence(challenge, store.path(body["rows"]) if body["rows"] else None, manifest, body["why"])


def _input(run: Path, store: Store, artifact: Artifact) -> Path:
    """Return where an input lies: in the store, checked, if it is kept there (everything but weights is)."""
    path = store.path(artifact.digest)
    if not path.is_file():
        return run / artifact.path
    store.get(artifact.digest)
    return path


def _order(launch: RecordedEntry | None, store: Store) -> JobOrder | None:
    if launch is None:
        return None
    try:
        return JobOrder.model_validate_json(store.get(launch.raw["order"]))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        message = f"'{'.'.join(map(str, first['loc']))}': {first['msg']}"
        raise AuditDamage(
            f"this version of Peergate cannot read the order of the job on record: {message}",
            where=launch.key,
            hint="use the version that recorded it; `peergate audit verify` still checks signatures, tree and digests",
        ) from error


def _code(order: JobOrder | None, store: Store) -> str:
    digest = order.parameters.get("code") if order else None
    return store.get(digest).decode("utf-8", "replace") if isinstance(digest, str) else ""


def _left_behind(run: Path, ended: RecordedEntry | None, store: Store) -> dict[str, Any]:
    """Return what the ``exit`` entry names of a job, by the names of evidence: manifest, outputs, log tail, ...."""
    if ended is None or ended.kind == "lost":
        return {}
    body = ended.raw
    paths: dict[str, Path] = {}
    for name, artifact in body["outputs"].items():
        if artifact["stored"]:
            store.get(artifact["digest"])
            paths[name] = store.path(artifact["digest"])
        else:
            paths[name] = run / artifact["path"]
    tail = store.get(body["log"])[-LOG_TAIL_BYTES:].decode("utf-8", "replace") if body["log"] else ""
    return {
        "manifest": Manifest.model_validate_json(store.get(body["manifest"])) if body["manifest"] else None,
        "exit": ExitRecord.model_validate_json(store.get(body["exit"])),
        "outputs": paths,
        "output_digests": {name: artifact["digest"] for name, artifact in body["outputs"].items()},
        "log_tail": plain(tail, LOG_TAIL_BYTES),
        "log_left": body.get("log_left", body["log"]),
        "beside": tuple(body.get("beside", ())),
    }


def _read_observation(ended: RecordedEntry | None) -> ObservedRuntime | None:
    statement = ended.raw.get("observed") if ended else None
    return ObservedRuntime.model_validate(statement) if statement else None


def _used(ended: RecordedEntry | None) -> HeldoutUse | None:
    statement = ended.raw.get("heldout") if ended else None
    return HeldoutUse.model_validate(statement) if statement else None


def _read_launch_time(launch: RecordedEntry | None) -> float | None:
    """Return when a job was launched, by the clock that it reads where that is known: entries never go back in time."""
    clock = launch.raw.get("clock") if launch else None
    return float(clock["time"]) if clock else _read_entry_time(launch)


def _read_entry_time(entry: RecordedEntry | None) -> float | None:
    return entry.time_ns / 1e9 if entry else None


def _arm(run: Path, entries: Sequence[RecordedEntry], store: Store, stage: str) -> ArmEvidence | None:
    """Return the accepted attempt of a stage, or None."""
    attempt = accepted_attempt(entries, stage)
    if attempt is None:
        return None
    key = f"{entries[0].session}.{stage}.{attempt}"
    ended = find(entries, f"exit/{key}")
    remaining = _left_behind(run, ended, store)
    order = _order(find(entries, f"launch/{key}"), store)
    return ArmEvidence(
        remaining.get("outputs", {}).get("rows"), remaining.get("manifest"), dict(order.parameters) if order else {}
    )


def _attempts(entries: Sequence[RecordedEntry], stage: str) -> tuple[dict[str, Any], ...]:
    """Return what was tried in this stage and how each earlier attempt ended; nothing is left out."""
    results: dict[int, dict[str, Any]] = {}
    void = find_retracted_judgements(entries)
    for recorded in entries:
        body = recorded.raw
        if body.get("stage") != stage:
            continue
        kind = recorded.kind
        if kind == "plan":
            results[body["attempt"]] = {"attempt": body["attempt"], "changes": body["changes"], "outcome": None}
        elif kind == "budget" and body["at"] == "launch" and body["attempt"] in results:
            results[body["attempt"]]["outcome"] = NOT_STARTED
        elif kind == "human" and results.get(body["attempt"], {}).get("outcome") == NOT_STARTED:
            continue
        elif kind in ("decision", "human") and body["attempt"] in results:
            outcome = body.get("outcome") or body.get("answer")
            results[body["attempt"]]["outcome"] = f"{outcome}, retracted" if recorded.seq in void else outcome
    return tuple(results.values())


def evaluations(entries: Sequence[RecordedEntry], resolved: ResolvedDesign) -> int:
    """Count the jobs of ``evaluate`` stages, and of stages of the kind that is compared."""
    names = evaluating(resolved.spec)
    return sum(entry.kind == "launch" and entry.raw["stage"] in names for entry in entries)


def evaluating(spec: Design) -> frozenset[str]:
    """Return the stages that answer the task's items, and those of the kind that is compared."""
    compared = spec.stage(spec.analysis.treatment).kind

    def counts(kind: StageKind) -> bool:
        return kind.name == compared or (kind.arm is not None and not kind.arm.conversations)

    return frozenset(stage.name for stage in spec.stages if counts(kind_of(stage)))


def _earlier(entries: Sequence[RecordedEntry], store: Store, resolved: ResolvedDesign) -> dict[str, MetricSet]:
    metric_sets: dict[str, MetricSet] = {}
    for stage in resolved.spec.stages:
        attempt = accepted_attempt(entries, stage.name)
        measured = find(entries, f"metrics/{stage.name}.{attempt}") if attempt else None
        if measured is not None and measured.raw["metrics"]:
            metric_sets[stage.name] = MetricSet.model_validate(json.loads(store.get(measured.raw["metrics"])))
    return metric_sets
