"""Makes :class:`reviews.evidence.evidence.Evidence` from trail and store, for the gate and for the audit.

Only entries up to the end of the attempt's job count, and what the builder handed in after it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reviews.evidence.defect_waves import due_at
from reviews.evidence.evidence import ArmEvidence, Evidence, WitnessEvidence
from reviews.evidence.weight_lineage import lineages, measured_starts
from reviews.history.attempt import Attempt, read_order
from reviews.history.recorded_history import RecordedHistory
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from specs.jobs.job_records import Artifact, JobOrder, Manifest
from specs.session.design import Design, ResolvedDesign
from specs.stages.base.artifacts import Example, Item, Preference
from specs.stages.base.kind import StageKind
from specs.stages.base.metric import MetricSet
from specs.stages.registry import kind_of
from specs.system.text import plain
from specs.trail.gate_bodies import DecisionEntry, HumanAnswerEntry, PlanEntry, ToolCallEntry, ToolResultEntry
from specs.trail.session_bodies import BudgetEntry, LaunchEntry
from specs.trail.tool_arguments import CANCEL_TOOL

LOG_TAIL_BYTES = 16_384
MOST_WHY = 500
"""Characters of the reason why a builder ended its job."""
NOT_STARTED = "not started"
"""The outcome of an attempt that the budget did not reach for."""


def load_items(store: Store, digest: str) -> tuple[Item, ...]:
    """Return the items of a data file kept in the store when the session opened."""
    return store.read(digest, _read_items)


def _read_items(data: bytes) -> tuple[Item, ...]:
    return tuple(Item.model_validate_json(line) for line in data.splitlines() if line.strip())


def load_data(store: Store, resolved: ResolvedDesign, name: str) -> tuple[Item, ...]:
    """Return the rows of a registered data file as items: of examples and pairs, what they ask."""
    digest, current = (
        resolved.data_digests[name],
        resolved.spec.data[name].row_kind if name in resolved.spec.data else None,
    )
    if current not in ("examples", "preferences"):
        return load_items(store, digest)
    lines = [line for line in store.get(digest).splitlines() if line.strip()]
    return tuple(as_item(line, current, number) for number, line in enumerate(lines, 1))


def load_brought(store: Store, resolved: ResolvedDesign) -> dict[str, tuple[Example | Preference, ...]]:
    """Return the registered examples and pairs of each data file that holds some."""
    models: dict[str, type[Example | Preference]] = {"examples": Example, "preferences": Preference}
    return {
        name: tuple(
            models[data_file.row_kind].model_validate_json(line)
            for line in store.get(resolved.data_digests[name]).splitlines()
            if line.strip()
        )
        for name, data_file in sorted(resolved.spec.data.items())
        if data_file.row_kind in models
    }


CONSTITUTION = "the constitution"


def load_constitution_text(store: Store, resolved: ResolvedDesign) -> str:
    """Return the text of the registered constitution; empty if there is none, or it was not kept."""
    digest = resolved.constitution_digest
    return store.get(digest).decode("utf-8", "replace") if digest is not None and store.path(digest).is_file() else ""


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


def gather(run: Path, history: RecordedHistory, stage_name: str, attempt: int) -> Evidence:
    """Collect the evidence of one attempt, under the spec that was registered when its job ended.

    What is absent stays absent.

    Raises:
        AuditDamage: something in the store has other bytes than its name.
    """
    every, store = history.attempt(stage_name, attempt), history.store
    until_end = history[: every.end.seq + 1] if every.end else history
    recorded, resolved = until_end.attempt(stage_name, attempt), until_end.resolved
    order = recorded.order
    stage = resolved.spec.stage(stage_name)
    analysis = resolved.spec.analysis
    baseline = _arm(run, until_end, analysis.baseline) if stage_name == analysis.treatment else None
    baseline = baseline or ArmEvidence(None, None, {})
    plan = resolved.spec.evaluation
    compared = [value.before for value in ((*plan.drift, *plan.paired) if plan else ()) if value.after == stage_name]
    if stage_name == analysis.treatment:
        compared += [name for control in analysis.controls for name in (control.before, control.after)]
        compared += [arm.stage for arm in analysis.arms]
        compared += [analysis.transfer.before, analysis.transfer.after] if analysis.transfer else []
        compared += measured_starts(resolved.spec)
        trained = map(resolved.spec.trained_for, analysis.list_curve_stages())
        compared += [training.name for training in trained if training is not None]
    if stage.pilot is not None:
        compared.append(stage.pilot)
    heldout_input = order.inputs.get("items") if order else None
    heldout_digest = resolved.data_digests["heldout"]
    ended = recorded.exit.body if recorded.exit else None
    submission = every.submission.body if every.submission else None
    return Evidence(
        resolved=resolved,
        registered=until_end.registration,
        measured_by=until_end.measured_by,
        measured_files=_files_of(until_end.measured_by, store),
        stage=stage,
        attempt=attempt,
        grant=recorded.grant.body if recorded.grant else None,
        parameters=dict(order.parameters) if order else {},
        heldout=load_items(store, heldout_digest),
        heldout_digest=heldout_input.digest if heldout_input else heldout_digest,
        data={name: load_data(store, resolved, name) for name in resolved.data_digests if name != "heldout"},
        observed=ended.observed if ended else None,
        launched=_read_launch_time(recorded.launch),
        ended=_read_entry_time(recorded.end),
        inputs={role: _input(run, store, artifact) for role, artifact in order.inputs.items()} if order else {},
        ordered_code=order.code if order else None,
        code=_code(order, store),
        lineages=lineages(until_end, resolved.spec, order) if order else {},
        attempts=_attempts(until_end, stage_name),
        evaluations_of_heldout=evaluations(until_end),
        heldout_elsewhere=ended.heldout if ended else None,
        required_families=due_at(until_end, stage_name),
        earlier=_earlier(until_end),
        constitution=load_constitution_text(store, resolved),
        arms={name: arm for name in compared if (arm := _arm(run, until_end, name)) is not None},
        withdrawn=_withdrawn(until_end, recorded),
        **_left_behind(run, recorded, store),
        claims=submission.claims if submission else None,
        sent_back=submission.sent_back if submission else 0,
        witness=_witness(every, store),
        baseline_rows=baseline.rows,
        baseline_manifest=baseline.manifest,
        baseline_parameters=baseline.parameters,
    )


def _files_of(code: str, store: Store) -> dict[str, str]:
    """Return the files of the registered measuring code, as far as they are kept: they only name what differs."""
    return store.read(code, json.loads) if store.path(code).is_file() else {}


def _withdrawn(history: RecordedHistory, attempt: Attempt) -> str:
    """Return why the builder had the attempt's job ended, by its own call; empty if it did not, or was refused."""
    if attempt.exit_record is None or attempt.exit_record.reason != "cancelled":
        return ""
    refused = {entry.body.call for entry in history.of(ToolResultEntry) if entry.body.is_error}
    calls = [entry.body for entry in history.of(ToolCallEntry) if entry.key not in refused]
    own = (
        call for call in calls if (call.stage, call.attempt, call.tool) == (attempt.stage, attempt.number, CANCEL_TOOL)
    )
    cancelling = next(own, None)
    return plain(str(history.store.get_value(cancelling.arguments)["reason"]), MOST_WHY) if cancelling else ""


