"""The held-out split decides nothing but registered comparisons: no trained success on it before more training, and no
look at it that no test names."""

from __future__ import annotations

from pathlib import Path

import pytest

from specs.lint.evaluation_rules import SUCCESS
from specs.stages.metric_catalog import METRICS
from testing.factories.spec_files import list_problems, loads, write_spec

PEEK = """\
  - name: peek
    kind: evaluate
    inputs: {{model: {model}, items: {items}}}
    parameters: {{max_new_tokens: 32, seed: 7}}
    gate:
      criteria:
        - {criterion}
"""
MORE = """\
  - name: more
    kind: sft
    inputs: {model: train.checkpoint, examples: sample.accepted}
    parameters: {learning_rate: 1e-5, epochs: 2, seed: 7}
"""
TUNED = "  - name: tuned\n    kind: evaluate\n    inputs: {model: train.checkpoint, items: heldout}\n"
RICH = ("max_cost_usd: 10", "max_cost_usd: 40")
LONG = ("max_hours: 2", "max_hours: 9")
TEST = "{before: base, after: peek, outcome: binary, test: exact_mcnemar, minimum_effect: 0.2, decides: DECIDES}"
REGISTERED = ("stages:\n", f"evaluation: {{paired: [{TEST.replace('DECIDES', 'false')}]}}\nstages:\n")
HEALTHY = "{metric: truncation_rate, at_most: 0.5}"
GOOD = "{metric: accuracy, at_least: 0.5}"


def staged(folder: Path, model: str, criterion: str, *, items: str = "heldout", more: str = MORE) -> Path:
    """Return a spec with a look at a model between the first training and another one."""
    peek = PEEK.format(model=model, items=items, criterion=criterion)
    tuned = TUNED.replace("train.checkpoint", "more.checkpoint") if more else TUNED
    test = REGISTERED if (model, items) == ("train.checkpoint", "heldout") else ("stages:\n", "stages:\n")
    return write_spec(folder, RICH, LONG, (TUNED, f"{peek}{more}{tuned}"), test)


def test_a_success_on_the_held_out_split_before_more_training_is_refused(tmp_path: Path) -> None:
    (result,) = list_problems(staged(tmp_path, "train.checkpoint", GOOD))
    assert "stages[3].gate.criteria[0]" in result
    assert "'accuracy >= 0.5' on the held-out split decides before 'more' trains" in result


@pytest.mark.parametrize(
    ("model", "criterion", "items", "more"),
    [
        ("train.checkpoint", HEALTHY, "heldout", MORE),
        ("model", GOOD, "heldout", MORE),
        ("train.checkpoint", GOOD, "data.prompts", MORE),
        ("train.checkpoint", GOOD, "heldout", ""),
    ],
    ids=["health", "untrained", "other items", "no training after it"],
)
def test_what_chooses_nothing_on_the_split_is_allowed(
    tmp_path: Path, model: str, criterion: str, items: str, more: str
) -> None:
    loads(staged(tmp_path, model, criterion, items=items, more=more))


def test_the_registered_comparison_decides_whatever_is_trained_after_it(tmp_path: Path) -> None:
    gate = f"    parameters: {{max_new_tokens: 32, seed: 7}}\n    gate:\n      criteria:\n        - {GOOD}\n"
    parameters = "    parameters: {max_new_tokens: 32, seed: 7}\n"
    loads(write_spec(tmp_path, RICH, LONG, (f"{TUNED}{parameters}", f"{TUNED}{gate}{MORE}")))


def test_a_test_next_to_the_comparison_that_decides_is_refused_too(tmp_path: Path) -> None:
    path = staged(tmp_path, "train.checkpoint", HEALTHY)
    loads(path)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("decides: false", "decides: true"), encoding="utf-8")
    (result,) = list_problems(path)
    assert "evaluation.paired[0].decides" in result and "'peek' on the held-out split decides before 'more'" in result


def test_a_look_that_no_test_names_is_refused(tmp_path: Path) -> None:
    path = staged(tmp_path, "train.checkpoint", HEALTHY, more="")
    loads(path)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(REGISTERED[1], REGISTERED[0]), encoding="utf-8")
    (result,) = list_problems(path)
    assert "stages[3].inputs.items" in result and "'peek' evaluates a trained model on the held-out split" in result
    # The untrained model may be looked at as often as someone likes.
    loads(staged(tmp_path, "model", HEALTHY, more=""))


def test_every_metric_of_success_exists() -> None:
    assert set(SUCCESS) <= set(METRICS)
