"""The first sealed operators: what two of them showed led to checks (see the page of figures)."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.flaws.families.records import edit_record
from bench.flaws.lying import other_parameters
from bench.flaws.operator import Operator, Row
from training.jobs.job import Job

OVERLAP = ("design.overlap", "leakage.", "design.nearest", "design.groups", "design.unique")
CURVE = ("witness.training", "training.", "witness.weights")
ROWS = ("witness.answers", "health.complete", "parity.", "jobs.measured")
_TYPING = {"e": "3", "a": "4", "o": "0", "i": "1"}


def _leak(name: str, what: str, change: Callable[[str], str]) -> Operator:
    def leak(heldout: list[Row], prompts: list[Row]) -> None:
        for row, copied in zip(prompts, heldout[: len(heldout) // 2], strict=False):
            row["prompt"] = change(copied["prompt"])

    return Operator(name, "retyped", what, OVERLAP, data=leak)


def _mistype(text: str) -> str:
    """Exchange two letters inside each longer word."""
    return " ".join(word[0] + word[2] + word[1] + word[3:] if len(word) > 4 else word for word in text.split())


def _misgrant(name: str, what: str, session: str = "sft", **others: Any) -> Operator:
    """Return the operator whose training works with other parameters than it states."""
    return Operator(name, "misgranted", what, CURVE, session=session, stage="train",
                    swap=lambda job: other_parameters(job, **others))  # fmt: skip


def _doubled_easy(rows: list[Row], _: Path) -> None:
    """Put the answers to items of one kind in the place of others, so that their number stays."""
    half = len(rows) // 2
    rows[half:] = [dict(row) for row in rows[: len(rows) - half]]


def _merged_lines(rows: list[Row], _: Path) -> None:
    for row in rows[::4]:
        row["output"] = row["output"].replace(" ", "  ")


def _no_numbers(rows: list[Row], _: Path) -> None:
    for row in rows:
        row["loss"] = float("nan") if "loss" in row and row.get("step", 0) > 3 else row.get("loss")


def _past_the_end(rows: list[Row], _: Path) -> None:
    for row in rows[::3]:
        row["finish"], row["truncated"] = "length", False


def _other_end(value: dict[str, Any]) -> None:
    value["eos_token_id"] = 7


def _same_group_names(heldout: list[Row], prompts: list[Row]) -> None:
    """Ask the held-out topics in training in the plural or with an article, under groups of other names."""
    for number, (row, copied) in enumerate(zip(prompts, heldout, strict=False)):
        row["prompt"] = copied["prompt"].replace(copied["group"], f"some {copied['group']}")
        row["group"] = f"g{number}"


def _same_kind_twice(heldout: list[Row], _: list[Row]) -> None:
    """Let items of one kind stand under two names of kinds, so that two kinds seem to gain."""
    rows = [row for row in heldout if row["kind"] == "lowercase"]
    copies = [row | {"id": f"{row['id']}-b", "group": f"{row['group']} b"} for row in rows]
    heldout[:] = rows + copies


def _one_answer_prompts(heldout: list[Row], _: list[Row]) -> None:
    for row in heldout[::2]:
        row["prompt"] = row["prompt"].split(".")[0] + "."


def _notes_in_prompts(heldout: list[Row], _: list[Row]) -> None:
    for row in heldout:
        row["prompt"] += f" [kind: {row['kind']}; id: {row['id']}]"


def _swap_roles(job: Job) -> None:
    """Train on examples whose prompt and answer have changed places."""
    path = job.inputs["examples"]
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row in rows[::2]:
        row["prompt"], row["completion"] = row["completion"], row["prompt"]
    other = job.folder / "roles.jsonl"
    other.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    job.inputs["examples"] = other


_TRAIN = "learning_rate: 2e-3, warmup_ratio: 0, epochs: 3, batch_size: 4"
OPERATORS = (
    _leak("retyped-leet", "held-out prompts with digits for vowels",
          lambda text: "".join(_TYPING.get(letter, letter) for letter in text)),
    _leak("retyped-swaps", "held-out prompts with two letters of each long word exchanged", _mistype),
    _leak("retyped-html", "held-out prompts as escaped HTML in a page",
          lambda text: f"<p>{html.escape(text)}</p><!-- {len(text)} -->"),
    _leak("retyped-json", "held-out prompts as JSON in a log line",
          lambda text: json.dumps({"level": "info", "message": text, "code": 7})),
    _leak("retyped-lines", "held-out prompts with a word a line", lambda text: "\n".join(text.split())),
    _leak("retyped-hyphens", "held-out prompts with hyphens inside of words",
          lambda text: " ".join(f"{word[:3]}-{word[3:]}" if len(word) > 5 else word for word in text.split())),
    _leak("retyped-quoted", "held-out prompts as quoted mail", lambda text: f"> {text}\n>\nWhat do you say to that?"),
    _misgrant("misgranted-decay", "trained with a weight decay of one half that no row states", weight_decay=0.5),
    _misgrant("misgranted-clipping", "gradients are clipped at a thousandth", max_grad_norm=0.001),
    _misgrant("misgranted-batches", "batches are half as large, with two of them a step", batch_size=2,
             gradient_accumulation=2),
    _misgrant("misgranted-schedule", "the rate stays constant instead of falling", scheduler="constant"),
    _misgrant("misgranted-rank", "adapters have a quarter of their rank", session="lora", lora_rank=2),
    _misgrant("misgranted-length", "sequences are cut at 24 tokens", max_length=24),
    Operator("misgranted-roles", "misgranted", "half of the examples have prompt and answer exchanged",
             (*CURVE, "training.data"), stage="train", swap=_swap_roles),
    Operator("diverging-rate", "schedules", "a rate at which the training diverges",
             ("training.", "health.", "strata.", "power."), spec=((_TRAIN, _TRAIN.replace("2e-3", "3e-1")),)),
    Operator("endless-warmup", "schedules", "the warm-up is longer than the training", ("design.schedule",),
             spec=((_TRAIN, _TRAIN.replace("warmup_ratio: 0,", "warmup_ratio: 1.0,")),)),
    Operator("forty-epochs", "schedules", "forty passes over a few examples",
             ("training.starvation", "training.overfit", "health.", "strata.sensitivity"),
             spec=((_TRAIN, _TRAIN.replace("epochs: 3", "epochs: 40")),)),
    Operator("doubled-rows", "bookkeeping", "the second half of the rows repeats the first", ROWS, stage="after",
             lie=_doubled_easy),
    Operator("spaced-rows", "bookkeeping", "spaces of answers are doubled in the rows", ROWS, stage="after",
             lie=_merged_lines),
    Operator("wrong-finish", "bookkeeping", "answers that were cut say that they were whole",
             (*ROWS, "health.truncation"), stage="after", lie=_past_the_end),
    Operator("losses-of-nan", "bookkeeping", "losses after the third step are not numbers",
             (*CURVE, "jobs."), stage="train", lie=_no_numbers),
    Operator("other-end-token", "bookkeeping", "the checkpoint's configuration names another end",
             ("witness.", "parity.", "package.", "health.", "training."), stage="train",
             spoil=edit_record("out/checkpoint/config.json", _other_end)),
    Operator("plural-topics", "splits", "training asks the held-out topics with a word more, under other groups",
             OVERLAP, data=_same_group_names),
    Operator("kind-of-two-names", "splits", "half of the items repeats the other half under other ids", OVERLAP,
             data=_same_kind_twice),
    Operator("formless-prompts", "splits", "half of the held-out prompts no longer say which form is asked",
             ("design.items", "design.answers", "design.strata"), data=_one_answer_prompts),
    Operator("notes-in-prompts", "splits", "held-out prompts carry the kind that they are judged by",
             ("design.answers", "design.items", "design.overlap", "parity."), data=_notes_in_prompts),
)  # fmt: skip
