"""Writes the folder of `peergate export paper`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from reviews.audit.verify import verify_run
from sessions.exports.paper.claims import CitedSession, ClaimList
from sessions.exports.paper.contents import PaperSession, sections_of, title_of
from sessions.exports.paper.document import Citation, Paragraph, Table, csv_table, latex_of, latex_table, markdown_of
from sessions.exports.paper.references import bibliography, used_parts
from sessions.exports.paper.reproduction import write_reproduction
from sessions.exports.source import ExportSource
from sessions.pages.report.report import draw_plots, recorded_report, report_so_far
from sessions.run.run_layout import REPORT_JSON, STORE, trail_name
from specs.system.digests import digest_bytes
from specs.system.errors import AuditDamage, EvidenceMissing, UserError
from specs.system.masking import current
from specs.system.regular_files import read_regular
from specs.system.text import one_line
from specs.trail.session_bodies import ReplicationEntry, ReportEntry

REPORTS = "reports"
"""The folder of the sessions' reports, of which claims are parts."""


def write(sources: Sequence[ExportSource], folder: Path) -> list[str]:
    """Write the paper of one session, or of several of one design that differ in their seed; returns a line a part.

    Raises:
        UserError: two sessions have one name, or another design, or a file holds a secret.
        AuditDamage: a trail or its evidence does not verify.
        EvidenceMissing: it cannot be verified here, or one of several sessions did not come to its comparison.
    """
    names = [source.history.session for source in sources]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"duplicate session '{repeated}'", hint="name each session once")
    claims = ClaimList()
    (folder / REPORTS).mkdir()
    sessions = [_read(source, folder, claims) for source in sources]
    histories = [source.history for source in sources]
    over_seeds = len(sources) > 1 or histories[0].find(ReplicationEntry) is not None
    parts = used_parts(histories, [session.cited.report for session in sessions], over_seeds=over_seeds)
    sections = sections_of(sessions, parts)
    lacks = [
        f"{source.history.session}: not in the package: {current().text(line)}"
        for source in sources
        for line in write_reproduction(folder / "reproduction" / source.history.session, source.history, parts)
    ]
    blocks = [block for section in sections for block in section.blocks]
    keys = {
        part.key
        for block in blocks
        if isinstance(block, Paragraph)
        for part in block.line
        if isinstance(part, Citation)
    }
    (folder / "tables").mkdir()
    for table in (block for block in blocks if isinstance(block, Table)):
        _write(folder / "tables" / f"{table.name}.csv", csv_table(table))
        _write(folder / "tables" / f"{table.name}.tex", latex_table(table))
    listed = list(claims)
    _write(folder / "paper.md", markdown_of(title_of(sessions), sections, listed))
    _write(folder / "paper.tex", latex_of(title_of(sessions), sections, listed))
    _write(folder / "references.bib", bibliography(keys))
    _write(folder / "claims.json", json.dumps({"schema_version": 1, "claims": claims.as_json()}, indent=2) + "\n")
    tables = sum(isinstance(block, Table) for block in blocks)
    return [f"paper.md, paper.tex: {len(listed)} claims, {tables} tables, {len(keys)} references", *lacks]


def _read(source: ExportSource, folder: Path, claims: ClaimList) -> PaperSession:
    """Verify a session, keep its report in the paper's folder and draw its plots."""
    run, history = source
    audit = verify_run(run, trail_name(run), STORE)
    hint = "`peergate audit verify` says more"
    if audit.damage:
        message = f"does not verify, so no paper is written: {one_line(audit.damage[0], 300)}"
        raise AuditDamage(message, where=str(run), hint=hint)
    if not audit.readable:
        why = one_line("; ".join(audit.notes), 300)
        raise EvidenceMissing(f"cannot be verified here: {why}", where=str(run), hint=hint)
    is_recorded = history.find(ReportEntry) is not None
    report = recorded_report(run, history) if is_recorded else current().value(report_so_far(run, history))
    data = read_regular(run / REPORT_JSON) if is_recorded else json.dumps(report, indent=2).encode()
    (folder / REPORTS / f"{history.session}.json").write_bytes(data)
    figures = folder / "figures" / history.session
    plots = draw_plots(figures, report, history, "svg")
    draw_plots(figures, report, history, "pdf")
    return PaperSession(CitedSession(history, report, digest_bytes(data), claims, run), run, tuple(plots))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