def _witness(attempt: Attempt, store: Store) -> WitnessEvidence | None:
    order = read_order(attempt.challenge, store)
    if order is None or order.challenge is None:
        return None
    if attempt.witness is None:
        return WitnessEvidence(order.challenge, None, None, "it has not ended")
    body = attempt.witness.body
    if body.rows:
        store.get(body.rows)
    manifest = store.read(body.manifest, Manifest.model_validate_json) if body.manifest else None
    return WitnessEvidence(order.challenge, store.path(body.rows) if body.rows else None, manifest, body.why)


def _input(run: Path, store: Store, artifact: Artifact) -> Path:
    """Return where an input lies: in the store, checked, if it is kept there (everything but weights is)."""
    path = store.path(artifact.digest)
    if not path.is_file():
        return run / artifact.path
    store.get(artifact.digest)
    return path


def _code(order: JobOrder | None, store: Store) -> str:
    digest = order.parameters.get("code") if order else None
    return store.get(digest).decode("utf-8", "replace") if isinstance(digest, str) else ""


def _left_behind(run: Path, attempt: Attempt, store: Store) -> dict[str, Any]:
    """Return what the ``exit`` entry names of a job, by the names of evidence: manifest, outputs, log tail, ...."""
    if attempt.exit is None:
        return {}
    body = attempt.exit.body
    paths: dict[str, Path] = {}
    for name, output in body.outputs.items():
        if output.stored:
            store.get(output.digest)
        paths[name] = store.path(output.digest) if output.stored else run / output.path
    tail = store.get(body.log)[-LOG_TAIL_BYTES:].decode("utf-8", "replace")
    return {
        "manifest": attempt.manifest,
        "exit": attempt.exit_record,
        "outputs": paths,
        "output_digests": {name: output.digest for name, output in body.outputs.items()},
        "log_tail": plain(tail, LOG_TAIL_BYTES),
        "log_left": body.log_left or body.log,
        "beside": body.beside,
    }


