"""A part of the planted set goes through whole sessions; ``python -m bench.attack --family secrets`` has all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from bench.attack.secrets import run_in_process
from reviews.trail.tables.open_table import read_entries
from sessions.pages.report.live_display import Terminal
from specs.jobs.job_records import JobOrder
from specs.loading.loading import load_spec
from specs.system.errors import SpecError, UserError
from specs.system.masking import Masker
from testing.factories.evidence_on_disk import resolved_spec
from testing.fixtures.quick_session import QuickLauncher, Silent, drive, healthy_rows, open_quick, quick_session

pytestmark = pytest.mark.integration

VALUE = "zt5-Kq8wPlm-20fj3"


def test_planted_secrets_are_nowhere_in_what_a_session_leaves(tmp_path: Path) -> None:
    outcome = run_in_process(1, tmp_path, 9)
    assert outcome.missed == [] and outcome.attempts > 40


def test_the_attack_reports_what_is_left_when_nothing_is_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Masker, "_spans", lambda self, text, **_: [])  # pyright: ignore[reportUnknownLambdaType,reportUnknownArgumentType]
    missed = "\n".join(run_in_process(1, tmp_path, 19).missed)
    for area in ("trail", "store", "run folder", "transcript", "terminal"):
        assert f"is in the {area}" in missed, area


def test_rows_with_a_known_value_do_not_count_and_are_kept_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_API_KEY", VALUE)

    def leaking(order: JobOrder) -> list[dict[str, Any]]:
        rows = healthy_rows(order)
        return [*rows[:-1], rows[-1] | {"output": f"lowercase {VALUE}"}]

    run, display = open_quick(tmp_path), Silent()
    drive(quick_session(run, launcher=QuickLauncher(leaking), display=cast(Terminal, display)))
    assert any(
        "the job's output 'rows' contains the value of SERVICE_API_KEY; it does not count" in line
        for line in display.lines
    )
    assert read_entries(run / "trail.sqlite")[-1].raw["outcome"] in ("escalate", "revise", "reject")
    assert [path for path in (run / "store").rglob("*") if path.is_file() and VALUE.encode() in path.read_bytes()] == []


def test_a_spec_and_data_with_a_secret_are_refused_and_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved_spec(tmp_path)
    path = tmp_path / "spec.yaml"
    source = path.read_text(encoding="utf-8")
    path.write_text(f"# ghp_{'a1B2' * 9}\n{source}", encoding="utf-8")
    with pytest.raises(SpecError) as refused:
        load_spec(path)
    (problem,) = refused.value.problems
    assert (problem.line, problem.column) == (1, 3) and "a1B2" not in str(refused.value)
    path.write_text(source, encoding="utf-8")
    monkeypatch.setenv("SERVICE_PASSWORD", (tmp_path / "prompts.jsonl").read_text(encoding="utf-8")[:40])
    (tmp_path / "again").mkdir()
    with pytest.raises(UserError, match="contains the value of SERVICE_PASSWORD"):
        open_quick(tmp_path / "again")
    assert not list((tmp_path / "again" / "runs").glob("*"))
