"""A body of any kind that does not have its form is a finding of the audit, with its exit code, and never a crash."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.audit.recompute import rederive
from reviews.audit.verify import Audit, check_meaning
from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from reviews.trail.trail import Trail
from specs.trail.bodies import FORMS, VERSION
from specs.trail.entry import EntryKind
from testing.factories.bodies import BODIES, append_json, body_of
from testing.factories.forgery import chained, entries_of, keys_of, put, rows_of
from testing.fixtures.command_sessions import verify

ONLY_COMPARED_WITH_THEIR_FORM = {"call", "model", "report", "result", "spend"}
"""Kinds of a session without people whose bodies nothing else is compared with but files."""


def spoiled(kind: str, body: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield a body without a field that it needs, then one with a value of another type, each with what is wrong."""
    required = next((name for name, field in FORMS[kind].model_fields.items() if field.is_required()), None)
    if required is not None:
        yield {name: value for name, value in body.items() if name != required}, f"body.{required} is missing"
    for name in body:
        yield body | {name: [[]]}, f"body.{name}"


@pytest.mark.parametrize("kind", sorted(FORMS))
def test_the_command_names_the_entry_and_ends_with_1(kind: EntryKind, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "small"
    trail = Trail(run / "trail.sqlite", "small")
    append_json(trail, "open", "open", body_of("open"))
    trail.close()
    keys, opened = keys_of(trail.path), entries_of(rows_of(trail.path))[0]
    for body, problem in list(spoiled(kind, BODIES[kind]))[:2]:
        entries = [opened.model_copy(update={"body": body})]
        if kind != "open":
            entries = [opened, opened.model_copy(update={"kind": kind, "key": kind, "body": body, "policy": None})]
        put(trail.path, chained(entries, keys), keys)
        code, report = verify(run)
        assert code == 1 and report["verdict"] == "tampered", report
        assert f"entry {len(entries) - 1} ({kind}): does not have its form: {problem}" in str(report["damage"]), report


def audited(run: Path, entries: Sequence[RecordedEntry]) -> Audit:
    """Audit what entries mean, without the comparison of each body with its form that comes before."""
    audit, history = Audit(path=run), History(entries, Store(run / "store"))
    check_meaning(audit, history)
    rederive(run, history, audit.damage, audit.notes)
    return audit


def changed(recorded: RecordedEntry, **changes: Any) -> RecordedEntry:
    return replace(recorded, entry=recorded.entry.model_copy(update=changes))


def test_what_reads_bodies_reports_one_that_does_not_fit(closed_quick: Path) -> None:
    every = read_entries(closed_quick / "trail.sqlite")
    assert audited(closed_quick, every).damage == []
    first = {entry.kind: entry for entry in reversed(every)}
    assert len(first) > 15
    silent: set[str] = set()
    for kind, entry in first.items():
        body, _ = next(spoiled(kind, entry.raw))
        entries = [changed(other, body=body) if other is entry else other for other in every]
        if not audited(closed_quick, entries).damage:
            silent.add(kind)
    assert silent == ONLY_COMPARED_WITH_THEIR_FORM


def test_a_newer_body_raises_nothing(closed_quick: Path) -> None:
    every = read_entries(closed_quick / "trail.sqlite")
    for kind in {entry.kind for entry in every}:
        newer = {"version": VERSION + 1, "body": {"anything": [kind]}}
        audited(closed_quick, [changed(entry, **newer) if entry.kind == kind else entry for entry in every])
