"""The check of what a witness read: honest answers pass, and each way to have other ones is named."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.checks.definition import apply
from reviews.checks.witness_checks import CHECKS, wrong_rows
from reviews.evidence.evidence import WitnessEvidence
from specs.jobs.job_records import Challenge
from specs.stages.base.witness import GREEDY_GAP, TILTS, WitnessRow
from specs.system.digests import digest_bytes
from specs.trail.verdict import CheckResult
from testing.factories.evidence_on_disk import evidence_of, write_rows

(CHECK,) = CHECKS
WEIGHTS = (0.5, 0.25, 0.15, 0.1)
"""The distribution that honest tokens below are drawn from."""
TILTED = [math.log(sum(weight**tilt for weight in WEIGHTS)) for tilt in TILTS]
UNLIKELY = {"before": 0.9, "own": 0.01, "tilted": TILTED}


def greedy(row: int, **changes: Any) -> dict[str, Any]:
    return {"row": row, "tokens": 9, "text": True, "ending": True, "gap": 1e-5} | changes


def drawn(row: int, choose: Sequence[float], generator: random.Random, tokens: int = 40) -> dict[str, Any]:
    """Return a sampled answer whose tokens were drawn with the weights ``choose`` instead of :data:`WEIGHTS`."""
    places = generator.choices(range(len(WEIGHTS)), choose, k=tokens)
    lines = [{"before": sum(WEIGHTS[:place]), "own": WEIGHTS[place], "tilted": TILTED} for place in places]
    return greedy(row, gap=None, beyond=-0.1, drawn=lines, tokens=tokens)


def judged(folder: Path, rows: list[dict[str, Any]] | None, places: Sequence[int] = (), **changes: Any) -> CheckResult:
    """Apply the check to a witness that left these rows, and was asked for those or for others."""
    evidence = evidence_of(folder, "base")
    assert evidence.manifest is not None
    manifest = evidence.manifest.model_copy(update={"dtype": changes.pop("dtype", "float32")})
    path = write_rows(folder / "witness.jsonl", rows) if rows is not None else None
    witness = WitnessEvidence(challenged(places or range(len(rows or ()))), path, manifest, changes.pop("why", ""))
    return apply(CHECK, replace(evidence, witness=witness), None)


def challenged(rows: Sequence[int], seed: int = 0) -> Challenge:
    return Challenge(ended=digest_bytes(f"end {seed}".encode()), of=50, rows=tuple(rows))


def test_answers_that_the_weights_write_pass_and_say_how_many_were_read(tmp_path: Path) -> None:
    check = judged(tmp_path, [greedy(0), greedy(1, gap=GREEDY_GAP["float32"])])
    assert check.status == "PASS" and check.detail.startswith("2 of 50 rows recomputed"), check.detail


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"gap": 1.01e-3}, "below the largest logit"),
        ({"text": False}, "not that of its token ids"),
        ({"ending": False}, "does not end here"),
        ({"gap": None}, "says nothing"),
        ({"gap": None, "beyond": 0.002, "drawn": [UNLIKELY]}, "outside the nucleus"),
    ],
)
def test_each_row_that_they_do_not_write_fails_and_is_shown(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    check = judged(tmp_path, [greedy(0), greedy(1, **changes)])
    assert check.status == "FAIL" and check.figure == 1 and not check.repairable
    assert check.rows[0]["row"] == 1 and why in check.rows[0]["why"]


def test_the_tolerance_is_that_of_the_number_type(tmp_path: Path) -> None:
    rows = [greedy(0, gap=0.3)]
    assert judged(tmp_path, rows, dtype="bfloat16").status == "PASS"
    assert judged(tmp_path, rows, dtype="float32").status == "FAIL"
    assert judged(tmp_path, rows, dtype="float16").status == "BLOCKED"


def test_what_no_witness_read_blocks(tmp_path: Path) -> None:
    assert judged(tmp_path, None, why="it ended with code 1").status == "BLOCKED"
    # Killed after its last file was written.
    assert judged(tmp_path, [greedy(0)], why="it ended with code -9 (signal)").status == "BLOCKED"
    assert judged(tmp_path, [greedy(0)], places=(0, 3)).status == "BLOCKED"
    assert judged(tmp_path, [greedy(0), greedy(0)], places=(0,)).status == "BLOCKED"
    nobody = apply(CHECK, replace(evidence_of(tmp_path, "base"), witness=None), None)
    assert nobody.status == "BLOCKED" and "no witness was asked" in nobody.detail


def test_honest_samples_raise_no_more_alarms_than_are_allowed() -> None:
    """In 2,000 stages 0.2 alarms are expected at a rate of 1e-4 each."""
    generator, alarms = random.Random(4), 0
    for seed in range(2000):
        answers = [drawn(row, WEIGHTS, generator, 2 if seed % 2 else 12) for row in range(6)]
        first = answers[0]["drawn"]
        for answer in answers[1:]:
            answer["copies"] = {"of": 1, "same": int(answer["drawn"] == first)}
        rows = [WitnessRow.model_validate(row) for row in answers]
        alarms += any(wrong_rows(f"end {seed}", rows, "float32"))
    assert alarms <= 2


@pytest.mark.parametrize(
    ("weights", "why"),
    [((0.8, 0.1, 0.06, 0.04), "if they are colder draws"), ((0.25, 0.25, 0.25, 0.25), "if they are hotter draws")],
    ids=["colder", "hotter"],
)
def test_samples_of_another_temperature_fail(tmp_path: Path, weights: tuple[float, ...], why: str) -> None:
    generator = random.Random(4)
    check = judged(tmp_path, [drawn(row, weights, generator) for row in range(12)])
    assert check.status == "FAIL" and why in json.dumps(check.rows)


def test_a_temperature_that_no_single_answer_shows_is_found_in_all_of_them(tmp_path: Path) -> None:
    generator = random.Random(4)
    warmer = [weight**0.8 for weight in WEIGHTS]
    check = judged(tmp_path, [drawn(row, warmer, generator, 60) for row in range(150)])
    assert check.status == "FAIL" and "all sampled answers together" in check.rows[-1]["why"], check.rows


def test_one_repaired_answer_among_honest_ones_fails(tmp_path: Path) -> None:
    generator = random.Random(4)
    rows = [drawn(row, WEIGHTS, generator) for row in range(20)]
    assert judged(tmp_path, rows).status == "PASS"
    rows[7] = drawn(7, (0, 0, 0, 1), generator)
    check = judged(tmp_path, rows)
    assert check.status == "FAIL" and check.rows[0]["row"] == 7


def test_samples_that_are_copies_fail_where_each_looks_drawn(tmp_path: Path) -> None:
    """Each second answer to a prompt is the first one again; of honest ones some are alike too."""
    generator = random.Random(4)
    honest = [drawn(row, WEIGHTS, generator, 3) | counted_among(row, 0) for row in range(60)]
    assert judged(tmp_path, honest).status == "PASS"
    copied = [fields | counted_among(row, row % 2) for row, fields in enumerate(honest)]
    check = judged(tmp_path, copied)
    assert check.status == "FAIL" and "if they are copies of each other" in check.rows[-1]["why"], check.rows


def counted_among(row: int, same: int) -> dict[str, Any]:
    return {"copies": {"of": 1, "same": same}} if row % 2 else {}


def test_greedy_answers_among_samples_fail_where_each_could_be_drawn(tmp_path: Path) -> None:
    generator = random.Random(4)
    honest = [drawn(row, WEIGHTS, generator, 2) for row in range(60)]
    assert judged(tmp_path, honest).status == "PASS"
    most = drawn(0, (1, 0, 0, 0), generator, 2)["drawn"]
    check = judged(tmp_path, [row | {"drawn": most} if row["row"] % 3 else row for row in honest])
    assert check.status == "FAIL" and "if they are greedy answers" in check.rows[-1]["why"], check.rows
