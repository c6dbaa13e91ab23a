"""Every flaw operator, with what has to stop it: stated before any of them ran."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from pathlib import Path

from bench.flaws.operator import Operator, Row

ROWS = ("witness.answers",)
OVERLAP = ("design.overlap", "design.unique", "design.groups", "design.duplicates", "leakage.")
CURVE = ("witness.training", "training.loss", "training.steps", "training.objective")
CONFUSABLE = str.maketrans("aeopc", "аеорс")


def _leak(disguise: str) -> Operator:
    """Return the operator that puts half of the held-out prompts, disguised, among the prompts of the training."""
    changes: dict[str, Callable[[str], str]] = {
        "verbatim": str,
        "upper case": str.upper,
        "confusables": lambda text: text.translate(CONFUSABLE),
        "zero width": lambda text: "\u200b".join(text),
        "base64": lambda text: base64.b64encode(text.encode()).decode(),
        "reversed": lambda text: text[::-1],
        "word order": lambda text: " ".join(sorted(text.split())),
        "fillers": lambda text: "Well, so to speak, please and if you can: " + text + " Thank you very much indeed.",
    }
    change = changes[disguise]

    def leak(heldout: list[Row], prompts: list[Row]) -> None:
        for own, seen in zip(prompts, heldout[: len(heldout) // 2], strict=False):
            own["prompt"] = change(seen["prompt"])

    family = "leakage" if disguise in ("verbatim", "upper case") else "disguise"
    return Operator(
        f"leak-{disguise.replace(' ', '-')}", family, f"held-out prompts leaked: {disguise}", OVERLAP, data=leak
    )


def _twins(heldout: list[Row], _: list[Row]) -> None:
    for one, other in zip(heldout[::4], heldout[2::4], strict=False):
        other["prompt"] = one["prompt"]


def _same_groups(heldout: list[Row], prompts: list[Row]) -> None:
    for one, other in zip(heldout, prompts, strict=False):
        other["group"] = one["group"]


def _wrong_kinds(heldout: list[Row], _: list[Row]) -> None:
    for one in heldout[::2]:
        one["kind"] = "title" if one["kind"] == "quoted" else "quoted"


def _answer_in_prompt(heldout: list[Row], _: list[Row]) -> None:
    for one in heldout:
        one["prompt"] += ' For example: "Here Is A Line."'


def _repair(rows: list[Row], _: Path) -> None:
    for row in rows[::3]:
        row["output"] = '"' + row["output"].strip('"').title() + '"'


def _drop(rows: list[Row], _: Path) -> None:
    del rows[::5]


def _repeat(rows: list[Row], _: Path) -> None:
    for row in rows[1:]:
        row |= {name: value for name, value in rows[0].items() if name != "item"}


def _other_order(rows: list[Row], _: Path) -> None:
    texts = [{name: value for name, value in row.items() if name != "item"} for row in rows]
    for row, text in zip(rows, [*texts[1:], texts[0]], strict=True):
        row |= text


def _ids(rows: list[Row], _: Path) -> None:
    drawn = random.Random(0)
    for row in rows:
        for name in [name for name, value in row.items() if name.endswith("ids") and isinstance(value, list) and value]:
            row[name] = [*row[name][:-1], drawn.randrange(100)]


def _not_truncated(rows: list[Row], _: Path) -> None:
    for row in rows:
        row["truncated"] = not row["truncated"]


def _curve(rows: list[Row], _: Path) -> None:
    for place, row in enumerate(rows):
        row |= {"loss": 3.0 * 0.9**place} if "loss" in row else {}


def _gradient(rows: list[Row], _: Path) -> None:
    for row in rows:
        row |= {"grad_norm": 1.0} if "grad_norm" in row else {}


def _shorter(rows: list[Row], _: Path) -> None:
    del rows[len(rows) // 2 :]


LEAKS = ("verbatim", "upper case", "confusables", "zero width", "base64", "reversed", "word order", "fillers")
DATA = (
    Operator("same-groups", "leakage", "prompts share the groups of held-out items", OVERLAP, data=_same_groups),
    Operator("heldout-twins", "leakage", "a quarter of the held-out items is there twice", OVERLAP, data=_twins),
    Operator(
        "wrong-kinds",
        "labels",
        "half of the held-out kinds are wrong",
        ("design.items",),
        data=_wrong_kinds,
    ),
    Operator(
        "answer-in-prompt",
        "labels",
        "prompts show a right answer",
        ("design.answers",),
        data=_answer_in_prompt,
    ),
)
SPEC = (
    Operator(
        "tiny-n", "design", "far too few items", ("design.power",), (("minimum_effect: 0.3", "minimum_effect: 0.05"),)
    ),
    Operator("dead-rate", "curve", "a learning rate of 1e-9", ("training.moved", "training.loss"), (("2e-3", "1e-9"),)),
    Operator(
        "no-budget",
        "design",
        "no money for the plan",
        ("design.cost",),
        (("max_cost_usd: 1.0", "max_cost_usd: 0.00001"),),
    ),
    Operator(
        "short-base",
        "parity",
        "the base may say four tokens",
        ("parity.settings", "design.paired"),
        (
            (
                "{model: model, items: heldout}\n    parameters: {max_new_tokens: 48",
                "{model: model, items: heldout}\n    parameters: {max_new_tokens: 4",
            ),
        ),
    ),
    Operator(
        "same-arm",
        "comparison",
        "the treatment is the base again",
        ("parity.models", "design.paired"),
        (
            (
                "name: after\n    kind: evaluate\n    inputs: {model: train.checkpoint",
                "name: after\n    kind: evaluate\n    inputs: {model: model",
            ),
        ),
    ),
)
LIES = (
    Operator("repaired", "answers", "wrong answers of the treatment are repaired", ROWS, stage="after", lie=_repair),
    Operator("base-spoiled", "answers", "the base's answers are shuffled", ROWS, stage="before", lie=_other_order),
    Operator("dropped-rows", "answers", "every fifth row is left out", ("health.complete",), stage="after", lie=_drop),
    Operator(
        "one-answer", "answers", "one answer stands for all", (*ROWS, "health.collapse"), stage="after", lie=_repeat
    ),
    Operator("token-ids", "answers", "the last token id is another", ROWS, stage="after", lie=_ids),
    Operator(
        "wrong-end", "answers", "rows say the opposite of how they ended", ROWS, stage="after", lie=_not_truncated
    ),
    Operator(
        "repaired-samples", "samples", "drawn answers are shifted by one prompt", ROWS, stage="sample", lie=_other_order
    ),
    Operator("sample-ids", "samples", "the last drawn token id is another", ROWS, stage="sample", lie=_ids),
    Operator("invented-curve", "curve", "the losses are invented", CURVE, stage="train", lie=_curve),
    Operator("invented-gradient", "curve", "every gradient norm is 1", CURVE, stage="train", lie=_gradient),
    Operator("half-curve", "curve", "half of the steps are left out", CURVE, stage="train", lie=_shorter),
    Operator(
        "shaken-weights",
        "weights",
        "saved weights are not the trained ones",
        ("witness.weights",),
        stage="train",
        weights=0.05,
    ),
    Operator(
        "said-dtype",
        "records",
        "the training says another precision",
        ("jobs.effective", "jobs.device", "witness.training"),
        stage="train",
        manifest={"dtype": "bfloat16"},
    ),
    Operator(
        "said-device",
        "records",
        "the training says that it had a GPU",
        ("jobs.device",),
        stage="train",
        manifest={"device": "cuda"},
    ),
    Operator(
        "said-tokens",
        "records",
        "the treatment says ten tokens",
        ("jobs.measured",),
        stage="after",
        manifest={"tokens": 10},
    ),
)
OPERATORS = (*(_leak(one) for one in LEAKS), *DATA, *SPEC, *LIES)
