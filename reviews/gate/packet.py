"""The packet: exactly what a reviewer sees, built by Peergate from evidence.

It carries no builder prose, no session name and no word on what the verdict triggers. Text of jobs and models is made
plain and cut to a limit; ``left_out`` counts what was cut.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from reviews.checks.claim_lookup import CLAIMS
from reviews.checks.registration_checks import WORKSPACE
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import ROW_CHARACTERS, read_objects
from reviews.stages.judge import judge_of
from specs.jobs.grant_and_claim import ClaimResult
from specs.session.design import ResolvedDesign
from specs.stages.base.metric import MetricSet
from specs.stages.base.sampling import TOKEN_IDS
from specs.stages.base.stage import Criterion
from specs.stages.registry import Stage, kind_of
from specs.system.digests import digest_value
from specs.system.errors import EvidenceMissing
from specs.system.masking import without_secrets
from specs.system.text import plain
from specs.trail.entry import DESIGN
from specs.trail.verdict import CheckResult, ConditionResult, CriterionResult, Packet, Span

_NOT_SHOWN = {"max_minutes", "launcher", "resources"}
"""Fields of a stage that say nothing about the design: where its job runs and its limits."""
_CHANGING = (CLAIMS, WORKSPACE)
"""Checks whose result may differ between two equal runs."""
SAMPLE_ROWS = 12
FLAGGED_ROWS = 20
LOG_CHARACTERS = 4000
CODE_CHARACTERS = 200_000
"""Far more than a script may have: escaping makes it longer, and what a reviewer does not see is not reviewed."""
EFFECTIVE_SETTINGS = 100
VALUE_CHARACTERS = 200

Rows = list[dict[str, Any]]


def build_packet(
    evidence: Evidence,
    metrics: MetricSet | None,
    checks: tuple[CheckResult, ...],
    *,
    checks_digest: str,
    claims: tuple[ClaimResult, ...],
    conditions: tuple[ConditionResult, ...] = (),
    lifted: Mapping[str, str] | None = None,
    previous_findings: tuple[dict[str, Any], ...] = (),
) -> Packet:
    """Build the packet of one attempt; what is known from earlier attempts and gates comes last."""
    resolved, stage = evidence.resolved, evidence.stage
    rows, flagged, registration = _rows(evidence), _list_flagged_rows(checks), resolved.registration()
    log = plain(evidence.log_tail, 1_000_000)
    packet = Packet(
        stage=stage.name,
        kind=stage.kind,
        registration=registration,
        registered=_collect_registered_facts(resolved) | {"gate": stage.gate.model_dump(mode="json")},
        granted_parameters=dict(evidence.parameters),
        allowed_ranges={name: (limits.min, limits.max) for name, limits in stage.ranges.items()},
        allowed_choices=dict(stage.choices),
        metrics=metrics.model_dump(mode="json")["metrics"] if metrics else {},
        metrics_digest=metrics.content_digest() if metrics else None,
        criteria=criteria_results(resolved, stage, metrics),
        checks=checks,
        checks_digest=checks_digest,
        sample_rows=tuple(
            _spread(rows, SAMPLE_ROWS) if kind_of(stage).trains else _draw_rows(rows, SAMPLE_ROWS, registration)
        ),
        flagged_rows=tuple(flagged[:FLAGGED_ROWS]),
        log_tail=log[-LOG_CHARACTERS:],
        attempts=evidence.attempts,
        evaluations_of_heldout=evidence.evaluations_of_heldout,
        claims=claims,
        left_out={
            "sample_rows": max(0, len(rows) - SAMPLE_ROWS),
            "flagged_rows": max(0, len(flagged) - FLAGGED_ROWS),
            "log_characters": max(0, len(log) - LOG_CHARACTERS),
        },
        effective=_effective(evidence),
        conditions=conditions,
        lifted=dict(lifted or {}),
        previous_findings=previous_findings,
        reading=resolved.read_first(),
        points=kind_of(stage).review_focus,
        code=plain(evidence.code, CODE_CHARACTERS),
        withdrawn=evidence.withdrawn,
        lineages={
            role: tuple(value._asdict() for value in way)
            for role, way in evidence.lineages.items()
            if any(value.script is not None for value in way)
        },
    )
    return without_secrets(packet)


def _list_flagged_rows(checks: tuple[CheckResult, ...]) -> Rows:
    return [{"check": check.id, **row} for check in checks if check.status != "PASS" for row in check.rows]


def criteria_results(resolved: ResolvedDesign, stage: Stage, metrics: MetricSet | None) -> tuple[CriterionResult, ...]:
    """Return the stage's criteria and, at the treatment stage, the registered hypothesis, each with its value.

    A metric that was not measured leaves its criterion unmet without a value: that is missing evidence, not a null.
    """
    analysis = resolved.spec.analysis
    hypothesis = analysis.hypothesis() if stage.name == analysis.treatment else ()
    return (
        *(_criterion(criterion, metrics, hypothesis=False) for criterion in stage.gate.criteria),
        *(_criterion(criterion, metrics, hypothesis=True) for criterion in hypothesis),
    )


def _criterion(criterion: Criterion, metrics: MetricSet | None, *, hypothesis: bool) -> CriterionResult:
    measured = metrics.metrics.get(criterion.metric) if metrics else None
    return CriterionResult(
        criterion=criterion,
        value=measured.value if measured else None,
        counts=measured.counts() if measured else None,
        met=measured is not None and criterion.met(measured.exact()),
        hypothesis=hypothesis,
    )


def evidence_digest(packet: Packet) -> str:
    """Return a digest of what a packet shows, without what differs between two equal runs: log and history.

    Without the builder's claims: otherwise a new claim would be enough to ask for another verdict.
    """
    return digest_value(
        {
            "registration": packet.registration,
            "parameters": packet.granted_parameters,
            "metrics": packet.metrics,
            # Without figures: some count attempts or seconds.
            "checks": [[check.id, check.status] for check in packet.checks if check.id not in _CHANGING],
            "criteria": [criterion.model_dump(mode="json") for criterion in packet.criteria],
            "rows": [packet.sample_rows, packet.flagged_rows],
            "conditions": [condition.model_dump(mode="json") for condition in packet.conditions],
            "lifted": packet.lifted,
        }
    )


def build_design_packet(resolved: ResolvedDesign, checks: tuple[CheckResult, ...], *, checks_digest: str) -> Packet:
    """Build the packet of the design gate, which holds no rows yet, only the registration."""
    flagged = _list_flagged_rows(checks)
    packet = Packet(
        stage=DESIGN,
        kind=DESIGN,
        registration=resolved.registration(),
        registered=_collect_registered_facts(resolved)
        | {"stages": [stage.model_dump(mode="json", exclude=_NOT_SHOWN) for stage in resolved.spec.stages]},
        granted_parameters={},
        allowed_ranges={},
        metrics={},
        metrics_digest=None,
        criteria=(),
        checks=checks,
        checks_digest=checks_digest,
        sample_rows=(),
        flagged_rows=tuple(flagged[:FLAGGED_ROWS]),
        log_tail="",
        attempts=(),
        evaluations_of_heldout=0,
        claims=(),
        left_out={"flagged_rows": max(0, len(flagged) - FLAGGED_ROWS)},
        reading=resolved.read_first(),
    )
    return without_secrets(packet)


def resolvable(span: Span, packet: Packet) -> bool:
    """Return whether a span points at something in the packet and quotes it.

    With a pointer (RFC 6901) it points into the packet as JSON, without one at lines of the log tail.
    """
    try:
        value = _value_at(span, packet)
    except (KeyError, IndexError, ValueError):
        return False
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return span.quote in text


def quoted_place(span: Span, packet: Packet) -> Any:
    """Return what stands at the place that a span names; None if the packet has no such place."""
    try:
        return _value_at(span, packet)
    except (KeyError, IndexError, ValueError):
        return None


def _value_at(span: Span, packet: Packet) -> Any:
    return _lines(span, packet.log_tail) if span.pointer is None else _point(packet, span.pointer)


def _lines(span: Span, log: str) -> str:
    if span.lines is None:
        raise ValueError("neither pointer nor lines")
    first, last = span.lines
    lines = log.splitlines()
    if not 1 <= first <= last <= len(lines):
        raise IndexError(f"the log tail has {len(lines)} lines")
    return "\n".join(lines[first - 1 : last])


def _point(packet: Packet, pointer: str) -> Any:
    if not pointer.startswith("/"):
        raise ValueError("a pointer into a packet begins with '/'")
    result: Any = packet.model_dump(mode="json")
    for part in pointer[1:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(result, list):
            if not (name.isascii() and name.isdigit()) or (len(name) > 1 and name.startswith("0")):
                raise ValueError(f"'{name}' is not an index")
            result = result[int(name)]
        elif isinstance(result, dict):
            result = result[name]
        else:
            raise KeyError(name)
    return result


def _collect_registered_facts(resolved: ResolvedDesign) -> dict[str, Any]:
    spec = resolved.spec
    return {
        "objective": plain(spec.objective, 1000),
        "task": spec.task,
        "model_kind": spec.model.kind,
        "analysis": spec.analysis.model_dump(mode="json"),
        "heldout": spec.heldout.digest,
        **({"constitution": resolved.constitution_digest} if resolved.constitution_digest else {}),
        **({"evaluation": spec.evaluation.model_dump(mode="json")} if spec.evaluation else {}),
    }


def _rows(evidence: Evidence) -> Rows:
    """Return the raw rows in short form; none when they cannot be read, which the checks report."""
    try:
        return (judge_of(kind_of(evidence.stage)).summarise_rows or _as_written)(evidence)
    except EvidenceMissing:
        return []


def _as_written(evidence: Evidence) -> Rows:
    """Return rows with every text in them cut and made plain, without token ids; lists stay where they are short."""
    rows = read_objects(evidence.outputs.get("rows"), f"{evidence.stage.kind} rows")
    return [{name: _shorten_value(value) for name, value in _without_ids(row).items()} for row in rows]


def _without_ids(value: Any) -> Any:
    """Return JSON data without the token ids that rows keep for a witness, at any depth."""
    if isinstance(value, list):
        return [_without_ids(element) for element in cast(list[Any], value)]
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return {name: _without_ids(value) for name, value in items if name not in TOKEN_IDS}
    return value


def _shorten_value(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value, ROW_CHARACTERS)
    if isinstance(value, list | dict):
        return plain(json.dumps(value, ensure_ascii=False), ROW_CHARACTERS)
    return value


def _effective(evidence: Evidence) -> dict[str, Any]:
    """Return the settings that the job read back; its strings are as untrusted as its log."""
    manifest = evidence.manifest
    if manifest is None:
        return {}
    facts = {
        **manifest.effective,
        "device": f"{manifest.device} ({manifest.device_name})",
        "dtype": manifest.dtype,
        "seed": manifest.seed,
        "threads": manifest.threads,
    }
    if kind_of(evidence.stage).runs_code and "checkpoint" in manifest.facts:
        facts["checkpoint"] = manifest.facts["checkpoint"]
    return {
        plain(name, VALUE_CHARACTERS): plain(value, VALUE_CHARACTERS) if isinstance(value, str) else value
        for name, value in list(facts.items())[:EFFECTIVE_SETTINGS]
    }


def _draw_rows(rows: Rows, limit: int, registration: str) -> Rows:
    """Draw rows by a digest, so that the same evidence shows the same rows and no one picks them."""
    if len(rows) <= limit:
        return rows
    drawn = sorted(range(len(rows)), key=lambda index: digest_value([registration, index, rows[index]]))
    return [rows[index] for index in sorted(drawn[:limit])]


def _spread(rows: Sequence[dict[str, Any]], limit: int) -> Rows:
    """Return at most ``limit`` rows at even distances, for the course of a training."""
    if len(rows) <= limit:
        return list(rows)
    return [rows[index * len(rows) // limit] for index in range(limit)]