def _read_launch_time(launch: RecordedEntry[LaunchEntry] | None) -> float | None:
    """Return when a job was launched, by the clock that it reads where that is known: entries never go back in time."""
    clock = launch.body.clock if launch else None
    return float(clock.time) if clock else _read_entry_time(launch)


def _read_entry_time(entry: RecordedEntry | None) -> float | None:
    return entry.time_ns / 1e9 if entry else None


def _arm(run: Path, history: RecordedHistory, stage: str) -> ArmEvidence | None:
    """Return the accepted attempt of a stage, or None."""
    attempt = history.accepted_attempt(stage)
    if attempt is None:
        return None
    remaining = _left_behind(run, attempt, history.store)
    parameters = dict(attempt.order.parameters) if attempt.order else {}
    return ArmEvidence(remaining.get("outputs", {}).get("rows"), attempt.manifest, parameters)


def _attempts(history: RecordedHistory, stage: str) -> tuple[dict[str, Any], ...]:
    """Return what was tried in this stage and how each earlier attempt ended; nothing is left out."""
    results: dict[int, dict[str, Any]] = {}
    for entry in history.of(PlanEntry, BudgetEntry, DecisionEntry, HumanAnswerEntry):
        body = entry.body
        if body.stage != stage:
            continue
        if isinstance(body, PlanEntry):
            results[body.attempt] = {"attempt": body.attempt, "changes": body.changes, "outcome": None}
        elif (result := results.get(body.attempt)) is None:
            continue
        elif isinstance(body, BudgetEntry):
            result["outcome"] = NOT_STARTED if body.at == "launch" else result["outcome"]
        elif isinstance(body, DecisionEntry) or result["outcome"] != NOT_STARTED:
            outcome = body.outcome if isinstance(body, DecisionEntry) else body.answer
            result["outcome"] = f"{outcome}, retracted" if entry.seq in history.retracted else outcome
    return tuple(results.values())


def evaluations(history: RecordedHistory) -> int:
    """Count the jobs of ``evaluate`` stages, and of stages of the kind that is compared."""
    names = evaluating(history.resolved.spec)
    return sum(entry.body.stage in names for entry in history.of(LaunchEntry))


def evaluating(spec: Design) -> frozenset[str]:
    """Return the stages that answer the task's items, and those of the kind that is compared."""
    compared = spec.stage(spec.analysis.treatment).kind

    def counts(kind: StageKind) -> bool:
        return kind.name == compared or (kind.arm is not None and not kind.arm.conversations)

    return frozenset(stage.name for stage in spec.stages if counts(kind_of(stage)))


def earlier_metrics(history: RecordedHistory, stage: str, attempt: int) -> dict[str, MetricSet]:
    """Return the metrics of the stages that were accepted when an attempt's job ended, by stage."""
    end = history.attempt(stage, attempt).end
    return _earlier(history[: end.seq + 1] if end else history)


def _earlier(history: RecordedHistory) -> dict[str, MetricSet]:
    names = [stage.name for stage in history.resolved.spec.stages]
    accepted = {name: attempt for name in names if (attempt := history.accepted_attempt(name))}
    return {name: attempt.metric_set for name, attempt in accepted.items() if attempt.metric_set is not None}
