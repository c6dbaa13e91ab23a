"""Flaws of further arms: other weights, other rows, other decoding than what was registered and granted."""

from __future__ import annotations

from pathlib import Path

from bench.flaws.families.design import SECOND
from bench.flaws.families.rows import ROWS, read_lines
from bench.flaws.lying import other_parameters
from bench.flaws.operator import Change, Operator, Row
from training.jobs.job import Job

_LOOK = """  - name: look
    kind: evaluate
    inputs: {model: other.checkpoint, items: heldout}
    parameters: {max_new_tokens: 48, batch_size: 16, seed: 3}
"""
_REGISTERED = "    - {name: lower rate, stage: look, shows: what the rate adds, beaten: false}\n"
_SLOW = SECOND.replace("OTHER", "other").replace("1e-3", "1e-5")
"""At the treatment's rate both arms learn everything, and exchanging their answers would change nothing."""


def _register_arm(stage: str = _LOOK) -> tuple[Change, ...]:
    """Return the changes that train and measure another arm."""
    return (
        ("  treatment: after\n", f"  treatment: after\n  arms:\n{_REGISTERED}"),
        ("  - name: after\n", f"{_SLOW}{stage}  - name: after\n"),
    )


def _use_treatment(job: Job) -> None:
    """Answer with the weights of the treatment in the place of the arm's."""
    job.inputs["model"] = job.run / "jobs" / "small.train.1" / "out" / "checkpoint"


def _copy_arm(rows: list[Row], run: Path) -> None:
    """State the arm's answers as those of the treatment."""
    rows[:] = read_lines(run / "jobs" / "small.look.1" / "out" / "rows.jsonl")


def _drop(rows: list[Row], _: Path) -> None:
    del rows[::5]


def _cut_short(job: Job) -> None:
    other_parameters(job, max_new_tokens=6)


def _register_curve() -> tuple[Change, ...]:
    """Return the changes that register a curve over two trainings with another rate and fewer passes."""
    small = SECOND.replace("OTHER", "small") + _LOOK.replace("look", "glance").replace("other.", "small.")
    named = "    - {name: fewest, stage: glance, shows: what the examples add, beaten: false}\n"
    curve = "  learning_curve: {arms: [lower rate, fewest], at: 15000}\n"
    return (
        ("  treatment: after\n", f"  treatment: after\n  arms:\n{_REGISTERED}{named}{curve}"),
        ("  - name: after\n", f"{small}{SECOND.replace('OTHER', 'other')}{_LOOK}  - name: after\n"),
    )


OPERATORS = (
    Operator("arm-of-treatment", "arms", "the treatment answers in the place of the arm", ROWS, stage="look",
             spec=_register_arm(), swap=_use_treatment),
    Operator("arm-as-treatment", "arms", "the arm's rows are copied as the treatment's", ROWS, stage="after",
             spec=_register_arm(), lie=_copy_arm),
    Operator("arm-of-fewer-items", "arms", "every fifth row of the arm is left out", ("health.complete",),
             stage="look", spec=_register_arm(), lie=_drop),
    Operator("arm-cut-short", "arms", "the arm may write six tokens and states the granted 48",
             (*ROWS, "health.truncation"), stage="look", spec=_register_arm(), swap=_cut_short),
    Operator("arm-decoded-otherwise", "arms", "the arm is registered with other decoding",
             ("evaluated the same way",), spec=_register_arm(_LOOK.replace("48", "47"))),
    Operator("arm-twice", "arms", "the arm evaluates the treatment's checkpoint", ("cannot differ",),
             spec=_register_arm(_LOOK.replace("other.checkpoint", "train.checkpoint"))),
    Operator("curve-of-other-rates", "arms", "points of the learning curve are trained at another rate",
             ("only the examples differ",), spec=_register_curve()),
)  # fmt: skip
