"""What the checks of one gate share, and what they do not: nothing lives longer than the gate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.checks.definition import CheckOutcome, GateCheck
from reviews.evidence import row_reader
from reviews.evidence.row_reader import read_rows
from reviews.gate import check_list
from reviews.gate.check_list import run_checks
from reviews.gate.measurer import measure
from reviews.stages.evaluation.judged_answers import judged_rows
from specs.stages.evaluation.rows import EvaluationRow
from specs.system.errors import EvidenceMissing
from testing.factories.evidence_on_disk import N, answers, evidence_of, samples, write_rows


def right(path: Path) -> int:
    """Count the answers of a file that are not empty text."""
    return sum(bool(row.output) for row in read_rows(path, EvaluationRow, "rows"))


def wrong(path: Path) -> Path:
    return write_rows(path, [row | {"output": ""} for row in answers([True] * N)])


def test_a_gate_reads_rows_once_and_the_next_one_anew(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", answers([True] * N))
    with row_reader.gate_cache():
        assert right(path) == N
        assert right(wrong(path)) == N, "all checks of a gate judge the same bytes"
    assert right(path) == 0
    with row_reader.gate_cache():
        assert right(path) == 0
        path.unlink()
        with pytest.raises(EvidenceMissing, match="missing"):
            right(path)


def test_a_stage_is_measured_with_one_reading_of_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, read = evidence_of(tmp_path, "sample", samples()), list[str]()
    parse = row_reader._parse_rows  # pyright: ignore[reportPrivateUsage]

    def counted(path: Path, *arguments: Any) -> Any:
        read.append(path.name)
        return parse(path, *arguments)

    monkeypatch.setattr(row_reader, "_parse_rows", counted)
    metrics = measure(evidence)
    assert read == ["rows.jsonl"]
    run_checks(evidence, metrics)
    assert read.count("rows.jsonl") == 2, "all checks together read them once more"


def test_rows_of_a_large_file_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_reader, "_MOST_CACHED_BYTES", 10)
    path = write_rows(tmp_path / "rows.jsonl", answers([True] * N))
    with row_reader.gate_cache():
        assert right(path) == N and right(wrong(path)) == 0


def test_a_file_that_may_be_empty_for_one_check_is_missing_for_another(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [])
    with row_reader.gate_cache():
        assert read_rows(path, EvaluationRow, "rows", may_be_empty=True) == ()
        with pytest.raises(EvidenceMissing, match="rows are empty"):
            read_rows(path, EvaluationRow, "rows")


def test_answers_are_judged_once_for_each_evidence(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "base")
    path = evidence.outputs["rows"]
    with row_reader.gate_cache():
        first = judged_rows(evidence, path)
        assert judged_rows(evidence, path) is first
        assert judged_rows(replace(evidence), path) is not first
    assert judged_rows(evidence, path) is not judged_rows(evidence, path)


def test_a_secret_that_one_check_shows_is_masked_and_the_others_say_what_they_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "ghp_" + "a1B2" * 9

    def warn_of_row(*_: object) -> CheckOutcome:
        return CheckOutcome("WARN", f"the log says {key}", rows=({"line": key},))

    evidence = evidence_of(tmp_path, "base")
    before = run_checks(evidence, None)
    extra = GateCheck("own.leaks", "t", lambda _: True, warn_of_row, "s", blocking=False)
    monkeypatch.setattr(check_list, "CHECKS", (*check_list.CHECKS, extra))
    *others, leaks = run_checks(evidence, None)
    assert tuple(others) == before
    assert key not in leaks.model_dump_json() and leaks.detail == "the log says [masked: a key]"
