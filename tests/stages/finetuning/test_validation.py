"""Examples kept out of training: whole groups, read when it is due, and what their loss says."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.checks.definition import apply
from reviews.evidence.evidence import Evidence
from reviews.gate.measurer import measure
from reviews.stages.finetuning.replay_checks import _wrong_kept  # pyright: ignore[reportPrivateUsage]
from reviews.stages.finetuning.validation_checks import CHECKS
from specs.stages.base.artifacts import Example
from specs.stages.finetuning.parameters import SftParameters
from testing.factories.evidence_on_disk import evidence_of, examples, steps, write_rows
from training.rules.finetuning.validation_split import divide_examples, measured_after

SPLIT, OVERFIT, _ = CHECKS
SHARE = 0.6
Lines = list[dict[str, Any]]
LOSSES = (2.0, 1.5, 1.0, 1.2, 1.4, 1.6)
"""Of the kept examples, before the first step and after each fifth."""


def kept_rows(losses: Sequence[float] = LOSSES, apart: float = 0.01) -> Lines:
    """Return how the kept ones of five examples were read; each group rises a little more than the one before."""
    every = [Example.model_validate(example) for example in examples()]
    validation = divide_examples(every, SHARE, 7).validation
    return [
        {
            "step": step,
            "example": line,
            "group": every[line].group,
            "tokens": 10,
            "correct": 4,
            "log_probability": -10 * loss * (1 + apart * at * (loss == losses[-1])),
        }
        for step, loss in zip(measured_after(10), losses, strict=True)
        for at, line in enumerate(validation)
    ]


def validated(folder: Path, rows: Lines, change: Callable[[Lines], Any] | None = None, **arguments: Any) -> Evidence:
    """Return the evidence of a training that kept examples out."""
    folder.mkdir(exist_ok=True)
    evidence = evidence_of(folder, "train")
    if change is not None:
        every = examples()
        change(every)
        write_rows(evidence.inputs["examples"], every)
    output = {"validation": write_rows(folder / "validation.jsonl", rows)}
    parameters = evidence.parameters | {"validation_share": SHARE} | arguments
    return replace(evidence, parameters=parameters, outputs=dict(evidence.outputs) | output)


def status_of(evidence: Evidence, check: Any = SPLIT) -> str:
    result = apply(check, evidence, None)
    return f"{result.status}: {result.detail}"


def test_groups_are_whole_and_the_seed_says_which() -> None:
    example = Example.model_validate(examples()[0])
    every = [example.model_copy(update={"item": f"i{n}", "group": f"g{n % 10}"}) for n in range(40)]
    split = divide_examples(every, 0.2, 3)
    selected = {every[place].group for place in split.validation}
    assert (
        len(selected) == 2
        and len(split.validation) == 8
        and sorted([*split.train, *split.validation]) == list(range(40))
    )
    assert not selected & {every[place].group for place in split.train}
    assert split == divide_examples(every, 0.2, 3) and split != divide_examples(every, 0.2, 4)
    assert divide_examples(every, 0, 3).validation == () and divide_examples([example] * 3, 0.5, 3).validation == ()


@pytest.mark.parametrize(("count", "after"), [(1, (0, 1)), (3, (0, 1, 2, 3)), (10, (0, 2, 4, 6, 8, 10))])
def test_they_are_read_before_the_first_step_and_after_each_fifth(count: int, after: tuple[int, ...]) -> None:
    assert measured_after(count) == after


def test_what_is_registered_without_it_keeps_its_digest_and_replicas_refuse_it() -> None:
    assert "validation_share" not in SftParameters().model_dump()
    with pytest.raises(ValueError, match="validation_share is for one process"):
        SftParameters.model_validate({"validation_share": 0.1, "distributed": {"replicas": 2, "sync_every": 4}})


def test_metrics_are_those_of_the_rows_and_a_stage_without_has_none(tmp_path: Path) -> None:
    metrics = measure(validated(tmp_path, kept_rows(apart=0))).metrics
    assert [metrics[f"validation_loss_{name}"].value for name in ("before", "after", "rise")] == [2.0, 1.6, 1.6 - 1.0]
    bare = evidence_of(tmp_path, "train")
    assert not [name for name in measure(bare).metrics if name.startswith("validation")]
    assert {status_of(bare, check).split(":")[0] for check in CHECKS} == {"NOT_APPLICABLE"}


def _repeated(rows: Lines) -> None:
    rows[:] = [row | {"prompt": "Tell a tale.", "completion": "it is short."} for row in rows]


CASES: list[tuple[Callable[[Lines], Lines], Callable[[Lines], Any] | None, str]] = [
    (lambda rows: rows, None, "PASS: 3 examples of 3 groups were kept out"),
    (lambda rows: rows[3:], None, "FAIL: examples were read after steps 2, 4, 6, 8, 10, expected 0, 2, 4, 6, 8, 10"),
    (lambda rows: rows[:-1], None, "FAIL: 2 examples were read after step 10, but not the 3 that were kept out"),
    (lambda rows: [row | {"example": row["example"] + 5} for row in rows], None,
     "FAIL: 3 examples were read after step 0, but not the 3 that were kept out"),
    (lambda rows: [row | {"group": "pg9"} for row in rows], None, "has another group than its line"),
    (lambda rows: [], None, "FAIL: examples were read after steps , expected"),
    (lambda rows: rows, _repeated, "WARN: 3 examples of 3 groups were kept out; 3 are trained on in other groups"),
    (lambda rows: rows, lambda rows: rows.__setitem__(slice(None), [row | {"group": "one"} for row in rows]),
     "WARN: no example was kept out: all are of one group"),
]  # fmt: skip
"""What is done to the rows that were read and to the examples, and what the check says."""


@pytest.mark.parametrize(
    ("rows", "change", "output"),
    CASES,
    ids=["as due", "a step missing", "an example missing", "others", "renamed", "none", "trained on too", "one group"],
)
def test_what_was_read_is_divided_again(tmp_path: Path, rows: Any, change: Any, output: str) -> None:
    assert output in status_of(validated(tmp_path, rows(kept_rows()), change))


@pytest.mark.parametrize(
    ("losses", "arguments", "status"),
    [
        (LOSSES, {}, "WARN"),
        ((2.0, 1.5, 1.0, 1.01, 1.02, 1.08), {}, "PASS"),
        ((2.0, 1.8, 1.6, 1.4, 1.2, 1.0), {}, "PASS"),
        (LOSSES, {"learning_rate": 0}, "NOT_APPLICABLE"),
    ],
    ids=["it rises", "by less than the limit", "it falls", "without a rate"],
)
def test_a_loss_that_rises_on_kept_examples_is_overfitting(
    tmp_path: Path, losses: tuple[float, ...], arguments: dict[str, Any], status: str
) -> None:
    assert status_of(validated(tmp_path, kept_rows(losses), **arguments), OVERFIT).startswith(f"{status}: ")


def test_noise_between_groups_and_a_training_loss_that_rises_too_are_no_overfitting(tmp_path: Path) -> None:
    assert status_of(validated(tmp_path / "a", kept_rows(apart=1.0)), OVERFIT).startswith("PASS")
    rising = validated(tmp_path / "b", kept_rows())
    write_rows(rising.outputs["rows"], [row | {"loss": 1.0 + row["step"]} for row in steps()])
    assert status_of(rising, OVERFIT).startswith("PASS")


def test_a_witness_that_reads_other_scores_closes_the_gate(tmp_path: Path) -> None:
    evidence = validated(tmp_path, kept_rows(apart=0))
    line = kept_rows()[0]["example"]
    right = [[line, -20.0, -16.0, 5]]
    assert list(_wrong_kept(evidence, right)) == []
    for wrong in ([line, -20.0, -17.0, 4], [line, -21.0, -16.0, 4], [99, 0.0, 0.0, 0], [line, math.nan, -16.0, 4],
                  [line, -20.0, -16.0, 6]):  # fmt: skip
        (output,) = _wrong_kept(evidence, [wrong])
        assert output.endswith("are not those of the granted and the saved weights")
