"""Claims against evidence by rule: numbers next to known names, "significant", and words no measurement can carry."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from reviews.checks.claim_lookup import agrees
from reviews.requests.answer_forms import in_order
from reviews.requests.rules.commit_claims import score_commits
from reviews.requests.rules.rule_findings import best_case, place
from reviews.requests.rules.stated_numbers import EvidenceNumber, StatedNumber, held_in, stated_in
from reviews.requests.run_evidence import RENDERED, RunEvidence
from specs.stages.metric_catalog import METRICS, TEST_NAMES
from specs.system.exact import holds
from specs.system.text import one_line
from specs.trail.requested_review import (
    AdversarialAnswer,
    Citation,
    ClaimStatus,
    Fix,
    Overclaim,
    ReadFile,
    RequestReading,
    ScoreRow,
)

MAX_ROWS = 300
MAX_FIXES = 30
MAX_EVIDENCE = 3
_LINE_CHARACTERS = 200
"""The limit for lines of a report that differ."""

_NEGATED = re.compile(
    r"\b(?:no|not|non|without|never|neither|nor|lack of|isn't|wasn't|cannot)\W*(?:\w+\W+){0,2}$", re.I
)
_SIGNIFICANT = re.compile(r"\bsignificant(?:ly)?\b", re.IGNORECASE)
_TOO_MUCH = re.compile(
    r"\b(?:proves?|proven|guarantee[sd]?|perfect(?:ly)?|flawless(?:ly)?|state[- ]of[- ]the[- ]art|bug[- ]free|"
    r"fully (?:compliant|verified|validated)|100 ?% (?:compliant|spec[- ]compliant|verified|safe)|never fails|"
    r"undoubtedly|unprecedented|zero leakage)\b",
    re.IGNORECASE,
)
_COMPARED = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_ARMS = {"baseline": "baseline", "before": "baseline", "treatment": "treatment", "after": "treatment"}

NOT_JUDGED = (
    "every sentence without a number next to a name that the evidence knows",
    "whether a right number means what its sentence says: split, stage, best or only attempt",
    "causes, generality, novelty, and omissions",
)


class _Value(NamedTuple):
    number: EvidenceNumber
    stage: str
    attempt: int


def score(reading: RequestReading, runs: Sequence[RunEvidence]) -> AdversarialAnswer:
    """Look up what the claims files state among what the evidence files hold."""
    evidence = [file for file in reading.files if file.role == "evidence"]
    claims = [file for file in reading.files if file.role == "claims"]
    values = [value for file in evidence for value in _values(file, runs)]
    names = {value.number.name for value in values}
    rows: list[ScoreRow] = []
    rendered = {
        read_file.name.removeprefix(RENDERED): read_file
        for read_file in evidence
        if read_file.name.startswith(RENDERED)
    }
    for file in claims:
        if runs and file.name in rendered:
            rows += _of_report(file, rendered[file.name])
        else:
            rows += _of_text(file, names, values, evidence, runs)
    rows += score_commits(claims, evidence)
    overclaimed = [overclaim for file in claims for overclaim in _overclaims(file)]
    rows = _distinct(rows)
    counts = {
        status: sum(row.status == status for row in rows) for status in ("supported", "contradicted", "unsupported")
    }
    more = [f"{len(rows) - MAX_ROWS} further rows, left out of the scorecard"] if len(rows) > MAX_ROWS else []
    message = ", ".join(f"{count} {status}" for status, count in counts.items())
    pairs = [(f"{row.claim} ({row.explanation})", row.evidence[0]) for row in rows if row.status == "supported"]
    return AdversarialAnswer(
        best_case=best_case(pairs),
        scorecard=tuple(sorted(rows, key=_gravity)[:MAX_ROWS]),
        overclaimed=tuple(overclaimed),
        fixes=in_order(_fixes(rows, overclaimed))[:MAX_FIXES],
        overall_assessment=f"By rule, of the numbers next to known names: {message}. "
        f"{len(overclaimed)} words that no measurement can carry. Nothing else was judged: rules look numbers up, "
        "they do not read.",
        not_judged=(*NOT_JUDGED, *more),
    )


def _values(file: ReadFile, runs: Sequence[RunEvidence]) -> list[_Value]:
    if not file.name.lower().endswith(".json"):
        return []
    made = {
        f"{run.name}/metrics/{stage}.{attempt}.json": (stage, attempt)
        for run in runs
        for stage, attempt in run.measured
    }
    others = {f"{run.name}/{name}.json" for run in runs for name in ("registered", "checks", "decisions")}
    if file.name in others or file.name.startswith(RENDERED):
        return []
    stage, attempt = made.get(file.name, ("", 0))
    return [_Value(current, stage, attempt) for current in held_in(file)]


def _of_report(file: ReadFile, rendered: ReadFile) -> list[ScoreRow]:
    """Return one row for all lines that agree, and one for each run of lines that differs."""
    rows: list[ScoreRow] = []
    agreeing = 0
    for kind, start, end, first, last in SequenceMatcher(None, file.lines, rendered.lines).get_opcodes():
        if kind == "equal":
            agreeing += end - start
            continue
        says, gives = (
            f"'{one_line(' '.join(lines), _LINE_CHARACTERS)}'" if lines else "nothing"
            for lines in (file.lines[start:end], rendered.lines[first:last])
        )
        evidence = (place(rendered, first + 1),) if last > first else ()
        why = f"rendered again from the trail it says {gives}"
        rows.append(_make_score_row(f"the report says {says}", place(file, start + 1), "contradicted", evidence, why))
    if agreeing:
        claim, why = f"{agreeing} lines of {file.name}", "rendered again from the trail they are the same"
        rows.append(_make_score_row(claim, place(file, 1), "supported", (place(rendered, 1),), why))
    return rows


def _make_score_row(
    claim: str, at: Citation, status: ClaimStatus, evidence: tuple[Citation, ...], why: str
) -> ScoreRow:
    return ScoreRow(claim=claim, stated_at=at, status=status, evidence=evidence, explanation=why)


def _of_text(
    file: ReadFile, names: set[str], values: list[_Value], evidence: list[ReadFile], runs: Sequence[RunEvidence]
) -> list[ScoreRow]:
    stages = {value.stage for value in values if value.stage}
    arms = {word: getattr(run.resolved.spec.analysis, arm) for run in runs for word, arm in _ARMS.items()}
    around: dict[int, str] = {}
    heading = ""
    for number, line in enumerate(file.lines, 1):
        if line.startswith("#"):
            # A report writes "### pilot (generate)": the stage comes first, its kind may be another stage's name.
            heading = _stage_in(line.split("(")[0], stages, arms)
        around[number] = heading
    rows: list[ScoreRow] = []
    for stated in stated_in(file, names):
        line = file.lines[stated.line - 1]
        # The stage comes before the number: "baseline accuracy 0.05, after training 0.53".
        stage = _stage_in(line[: line.find(stated.text)], stages, arms) or around[stated.line]
        rows.append(_row(_as_fraction(stated), _candidates(stated, stage, values), evidence, runs))
    return rows + _significance(file, values, runs)


def _row(
    stated: StatedNumber, candidates: list[_Value], evidence: list[ReadFile], runs: Sequence[RunEvidence]
) -> ScoreRow:
    agreeing = [candidate for candidate in candidates if _holds(stated, candidate.number.value)]
    registered = _find_registered_bound(stated, evidence, runs)
    status: ClaimStatus = "supported"
    if agreeing:
        values = agreeing
        explanation = f"the evidence holds {_format_values(agreeing)}"
    elif registered is not None:
        return _score(stated, "supported", (registered,), "that is the registered criterion, not a result")
    elif candidates:
        status, values = "contradicted", candidates
        explanation = f"the evidence holds {_format_values(candidates)}: none of these is {stated.text!r}"
    else:
        status, values = "unsupported", []
        explanation = f"no evidence file holds a value of {stated.name}"
    return _score(stated, status, tuple(value.number.place for value in values[:MAX_EVIDENCE]), explanation)


def _score(stated: StatedNumber, status: ClaimStatus, evidence: tuple[Citation, ...], explanation: str) -> ScoreRow:
    sign = "" if stated.sign == "=" else f"{stated.sign} "
    claim = f"{stated.name} {'is ' if not sign else ''}{sign}{stated.value:.6g}"
    return _make_score_row(claim, stated.place, status, evidence, explanation)


def _candidates(stated: StatedNumber, stage: str, values: list[_Value]) -> list[_Value]:
    """Return the values of a name, of the stage that is spoken of where it has one."""
    every = [value for value in values if value.number.name == stated.name]
    return [value for value in every if stage and value.stage == stage] or every


def _holds(stated: StatedNumber, value: float) -> bool:
    if compare := _COMPARED.get(stated.sign):
        return compare(value, stated.value)
    return agrees(stated.value, value, stated.tolerance)


def _as_fraction(stated: StatedNumber) -> StatedNumber:
    """Read "accuracy 53" as 53 %: a fraction has no such value."""
    known = METRICS.get(stated.name)
    if known is None or known.unit != "fraction" or abs(stated.value) <= 1:
        return stated
    tolerance = (stated.tolerance or 0.5) / 100
    return stated._replace(value=stated.value / 100, tolerance=tolerance)


def _find_registered_bound(
    stated: StatedNumber, evidence: list[ReadFile], runs: Sequence[RunEvidence]
) -> Citation | None:
    """Return where a stated bound is registered as a criterion, if it is."""
    for run in runs:
        analysis = run.resolved.spec.analysis
        criteria = [
            *analysis.hypothesis(),
            *(criterion for stage in run.resolved.spec.stages for criterion in stage.gate.criteria),
        ]
        for criterion in criteria:
            sign, limit = criterion.get_bound()
            # "powered for a gain of 0.15" names the bound without its sign.
            if criterion.metric == stated.name and stated.sign in (sign, "=") and stated.value == limit:
                file = next(read_file for read_file in evidence if read_file.name == f"{run.name}/registered.json")
                keys = {analysis.p_metric: "alpha", "accuracy_gain": "minimum_effect"}
                wanted = f'"{keys.get(criterion.metric, criterion.metric)}"'
                line = next((at for at, text in enumerate(file.lines, 1) if wanted in text), 1)
                return place(file, line)
    return None


def _significance(file: ReadFile, values: list[_Value], runs: Sequence[RunEvidence]) -> list[ScoreRow]:
    """Compare the word "significant" with the registered test."""
    measured = [value for value in values if value.number.name in TEST_NAMES and value.stage]
    if not measured or not runs:
        return []
    alpha = runs[0].resolved.spec.analysis.alpha
    is_so = any(holds(value.number.value, "<", alpha) for value in measured)
    evidence = tuple(value.number.place for value in measured[:MAX_EVIDENCE])
    why = f"the registered test: {_format_values(measured)}, alpha is {alpha:g}"
    rows: list[ScoreRow] = []
    for number, line in enumerate(file.lines, 1):
        for match in _SIGNIFICANT.finditer(line):
            negated = bool(_NEGATED.search(line[: match.start()]))
            claim = "the result is not significant" if negated else "the result is significant"
            status: ClaimStatus = "supported" if is_so != negated else "contradicted"
            rows.append(_make_score_row(claim, place(file, number), status, evidence, why))
    return rows


def _overclaims(file: ReadFile) -> list[Overclaim]:
    if file.name.lower().endswith(".json"):
        return []
    return [
        Overclaim(
            statement=f"'{match[0]}' says more than a measurement can show",
            stated_at=place(file, number),
            instead="what was measured, on what, and with which interval",
        )
        for number, line in enumerate(file.lines, 1)
        for match in _TOO_MUCH.finditer(line)
        if not _NEGATED.search(line[: match.start()])
    ]


def _fixes(rows: Sequence[ScoreRow], overclaimed: Sequence[Overclaim]) -> list[Fix]:
    """Return what to fix: a wrong number matters most and is quickly corrected, a missing measurement takes work."""
    fixes = [
        Fix(text=f"{row.stated_at}: put '{row.claim}' right ({row.explanation})", delta=5, effort=1)
        if row.status == "contradicted"
        else Fix(text=f"{row.stated_at}: give evidence for '{row.claim}', or remove it", delta=3, effort=2)
        for row in rows
        if row.status != "supported"
    ]
    return fixes + [
        Fix(text=f"{overclaim.stated_at}: {overclaim.statement}; say {overclaim.instead}", delta=2, effort=1)
        for overclaim in overclaimed
    ]


def _format_values(values: Sequence[_Value]) -> str:
    texts = [
        f"{value.number.name}{f' of {value.stage}.{value.attempt}' if value.stage else ''} = {value.number.value:.6g}"
        for value in values[:MAX_EVIDENCE]
    ]
    more = f" and {len(values) - MAX_EVIDENCE} more" if len(values) > MAX_EVIDENCE else ""
    return ", ".join(dict.fromkeys(texts)) + more


def _stage_in(text: str, stages: set[str], arms: dict[str, str]) -> str:
    """Return the stage that is named last in a text."""
    result = ""
    for word in re.findall(r"\w+", text.lower()):
        if word in stages:
            result = word
        elif word in arms:
            result = arms[word]
    return result


def _distinct(rows: list[ScoreRow]) -> list[ScoreRow]:
    """Return each claim once for a line and an outcome."""
    first: dict[tuple[str, str, str, int], ScoreRow] = {}
    for row in rows:
        first.setdefault((row.claim, row.status, row.stated_at.file, row.stated_at.first_line), row)
    return list(first.values())


def _gravity(row: ScoreRow) -> tuple[int, str, int]:
    order = {"contradicted": 0, "unsupported": 1, "supported": 2}
    return order[row.status], row.stated_at.file, row.stated_at.first_line
