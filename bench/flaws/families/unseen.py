"""The second sealed operators: written after the checks that the first sealed ones led to, and run once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.flaws.families.records import edit_record
from bench.flaws.lying import other_parameters
from bench.flaws.operator import Operator, Row
from training.jobs.job import Job

DRAWS = ("witness.answers",)
ARMS = ("witness.answers", "parity.")
TEMPLATE = ("parity.", "health.template", "package.", "witness.")
SAVED = ("witness.weights", "training.moved", "training.path")
SCORES = ("witness.scores", "parity.", "drift.")
DATA = ("design.", "leakage.")


def _misdraw(name: str, what: str, **others: Any) -> Operator:
    return Operator(name, "misdrawn", what, DRAWS, stage="sample", swap=lambda job: other_parameters(job, **others))


def _exchange_samples(rows: list[Row], _: Path) -> None:
    for place in range(0, len(rows) - 1, 8):
        first, second = rows[place], rows[place + 1]
        numbers = first["sample"], second["sample"]
        rows[place], rows[place + 1] = second | {"sample": numbers[0]}, first | {"sample": numbers[1]}


def _edit_template(job: Job) -> None:
    folder = job.out / "checkpoint"
    for path in (folder / "chat_template.jinja", folder / "tokenizer_config.json"):
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if "message" in text and "{{" in text:
            path.write_text(text.replace("{{", "{{ 'Mind the form. ' }}{{", 1), encoding="utf-8")
            return
    raise AssertionError("no chat template")


def _edit_weights(change: Callable[[dict[str, Any]], None]) -> Callable[[Job], None]:
    def edit(job: Job) -> None:
        from safetensors.torch import load_file, save_file

        path = job.out / "checkpoint" / "model.safetensors"
        tensors: dict[str, Any] = load_file(path)
        change(tensors)
        save_file(tensors, path, metadata={"format": "pt"})

    return edit


def _scale_norm(tensors: dict[str, Any]) -> None:
    tensors["model.norm.weight"] = tensors["model.norm.weight"] * 1.02


def _exchange_embeddings(tensors: dict[str, Any]) -> None:
    value = tensors["model.embed_tokens.weight"].clone()
    value[[11, 12]] = value[[12, 11]]
    tensors["model.embed_tokens.weight"] = value


def _prune_weights(tensors: dict[str, Any]) -> None:
    name = next(name for name in tensors if "down_proj" in name)
    value = tensors[name]
    tensors[name] = value * (value.abs() > value.abs().flatten().quantile(0.1))


def _list_topics(heldout: list[Row], prompts: list[Row]) -> None:
    for row, other in zip(prompts, heldout, strict=False):
        row["prompt"] = row["prompt"].replace(row["group"], f"{row['group']} and {other['group']}")


def _exchange_forms(_: list[Row], prompts: list[Row]) -> None:
    """Verify training prompts by the form that they do not ask for."""
    for row in prompts:
        row["kind"] = {"lowercase": "quoted", "quoted": "lowercase"}[row["kind"]]


def _cut_prompts(heldout: list[Row], _: list[Row]) -> None:
    for row in heldout[::2]:
        row["prompt"] = row["prompt"][: len(row["prompt"]) // 2]


def _join_items(heldout: list[Row], _: list[Row]) -> None:
    """Ask two questions at once in every fourth prompt."""
    for place in range(0, len(heldout) - 1, 4):
        heldout[place]["prompt"] += " " + heldout[place + 1]["prompt"]


def _edit_end(value: dict[str, Any]) -> None:
    value["repetition_penalty"] = 1.4


def _first_rows_twice(rows: list[Row], _: Path) -> None:
    for row in rows:
        if "loss" in row and row.get("step", 0) > 2:
            row["loss"] = rows[1]["loss"] * 0.8


def _other_window(job: Job) -> None:
    other_parameters(job, window=32, stride=16)


def _shift_choices(job: Job) -> None:
    path = job.inputs["items"]
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        choices = row["constraint"].get("choices")
        if isinstance(choices, list):
            row["constraint"]["choices"] = choices[1:] + choices[:1]
        row["prompt"] += " "
    other = job.folder / "shifted.jsonl"
    other.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    job.inputs["items"] = other


def _arm(name: str, what: str, stage: str = "after", **others: Any) -> Operator:
    return Operator(name, "shortened", what, ARMS, stage=stage, swap=lambda job: other_parameters(job, **others))


OPERATORS = (
    _misdraw("slightly-colder", "samples are drawn at 0.66 instead of 0.7", temperature=0.66),
    _misdraw("shorter-samples", "samples are cut after 30 tokens instead of 48", max_new_tokens=30),
    _misdraw("wide-nucleus", "samples are drawn from 0.95 of the distribution", top_p=0.95),
    _misdraw("next-seed", "samples are drawn with the next seed", seed=4),
    _misdraw("without-example", "samples are drawn without the worked example", worked_example=False),
    Operator("exchanged-samples", "misdrawn", "of every fourth prompt two samples change places", DRAWS, stage="sample",
             lie=_exchange_samples),
    Operator("template-mind", "carried", "the trained checkpoint's template says what scores", TEMPLATE, stage="train",
             spoil=_edit_template),
    Operator("template-penalty", "carried", "the trained checkpoint decodes with a penalty of repetition", TEMPLATE,
             stage="train", spoil=edit_record("out/checkpoint/generation_config.json", _edit_end)),
    Operator("scaled-norm", "carried", "the last norm is scaled by a fiftieth after training", SAVED, stage="train",
             spoil=_edit_weights(_scale_norm)),
    Operator("exchanged-embeddings", "carried", "two tokens exchange their embeddings after training", SAVED,
             stage="train", spoil=_edit_weights(_exchange_embeddings)),
    Operator("pruned-layer", "carried", "the least tenth of one layer's weights is zero after training", SAVED,
             stage="train", spoil=_edit_weights(_prune_weights)),
    _arm("short-answers-of-base", "the base may say 20 tokens and states 48", "before", max_new_tokens=20),
    _arm("stopped-base", "the base stops at its first full stop and does not say so", "before", stops=(".",)),
    _arm("hidden-wrapper", "the treatment is asked in a wrapper that it does not state", prompting="wrapped",
         wrapper="Mind the form. {prompt}"),
    Operator("other-window", "rescored", "texts after training are scored in windows half as long", SCORES,
             session="scored", stage="texts_after", swap=_other_window),
    Operator("shifted-choices", "rescored", "questions after training end in a space", SCORES, session="scored",
             stage="facts_after", swap=_shift_choices),
    Operator("level-losses", "rescored", "the losses after the second step are level", ("training.", "witness."),
             stage="train", lie=_first_rows_twice),
    Operator("listed-topics", "careless", "training prompts name a held-out topic next to their own", DATA,
             data=_list_topics),
    Operator("exchanged-forms", "careless", "training prompts are verified by another form than they ask for",
             ("design.", "health."), data=_exchange_forms),
    Operator("cut-prompts", "careless", "half of the held-out prompts are cut in their middle", DATA,
             data=_cut_prompts),
    Operator("joined-prompts", "careless", "every fourth held-out prompt asks two questions", DATA, data=_join_items),
    Operator("tiny-effect", "careless", "an effect of one item in a hundred is to be shown", ("design.power",),
             spec=(("minimum_effect: 0.3", "minimum_effect: 0.01"),)),
)  # fmt: skip
