"""Checks a session's report against its trail: rendered again byte for byte, each number followed to its rows.

Files are compared with their recorded digests, metrics computed again from the rows, and the builder's claims looked up
again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import zip_longest
from os.path import commonprefix
from pathlib import Path
from typing import Any, NamedTuple

from reviews.audit.metric_lines import parts_of
from reviews.checks.claim_lookup import look_up
from reviews.checks.measuring_code import measuring_code
from reviews.evidence.evidence import Evidence
from reviews.evidence.gather import gather
from reviews.evidence.row_lines import BASELINE, ROWS, LineSelection
from reviews.evidence.weight_lineage import Lineage
from reviews.gate.measurer import measure
from reviews.history.history import History
from reviews.history.recorded_code import code_lines
from reviews.trail.chain.envelope import RecordedEntry
from sessions.pages.report.report import render
from sessions.run.run_layout import REPORT_JSON, REPORT_MARKDOWN
from specs.jobs.grant_and_claim import ClaimResult
from specs.stages.base.metric import Metric, MetricSet
from specs.stages.metric_catalog import TEST_NAMES
from specs.system.digests import digest_bytes
from specs.system.errors import PeergateError, UserError
from specs.system.regular_files import read_regular
from specs.system.text import one_line
from specs.trail.gate_bodies import MetricsEntry, PacketEntry
from specs.trail.session_bodies import ExitEntry, ReportEntry

MOST_CHARS = 200
"""Characters of a differing line, from a little before the difference."""
_BEFORE = 40
_NAME = re.compile(r"(?:([^.]+)\.(?:(\d+)\.)?)?(\w+)")
COMPARISON = "## The registered comparison"
_IN_HEADLINE = ("accuracy_gain", "gained", "lost", *TEST_NAMES)


class RecordedMetric(NamedTuple):
    """One metric as the entry of an attempt recorded it."""

    entry: RecordedEntry
    digest: str
    """The digest of the metric set."""
    set: MetricSet
    metric: Metric

    @property
    def name(self) -> str:
        """STAGE.ATTEMPT.METRIC."""
        return f"{self.set.stage}.{self.set.attempt}.{self.metric.id}"


class RawRows(NamedTuple):
    """A file of raw rows, where it was recorded, and its problem, if any."""

    name: str
    digest: str
    entry: RecordedEntry | None
    path: str
    problem: str


class ClaimCheck(NamedTuple):
    """A builder's claim about a metric: the packet that showed it, the result on record and the result now."""

    packet: RecordedEntry
    recorded: ClaimResult
    now: ClaimResult


class NumberTrace(NamedTuple):
    """A number of the report, followed to its rows."""

    measured: RecordedMetric
    stated: tuple[str, ...]
    """Where the report states it: a JSON pointer, or a line."""
    rows: tuple[RawRows, ...]
    same_code: bool
    """Whether the code at hand measured it."""
    again: float | None
    """The value from the rows now; None if they give none."""
    parts: tuple[LineSelection, ...]
    claims: tuple[ClaimCheck, ...]
    lineages: dict[str, Lineage]
    """The origin of the measured checkpoints, by role."""
    problems: tuple[str, ...]


