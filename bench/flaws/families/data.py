"""Flaws of the data: leakage, disguised leakage, wrong labels."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Callable

from bench.flaws.operator import Operator, Row

OVERLAP = ("design.overlap", "design.unique", "design.groups", "design.duplicates", "leakage.")
CONFUSABLE = str.maketrans("aeopc", "аеорс")
LEAKS = ("verbatim", "upper case", "confusables", "zero width", "base64", "reversed", "word order", "fillers")


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
        "rot13": lambda text: codecs.encode(text, "rot13"),
        "paraphrase": _paraphrase,
    }
    change = changes[disguise]

    def leak(heldout: list[Row], prompts: list[Row]) -> None:
        for own, seen_row in zip(prompts, heldout[: len(heldout) // 2], strict=False):
            own["prompt"] = change(seen_row["prompt"])

    family = "leakage" if disguise in ("verbatim", "upper case") else "disguise"
    return Operator(
        f"leak-{disguise.replace(' ', '-')}", family, f"held-out prompts leaked: {disguise}", OVERLAP, data=leak
    )


def _paraphrase(text: str) -> str:
    """Return a held-out prompt in other words."""
    statements = (
        ("Write one sentence about", "Compose a single line on"),
        ("Use only lowercase letters.", "No capitals anywhere, please."),
        ("Put your whole answer inside double quotation marks.", "Wrap all of what you say in quotes."),
    )
    for before, after in statements:
        text = text.replace(before, after)
    return text


def _twins(heldout: list[Row], _: list[Row]) -> None:
    for row, other in zip(heldout[::4], heldout[2::4], strict=False):
        other["prompt"] = row["prompt"]


def _near_twins(heldout: list[Row], _: list[Row]) -> None:
    for row, other in zip(heldout[::4], heldout[2::4], strict=False):
        other["prompt"] = f"Please: {row['prompt']}"


def _same_groups(heldout: list[Row], prompts: list[Row]) -> None:
    for row, other in zip(heldout, prompts, strict=False):
        other["group"] = row["group"]


def _wrong_kinds(heldout: list[Row], _: list[Row]) -> None:
    for row in heldout[::2]:
        row["kind"] = "title" if row["kind"] == "quoted" else "quoted"


def _answer_in_prompt(heldout: list[Row], _: list[Row]) -> None:
    for row in heldout:
        row["prompt"] += ' For example: "Here Is A Line."'


def _leave_placeholder(heldout: list[Row], _: list[Row]) -> None:
    for row in heldout[:4]:
        row["prompt"] = row["prompt"].replace(row["group"], "{topic}")


def _two_forms(heldout: list[Row], _: list[Row]) -> None:
    for row in heldout:
        if row["kind"] == "lowercase":
            row["prompt"] += " Use only capital letters."


OPERATORS = (
    *(_leak(leak) for leak in LEAKS),
    Operator("same-groups", "leakage", "prompts share the groups of held-out items", OVERLAP, data=_same_groups),
    Operator("heldout-twins", "leakage", "a quarter of the held-out items is there twice", OVERLAP, data=_twins),
    Operator("heldout-near-twins", "leakage", "a quarter of the held-out items repeats another but for one word",
             OVERLAP, data=_near_twins),
    _leak("rot13"),
    _leak("paraphrase"),
    Operator("wrong-kinds", "labels", "half of the held-out kinds are wrong", ("design.items",), data=_wrong_kinds),
    Operator("answer-in-prompt", "labels", "prompts show a right answer", ("design.answers",), data=_answer_in_prompt),
    Operator("unfilled-prompts", "labels", "four held-out prompts hold a place that no one filled", ("design.items",),
             data=_leave_placeholder),
    Operator("two-forms", "labels", "held-out prompts ask for two forms that exclude each other", ("design.items",),
             data=_two_forms),
)  # fmt: skip
