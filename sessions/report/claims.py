"""A session's report held against its trail: every number followed to the metrics entry, the code and the raw rows.

Nothing is believed on the way: files are compared with their recorded digests, the metric is computed again from the
rows, and what the builder claimed is looked up again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from reviews.audit.metric_lines import parts_of
from reviews.checks.claim_lookup import look_up
from reviews.checks.measuring_code import measuring_code
from reviews.evidence.gather import gather, registered_spec
from reviews.evidence.row_lines import BASELINE, ROWS, Part
from reviews.evidence.weight_lineage import Lineage
from reviews.gate.measurer import measure
from reviews.trail.envelope import Recorded
from reviews.trail.store import Store
from sessions.report.stated import Stated, stated_in_json, stated_in_markdown
from specs.digests import digest_bytes
from specs.errors import EvidenceMissing, PeergateError, UserError
from specs.stages.metric import Metric, MetricSet
from specs.stages.metric_catalog import METRICS
from specs.trail.grant_and_claim import ClaimResult

REPORT_JSON, REPORT_MARKDOWN = "report/report.json", "report/report.md"
_NAME = re.compile(r"(?:([^.]+)\.(?:(\d+)\.)?)?(\w+)")


class Measured(NamedTuple):
    """One metric as the entry of an attempt recorded it."""

    entry: Recorded
    digest: str
    """Of the metric set."""
    set: MetricSet
    metric: Metric

    @property
    def name(self) -> str:
        """What it is called by: STAGE.ATTEMPT.METRIC."""
        return f"{self.set.stage}.{self.set.attempt}.{self.metric.id}"


class Statement(NamedTuple):
    """A number in the report, what it should be, and why it is not that; empty when it is."""

    stated: Stated
    measured: Measured | None
    problem: str


class Rows(NamedTuple):
    """A file of raw rows: which, where it was recorded, and why it is not that; empty when it is."""

    name: str
    digest: str
    entry: Recorded | None
    path: str
    problem: str


class Claimed(NamedTuple):
    """What a builder claimed of a metric: the packet that showed it, and what was and what is found for it."""

    packet: Recorded
    recorded: ClaimResult
    now: ClaimResult


class Traced(NamedTuple):
    """A number of the report, followed to its rows."""

    measured: Measured
    statements: tuple[Statement, ...]
    rows: tuple[Rows, ...]
    same_code: bool
    """Whether it was measured by the code that is at hand."""
    again: float | None
    """What the rows give now; None when they give nothing."""
    parts: tuple[Part, ...]
    claims: tuple[Claimed, ...]
    lineages: dict[str, Lineage]
    """By role, where the checkpoints come from that were measured."""
    problems: tuple[str, ...]


class Report:
    """The report of a session beside its trail.

    Args:
        folder: the run folder, or an export.
        entries: the whole trail.
        store: the content store.
        apart: the report's files lie beside the store (a run folder), not in it (an export).

    Raises:
        UserError: no report was written yet.
        AuditDamage: a metric set was changed.
        EvidenceMissing: a metric set is not in the store.
    """

    def __init__(self, folder: Path, entries: Sequence[Recorded], store: Store, *, apart: bool) -> None:
        self._folder, self._entries, self._store, self._apart = folder, entries, store, apart
        written = next((one for one in reversed(entries) if one.entry.kind == "report"), None)
        if written is None:
            raise UserError("there is no report yet", where=str(folder), hint="it is written when the session closes")
        self.entry = written
        self.problems: list[str] = []
        """What there is against the report as a whole."""
        self.measured = tuple(self._measured())
        self.statements = tuple(self._statement(one) for one in self._stated())

    def _measured(self) -> Iterator[Measured]:
        for one in self._entries:
            digest = one.body.get("metrics") if one.entry.kind == "metrics" else None
            if digest:
                found = MetricSet.model_validate_json(self._store.get(digest))
                for metric in found.metrics.values():
                    yield Measured(one, digest, found, metric)

    def _stated(self) -> Iterator[Stated]:
        try:
            yield from stated_in_json(json.loads(self._file(REPORT_JSON) or "{}"))
        except (ValueError, RecursionError) as error:
            self.problems.append(f"{REPORT_JSON} is no JSON: {str(error).splitlines()[0]}")
        analysis = registered_spec(self._entries, self._store)[0].spec.analysis
        text = (self._file(REPORT_MARKDOWN) or b"").decode("utf-8", "replace")
        yield from stated_in_markdown(
            text, analysis.baseline, analysis.treatment, frozenset(METRICS), analysis.primary_metric
        )

    def _file(self, name: str) -> bytes | None:
        recorded = str(self.entry.body.get("files", {}).get(name))
        try:
            data = (self._folder / name).read_bytes() if self._apart else self._store.get(recorded)
        except (OSError, PeergateError) as error:
            self.problems.append(f"{name} cannot be read: {str(error).splitlines()[0]}")
            return None
        if digest_bytes(data) != recorded:
            self.problems.append(f"{name} is {digest_bytes(data)}, entry {self.entry.entry.seq} recorded {recorded}")
        return data

    def _statement(self, stated: Stated) -> Statement:
        """Find what a number should be. Without an attempt it is of the stage's newest, as the comparison is."""
        of_metric = [one for one in self.measured if one.metric.id == stated.metric]
        if stated.metric_set is not None:
            fitting = [one for one in of_metric if one.digest == stated.metric_set]
        else:
            fitting = [
                one for one in of_metric if one.set.stage == stated.stage and stated.attempt in (None, one.set.attempt)
            ]
        if not fitting:
            return Statement(
                stated, None, f"{stated.where} states {stated.metric} {stated.value}, which was not measured"
            )
        found = fitting[-1]
        problem = ""
        if not stated.agrees(found.metric):
            measured = stated.measured(found.metric)
            told = "none" if measured is None else format(measured, ".10g")
            what = stated.metric if stated.part == "value" else f"{stated.part} of {stated.metric}"
            problem = f"{stated.where} states {what} {stated.value}, entry {found.entry.entry.seq} measured {told}"
        return Statement(stated, found, problem)

    def called(self, name: str) -> tuple[Measured, ...]:
        """Return the metrics of a name: METRIC, STAGE.METRIC or STAGE.ATTEMPT.METRIC.

        Raises:
            UserError: there is none.
        """
        parts = _NAME.fullmatch(name)
        stage, attempt, metric = parts.groups() if parts else (None, None, None)
        found = tuple(
            one
            for one in self.measured
            if one.metric.id == metric and stage in (None, one.set.stage) and attempt in (None, str(one.set.attempt))
        )
        if not found:
            names = ", ".join(sorted({one.metric.id for one in self.measured})) or "none"
            raise UserError(
                f"nothing was measured that is called '{name}'",
                hint=f"METRIC, STAGE.METRIC or STAGE.ATTEMPT.METRIC of: {names}",
            )
        return found

    def trace(self, one: Measured) -> Traced:
        """Follow a metric to the code and the rows it was computed from, and back to whoever states it."""
        statements = tuple(each for each in self.statements if each.measured == one)
        rows = [self._rows(name, digest) for name, digest in one.set.rows.items()]
        problems: list[str] = []
        again, parts, ways = None, (), dict[str, Lineage]()
        try:
            evidence = gather(
                self._folder, self._entries[: one.entry.entry.seq], self._store, one.set.stage, one.set.attempt
            )
            ways = evidence.lineages
            computed = measure(evidence).metrics.get(one.metric.id)
            again = computed.value if computed else None
            parts = parts_of(evidence, one.metric.id)
            # The labelled sample of a critic, the pairs: what else the metric is computed from.
            files = dict.fromkeys(part.file for part in parts if part.file not in (ROWS, BASELINE))
            rows += [self._rows(file, evidence.output_digests[file]) for file in files]
        except (EvidenceMissing, PeergateError) as error:
            problems.append(f"the rows give nothing now: {str(error).splitlines()[0]}")
        problems[:0] = [each.problem for each in (*statements, *rows) if each.problem]
        same_code = one.set.code == measuring_code()
        if again is not None and again != one.metric.value:
            by = "" if same_code else ", by other code than is at hand"
            problems.append(
                f"the rows give {again:.10g}, entry {one.entry.entry.seq} recorded {one.metric.value:.10g}{by}"
            )
        claims = tuple(self._claims(one))
        problems += [
            f"entry {each.packet.entry.seq} calls a claim of {each.recorded.claim.value:.10g} {each.recorded.status}, "
            f"looked up again it is {each.now.status}"
            for each in claims
            if each.now != each.recorded
        ]
        return Traced(one, statements, tuple(rows), same_code, again, parts, claims, ways, tuple(problems))

    def _rows(self, name: str, digest: str) -> Rows:
        for one in self._entries:
            for output in one.body.get("outputs", {}).values() if one.entry.kind == "exit" else ():
                if output["digest"] == digest:
                    return Rows(name, digest, one, str(output["path"]), self._differs(digest))
        return Rows(name, digest, None, "", f"no job left the rows {digest}")

    def _differs(self, digest: str) -> str:
        try:
            self._store.get(digest)
        except PeergateError as error:
            return str(error).splitlines()[0]
        return ""

    def _claims(self, one: Measured) -> Iterator[Claimed]:
        """Yield what packets show of the builder's claims about a metric, looked up again."""
        for packet in self._entries:
            if packet.entry.kind != "packet":
                continue
            shown = json.loads(self._store.get(packet.body["packet"])).get("claims", ())
            for recorded in (ClaimResult.model_validate(each) for each in shown):
                own = packet.body.get("stage") == one.set.stage
                if (recorded.claim.stage, recorded.claim.metric) != (one.set.stage, one.metric.id):
                    continue
                if not own or packet.body.get("attempt") == one.set.attempt:
                    yield Claimed(packet, recorded, look_up([recorded.claim], {one.set.stage: one.set})[0])