class ReportCheck:
    """The report of a session next to its trail.

    ``apart`` says that the report's files lie next to the store (a run folder), not in it (an export).

    Raises:
        UserError: no report was written yet.
        AuditDamage: a metric set was changed.
        EvidenceMissing: a metric set is not in the store.
    """

    def __init__(self, folder: Path, history: History, *, apart: bool) -> None:
        self._folder, self._history, self._store, self._apart = folder, history, history.store, apart
        written = history.newest(ReportEntry)
        if written is None:
            raise UserError("no report yet", where=str(folder), hint="it is written when the session closes")
        self.entry = written
        self.measured = tuple(self._iterate_metrics())
        self._gathered: tuple[int, Evidence] | None = None
        self._computed: tuple[int, MetricSet] | None = None
        """Evidence of the attempt that was last traced and what its rows give, by its entry."""
        self._rendered: dict[str, bytes] = {}
        """The files that trail and store give, by path."""
        self.note = ""
        """What was not compared because other code wrote the report."""
        self.problems = list(self._problems())
        """Where the report differs from them, or from the recorded digests."""

    def _iterate_metrics(self) -> Iterator[RecordedMetric]:
        for entry in self._history.of(MetricsEntry):
            if digest := entry.body.metrics:
                metric_set = MetricSet.model_validate_json(self._store.get(digest))
                for metric in metric_set.metrics.values():
                    yield RecordedMetric(entry, digest, metric_set, metric)

    def _problems(self) -> Iterator[str]:
        files = self.entry.body.files
        saved: dict[str, bytes] = {}
        for name, digest in files.items():
            try:
                saved[name] = read_regular(self._folder / name) if self._apart else self._store.get(digest)
            except (OSError, PeergateError) as error:
                yield f"{name} cannot be read: {str(error).splitlines()[0]}"
                continue
            if digest_bytes(saved[name]) != digest:
                yield f"{name} is {digest_bytes(saved[name])}, entry {self.entry.seq} recorded {digest}"
        try:
            self._rendered = render(self._folder, self._history, self.entry.body)
        except PeergateError as error:
            yield f"the report cannot be rendered again: {str(error).splitlines()[0]}"
            return
        texts = sorted({name for name in files if not name.endswith(".svg")} | self._rendered.keys())
        differences = [
            _difference(name, saved.get(name, b""), self._rendered.get(name, b""))
            for name in texts
            if name in saved or name not in files
        ]
        if any(differences):
            # Another version may write another report.
            ran = "; ".join(code_lines(self._history.before(self.entry)))
            if self._written_by_other_code():
                self.note = f"only the values of {REPORT_JSON} were compared, other code words the texts: it ran {ran}"
                differences = list(_compare_values(saved.get(REPORT_JSON, b""), self._rendered[REPORT_JSON]))
            yield from (f"{difference} (the session ran {ran})" for difference in differences if difference)

    def _written_by_other_code(self) -> bool:
        """Return whether other code than is at hand measured the session."""
        return bool(self.measured) and self.measured[-1].set.code != measuring_code(self._history.resolved)

    def find_statements(self, value: RecordedMetric) -> Iterator[str]:
        """Yield where the report states a metric, as pointers into its JSON and lines of its Markdown."""
        name, report = value.metric.id, json.loads(self._rendered.get(REPORT_JSON, b"{}"))
        compared: dict[str, Any] = report.get("comparison") or {}
        is_treatment = compared.get("treatment_metrics") == value.digest
        for arm in ("baseline", "treatment"):
            if compared.get(f"{arm}_metrics") == value.digest and name == compared["primary_metric"]:
                yield f"report.json /comparison/{arm}_accuracy"
        if is_treatment and name in compared["metrics"]:
            yield f"report.json /comparison/metrics/{name}"
        for number, stage in enumerate(report.get("stages", ())):
            for place, attempt in enumerate(stage["attempts"]):
                if attempt["metrics_digest"] == value.digest:
                    yield f"report.json /stages/{number}/attempts/{place}/metrics/{name}"
        own = f"{value.set.stage}.{value.set.attempt}"
        section = ""
        for number, line in enumerate(self._rendered.get(REPORT_MARKDOWN, b"").decode().split("\n"), 1):
            section = line if line.startswith("## ") else section
            in_headline = number == 1 and is_treatment and name in (*_IN_HEADLINE, compared["primary_metric"])
            in_table = is_treatment and section == COMPARISON and line.startswith(f"| {name} |")
            folded = line.startswith(f"<details><summary>{own} ") and f" {name} = " in line
            if in_headline or in_table or folded or line.startswith(f"- {own}, not met: {name} "):
                yield f"report.md line {number}"

    def find_metrics(self, name: str) -> tuple[RecordedMetric, ...]:
        """Return the metrics of a name: METRIC, STAGE.METRIC or STAGE.ATTEMPT.METRIC; UserError without any."""
        parts = _NAME.fullmatch(name)
        stage, attempt, metric = parts.groups() if parts else (None, None, None)
        results = tuple(
            value
            for value in self.measured
            if value.metric.id == metric
            and stage in (None, value.set.stage)
            and attempt in (None, str(value.set.attempt))
        )
        if not results:
            names = ", ".join(sorted({value.metric.id for value in self.measured})) or "none"
            hint = f"METRIC, STAGE.METRIC or STAGE.ATTEMPT.METRIC of: {names}"
            raise UserError(f"no measurement is called '{name}'", hint=hint)
        return results

    def trace(self, value: RecordedMetric) -> NumberTrace:
        """Follow a metric to the code and the rows it was computed from, and to the places that state it."""
        rows = [self._rows(name, digest) for name, digest in value.set.rows.items()]
        problems: list[str] = []
        again, parts, ways = None, (), dict[str, Lineage]()
        measured_by = measuring_code()
        try:
            evidence = self._evidence(value)
            ways = evidence.lineages
            measured_by = measuring_code(evidence.resolved)
            computed = self._again(value, evidence).metrics.get(value.metric.id)
            again = computed.value if computed else None
            parts = parts_of(evidence, value.metric.id)
            # Its other sources, for example a critic's labelled sample.
            files = dict.fromkeys(part.file for part in parts if part.file not in (ROWS, BASELINE))
            rows += [self._rows(file, evidence.output_digests[file]) for file in files]
        except PeergateError as error:
            problems.append(f"the rows give nothing now: {str(error).splitlines()[0]}")
        problems[:0] = [raw_rows.problem for raw_rows in rows if raw_rows.problem]
        same_code = value.set.code == measured_by
        if again is not None and again != value.metric.value:
            then = f"entry {value.entry.seq} recorded {value.metric.value:.10g}"
            problems.append(
                f"the rows give {again:.10g}, {then}{'' if same_code else ', by other code than is at hand'}"
            )
        claims = tuple(self._claims(value))
        problems += [
            f"entry {check.packet.seq} calls a claim of {check.recorded.claim.value:.10g} {check.recorded.status}, "
            f"looked up again it is {check.now.status}"
            for check in claims
            if check.now != check.recorded
        ]
        return NumberTrace(
            value,
            tuple(self.find_statements(value)),
            tuple(rows),
            same_code,
            again,
            parts,
            claims,
            ways,
            tuple(problems),
        )

    def _evidence(self, value: RecordedMetric) -> Evidence:
        """Return the evidence of a metric's attempt: gathered once for all of the attempt's metrics in a row."""
        seq = value.entry.seq
        if self._gathered is None or self._gathered[0] != seq:
            evidence = gather(self._folder, self._history[:seq], value.set.stage, value.set.attempt)
            self._gathered = seq, evidence
        return self._gathered[1]

    def _again(self, value: RecordedMetric, evidence: Evidence) -> MetricSet:
        """Return the metrics of this evidence, computed once like it."""
        seq = value.entry.seq
        if self._computed is None or self._computed[0] != seq:
            self._computed = seq, measure(evidence)
        return self._computed[1]

    def _rows(self, name: str, digest: str) -> RawRows:
        for entry in self._history.of(ExitEntry):
            for output in entry.body.outputs.values():
                if output.digest == digest:
                    try:
                        self._store.get(digest)
                        problem = ""
                    except PeergateError as error:
                        problem = str(error).splitlines()[0]
                    return RawRows(name, digest, entry, output.path, problem)
        return RawRows(name, digest, None, "", f"no job left the rows {digest}")

    def _claims(self, value: RecordedMetric) -> Iterator[ClaimCheck]:
        """Yield what packets show of the builder's claims about a metric, looked up again."""
        for packet in self._history.of(PacketEntry):
            claims = json.loads(self._store.get(packet.body.packet)).get("claims", ())
            for recorded in (ClaimResult.model_validate(claim) for claim in claims):
                own = packet.body.stage == value.set.stage
                if (recorded.claim.stage, recorded.claim.metric) != (value.set.stage, value.metric.id):
                    continue
                if not own or packet.body.attempt == value.set.attempt:
                    yield ClaimCheck(packet, recorded, look_up([recorded.claim], {value.set.stage: value.set})[0])


