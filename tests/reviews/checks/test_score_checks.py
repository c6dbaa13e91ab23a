"""The check of scores that a witness computed: honest ones pass, and each way to have other ones is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.checks.definition import apply
from reviews.checks.score_checks import CHECKS, wrong_scores
from reviews.evidence.evidence import Evidence
from specs.stages.base.witness import SCORE_GAP, SCORE_SPREAD, SPREAD_ROWS, ScoredRow
from specs.stages.registry import STAGE_KINDS
from specs.trail.verdict import CheckResult
from testing.factories.critic_evidence import JUDGED, critic_evidence
from testing.factories.evidence_on_disk import with_manifest, write_rows

(CHECK,) = CHECKS
FINE, COARSE = SCORE_GAP["float32"], SCORE_GAP["bfloat16"]


def judged(evidence: Evidence, dtype: str = "float32") -> CheckResult:
    made = with_manifest(evidence, dtype=dtype)
    assert made.witness is not None
    return apply(CHECK, replace(made, witness=made.witness._replace(manifest=made.manifest)), None)


def with_scored_row(evidence: Evidence, place: int, **changes: Any) -> Evidence:
    """Change what the witness says of the row at a place of its file."""
    assert evidence.witness is not None and evidence.witness.rows is not None
    lines = [json.loads(line) for line in evidence.witness.rows.read_text(encoding="utf-8").splitlines()]
    write_rows(evidence.witness.rows, [line | changes if n == place else line for n, line in enumerate(lines)])
    return evidence


def apart(nats: float, tokens: int = 1) -> dict[str, Any]:
    return {"text": {"stated": -20.0, "read": -20.0 - nats, "tokens": tokens}}


def test_scores_that_the_weights_give_pass_and_say_how_many_were_read(tmp_path: Path) -> None:
    evidence = critic_evidence(tmp_path, "critique_instructions")
    assert evidence.witness is not None
    count, of = evidence.witness.challenge.counts()
    check = judged(with_scored_row(evidence, 0, scores=apart(0.9 * FINE)))
    assert check.status == "PASS" and check.detail.startswith(f"{count} of {of} rows scored again"), check.detail


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"scores": apart(1.1 * FINE)}, "text is -20, not -20.0011"),
        ({"scores": apart(-1.1 * FINE)}, "text is -20, not -19.9989"),
        ({"scores": apart(3.1 * FINE, 9)}, "text is -20"),
        ({"differs": ["verdict", "label"]}, "not as it is due: verdict, label"),
        ({"scores": {}}, "says nothing of its scores"),
    ],
)
def test_each_row_that_they_do_not_give_fails_and_is_shown(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    check = judged(with_scored_row(critic_evidence(tmp_path, "critique_instructions"), 1, **changes))
    assert check.status == "FAIL" and check.figure == 1 and not check.repairable
    (fields,) = check.rows
    assert (fields["output"], fields["row"]) == ("rows", 1) and why in fields["why"]


def test_the_tolerance_is_that_of_the_number_type_and_grows_with_the_root_of_the_tokens(tmp_path: Path) -> None:
    evidence = critic_evidence(tmp_path, "best_of_n")
    assert judged(evidence).status == "PASS"
    last = len(_lines(evidence)) - 1
    assert judged(with_scored_row(evidence, last, scores=apart(2.9 * FINE, 9))).status == "PASS"
    with_scored_row(evidence, last, scores=apart(0.9 * COARSE))
    assert [judged(evidence, dtype).status for dtype in ("bfloat16", "float32", "float16")] == [
        *("PASS", "FAIL", "BLOCKED")
    ]


def _lines(evidence: Evidence) -> list[bytes]:
    assert evidence.witness is not None and evidence.witness.rows is not None
    return evidence.witness.rows.read_bytes().splitlines()


def test_a_difference_that_no_row_shows_is_found_in_all_of_them(tmp_path: Path) -> None:
    evidence = critic_evidence(tmp_path, "critique_instructions")
    count, limit = len(_lines(evidence)), SCORE_SPREAD["float32"]
    assert count >= SPREAD_ROWS and limit < 0.5 * FINE
    for factor, status in ((0.9, "PASS"), (1.1, "FAIL")):
        for place in range(count):
            with_scored_row(evidence, place, scores=apart((-1) ** place * factor * limit))
        assert judged(evidence).status == status
    assert "all scores together" in judged(evidence).rows[0]["why"]
    rows = [ScoredRow.model_validate_json(line) for line in _lines(evidence)]
    assert not list(wrong_scores(rows[: SPREAD_ROWS - 1], "float32"))


def test_what_no_witness_scored_blocks(tmp_path: Path) -> None:
    evidence = critic_evidence(tmp_path, "best_of_n")
    assert evidence.witness is not None and evidence.witness.rows is not None
    challenge = evidence.witness.challenge
    unasked = evidence.witness._replace(challenge=challenge.model_copy(update={"others": None}))
    check = judged(replace(evidence, witness=unasked))
    assert check.status == "BLOCKED" and "comparisons, calibration" in check.detail
    evidence.witness.rows.write_bytes(b"\n".join(_lines(evidence)[:-1]) + b"\n")
    assert judged(evidence).status == "BLOCKED"
    assert apply(CHECK, replace(evidence, witness=None), None).status == "BLOCKED"


def test_a_stage_without_scores_has_none_to_read(tmp_path: Path) -> None:
    assert judged(critic_evidence(tmp_path, "revise")).status == "NOT_APPLICABLE"
    assert judged(critic_evidence(tmp_path, "revise", stage=JUDGED)).status == "PASS"
    assert not CHECK.belongs_to(STAGE_KINDS["evaluate"])
