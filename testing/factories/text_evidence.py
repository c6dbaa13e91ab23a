"""Whole and healthy evidence of the stages that write text; each test breaks one thing of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from reviews.evidence.evidence import Evidence
from specs.stages.base.artifacts import Item
from specs.stages.base.sampling import Form
from specs.stages.generation.kinds import BASE_MODEL_CHECK, SAMPLE_RESPONSES
from specs.stages.generation.kinds import SELF_INSTRUCT as SELF_INSTRUCT_KIND
from specs.stages.generation.parameters import SampleResponsesParameters, SelfInstructParameters
from specs.stages.generation.rows import SampleResponsesRow, SelfInstructRow
from specs.stages.registry import Stage
from testing.factories.bound_evidence import with_files
from testing.factories.evidence_on_disk import evidence_of, write_rows
from training.rules.cleaning import clean, marks_of
from training.rules.generation.instruction_harvest import harvest
from training.rules.generation.sentinels import SENTINELS
from training.rules.prompt_text import ExampleInstruction, answer_prompt, calls_of_round, seed_of
from training.rules.sampling_quality import kept_of

FOLLOWS = {
    "pig_latin": "ellohay orldway",
    "primes": "1. 2\n2. 3\n3. 5",
    "json": '{"a": 1, "b": 2}',
    "seasons": "Spring is mild, summer is hot.",
    "colours": "Red, blue and green.",
    "fruits": "Apples, bananas, pears, grapes",
    "french": "Bonjour!",
    "synonym": "Glad.",
    "days": "Monday, Tuesday, Wednesday",
}
COMPLETES = {"water": " 0 degrees.", "capital": " Paris.", "opposite": " cold.", "sum": " four."}
TEXTS = (
    "Describe an old house by the sea.",
    "Say why bees dance in the dark.",
    "Tell a tale of two owls and a mouse.",
    "Explain how bread rises in an oven.",
    "List five things to pack for a hike.",
    "Suggest a name for a small grey cat.",
)
ANSWERS = (
    "It has thick walls and a blue door.",
    "They show each other where flowers grow.",
    "One owl read to the other until the mouse slept.",
    "Yeast makes gas, and the dough holds it.",
    "Take water, a map, a hat, bread and a light.",
    "Call her Pebble, after the stones of the beach.",
)


def guard_row(sentinel: str, model: str, form: Form, output: str, **changes: Any) -> dict[str, Any]:
    prompt = next(sentinel_answer.prompt for sentinel_answer in SENTINELS if sentinel_answer.id == sentinel)
    text = prompt if form == "completion" else f"<|start|>user\n{prompt}<|end|>"
    messages = {
        "sentinel": sentinel,
        "model": model,
        "form": form,
        "prompt": text,
        "ids": [1, 2, 3] if form == "completion" else [0, 1, 2, 3, 0],
        "ids_with_special": [1, 2, 3] if form == "completion" else [0, 1, 2, 3, 0],
        "decoded": text,
        "template_ids": [] if form == "completion" else [0, 4],
        "has_chat_template": True,
        "output": output,
        "output_tokens": 5,
        "finish": "length",
        "stop": None,
    }
    return messages | changes


def guard_rows(bare: int = 1, templated: int = 1, control: int = 7, control_bare: int = 3) -> list[dict[str, Any]]:
    """Return rows in which so many of the nine commands are followed."""
    rows: list[dict[str, Any]] = []
    parts: list[tuple[str, Form, int]] = [
        ("declared", "completion", bare),
        ("declared", "chat", templated),
        ("control", "completion", control_bare),
        ("control", "chat", control),
    ]
    for model, form, count in parts:
        for place, sentinel in enumerate(SENTINELS):
            output = COMPLETES.get(sentinel.id) or (FOLLOWS[sentinel.id] if place < count else ", and so on.")
            rows.append(guard_row(sentinel.id, model, form, output))
    return rows


def seed_items() -> list[Item]:
    texts = ("Write a poem about rain.", "Name three kinds of tea.", "Sum up the plot of a film.")
    return [Item(id=f"seed{n}", group=f"seed{n}", kind="general", prompt=t, constraint={}) for n, t in enumerate(texts)]


SELF_INSTRUCT = SelfInstructParameters(
    target=4, examples_per_prompt=3, per_call=3, calls_per_round=1, shards=2, topics=("home", "nature")
)


def instruct_rows(form: Form = "completion", *texts: str) -> list[dict[str, Any]]:
    """Return one call of each shard with three instructions, and the probes."""
    seeds = [ExampleInstruction(item.id, item.prompt) for item in seed_items()]
    rows: list[dict[str, Any]] = []
    written = list(texts or TEXTS)
    for shard in range(SELF_INSTRUCT.shards):
        (call,) = calls_of_round(SELF_INSTRUCT, form, shard, 0, seeds, [])
        mine = written[shard * 3 : shard * 3 + 3]
        numbered = [f"{call.first + n}. {text}" for n, text in enumerate(mine)]
        raw = "\n".join(numbered).removeprefix(f"{call.first}." if form == "completion" else "")
        rows.append(
            {
                "shard": shard,
                "round": 0,
                "call": 0,
                "probe": 0,
                "seed": seed_of(0, shard, 0, ""),
                "form": form,
                "topic": call.topic,
                "examples": [shown_state.id for shown_state in call.examples],
                "first": call.first,
                "prompt": call.text if form == "completion" else f"<|start|>user\n{call.text}<|end|>",
                "prompt_tokens": 50,
                "raw": raw,
                "tokens": 30,
                "finish": "stop",
                "stop": f"\n{call.first + 3}.",
            }
        )
    for probe, raw in ((1, " Name a bird."), (2, " Name a bird."), (3, " Name a fish.")):
        rows.append(rows[0] | {"probe": probe, "raw": raw, "seed": 9 + probe // 3})
    return rows


def respond_rows(form: Form = "completion", **changes: Any) -> list[dict[str, Any]]:
    """Return one answer to each instruction; ``changes`` are of the raw answers, by place (``raw_2=...``)."""
    parameters = SampleResponsesParameters()
    rows: list[dict[str, Any]] = []
    for place, item in enumerate(instruction_items()):
        raw = str(changes.get(f"raw_{place}", f" {ANSWERS[place]}"))
        finish = changes.get(f"finish_{place}", "stop")
        text, by = clean(raw, parameters.cleaning)
        prompt = answer_prompt(item.prompt, parameters.shots, form)
        rows.append(
            {
                "item": item.id,
                "group": item.group,
                "kind": item.kind,
                "sample": 0,
                "shard": 0,
                "seed": seed_of(0, "sample_responses", 0),
                "form": form,
                "instruction": item.prompt,
                "prompt": prompt if form == "completion" else f"<|start|>user\n{prompt}<|end|>",
                "prompt_tokens": 90,
                "raw": raw,
                "tokens": 12,
                "finish": finish,
                "stop": "###END###" if finish == "stop" else None,
                "completion": text,
                "completion_tokens": 10 + place,
                "cleaned_by": list(by),
                "marks": list(marks_of(text, item.prompt, finish, parameters.stops, parameters.scope)),
            }
        )
    return rows


def instruction_items() -> list[Item]:
    return [Item(id=f"i{n}", group=f"i{n}", kind="general", prompt=t, constraint={}) for n, t in enumerate(TEXTS)]


def text_evidence(
    folder: Path, kind: str, rows: list[dict[str, Any]] | None = None, *, model: str = "base", **changes: Any
) -> Evidence:
    """Return the healthy evidence of a stage's first attempt; ``changes`` replace fields of it."""
    whole = evidence_of(folder, "base")
    spec = whole.resolved.spec
    source = changes.pop("source", "path:weights")
    control = spec.model.model_copy(update={"source": "path:control", "kind": "instruct"})
    declared = spec.model.model_copy(update={"source": source, "kind": model})
    resolved = whole.resolved.model_copy(
        update={"spec": spec.model_copy(update={"model": declared, "control": control})}
    )
    form: Form = "completion" if model == "base" else "chat"
    out, inputs = folder / kind, {"model": folder / "model"}
    stage: Stage
    if kind == "base_model_check":
        (folder / "control").mkdir(exist_ok=True)
        (folder / "control" / "weights").write_bytes(b"control")
        inputs["control"] = folder / "control"
        stage = BASE_MODEL_CHECK.stage(
            name="watch", kind="base_model_check", inputs={"model": "model", "control": "control"}
        )
        outputs = {"rows": write_rows(out / "rows.jsonl", guard_rows(templated=8) if rows is None else rows)}
    elif kind == "self_instruct":
        arguments = instruct_rows(form) if rows is None else rows
        seeds = seed_items()
        inputs["seeds"] = write_rows(folder / "seeds.jsonl", [item.model_dump() for item in seeds])
        stage = SELF_INSTRUCT_KIND.stage(
            name="write",
            kind="self_instruct",
            inputs={"model": "model", "seeds": "data.seeds"},
            parameters=SELF_INSTRUCT,
        )
        parsed = [SelfInstructRow.model_validate(row) for row in arguments]
        items = harvest(parsed, [ExampleInstruction(item.id, item.prompt) for item in seeds], SELF_INSTRUCT).items
        outputs = {
            "rows": write_rows(out / "rows.jsonl", arguments),
            "instructions": write_rows(out / "instructions.jsonl", [item.model_dump() for item in items]),
        }
    else:
        arguments = respond_rows(form) if rows is None else rows
        items = instruction_items()
        inputs["instructions"] = write_rows(folder / "instructions.jsonl", [item.model_dump() for item in items])
        stage = SAMPLE_RESPONSES.stage(
            name="answer", kind="sample_responses", inputs={"model": "model", "instructions": "write.instructions"}
        )
        examples = kept_of([SampleResponsesRow.model_validate(row) for row in arguments])
        outputs = {
            "rows": write_rows(out / "rows.jsonl", arguments),
            "examples": write_rows(out / "examples.jsonl", [example.model_dump() for example in examples]),
        }
    made = with_files(replace(whole, resolved=resolved), stage, inputs, outputs)
    return replace(made, **changes)