def _compare_values(saved: bytes, rendered: bytes) -> Iterator[str]:
    try:
        values = json.loads(saved)
    except (ValueError, RecursionError) as error:
        yield f"{REPORT_JSON} is not JSON: {one_line(str(error), MOST_CHARS)}"
    else:
        yield from (f"{REPORT_JSON} {difference}" for difference in _differing_values(values, json.loads(rendered)))


def _differing_values(saved: Any, rendered: Any, pointer: str = "") -> Iterator[str]:
    """Yield where two reports of other code differ in a number, name or digest that both have; sentences may differ."""
    match saved, rendered:
        case dict(), dict():
            for name in saved.keys() & rendered.keys():
                yield from _differing_values(saved[name], rendered[name], f"{pointer}/{name}")
        case list(), list() if len(saved) == len(rendered):
            for place, pair in enumerate(zip(saved, rendered, strict=True)):
                yield from _differing_values(*pair, f"{pointer}/{place}")
        case (str(), str()) if " " in saved and " " in rendered:
            pass
        case (str() | int() | float() | None, str() | int() | float() | None) if saved != rendered:
            before, after = (one_line(str(value), MOST_CHARS) for value in (saved, rendered))
            yield f"{pointer} is {before}, the trail gives {after}"
        case _:
            pass


def _difference(name: str, saved: bytes, rendered: bytes) -> str:
    """Return where a file first differs from the trail; empty if nowhere."""
    if saved == rendered:
        return ""
    lines = [data.decode("utf-8", "replace").split("\n") if data else [] for data in (saved, rendered)]
    for number, (there, text) in enumerate(zip_longest(*lines), 1):
        if there != text:
            start = max(0, len(commonprefix([there or "", text or ""])) - _BEFORE)
            reported_text, message = (
                "nothing" if current_text is None else f"'{one_line(current_text[start:], MOST_CHARS)}'"
                for current_text in (there, text)
            )
            return f"{name} line {number} says {reported_text}, the trail says {message}"
    return f"{name} has bytes that are not text"
