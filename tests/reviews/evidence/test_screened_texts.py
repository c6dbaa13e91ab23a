"""Every text that a model learns from or is prompted with is compared with the held-out split.

A new parameter, field or stage kind fails here until it is compared, or is named below with the reason why not.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from reviews.checks.leakage_checks import answers_by_chance, overlap_of
from reviews.evidence.heldout_screen import iterate_texts, list_prompted_texts
from reviews.gate.check_list import CHECKS
from reviews.gate.design_checks import design_checks
from specs.session.design import Design, ResolvedDesign
from specs.session.thresholds import Thresholds
from specs.stages.base.artifacts import Item
from specs.stages.base.stage import StageBase
from specs.stages.registry import STAGE_KINDS
from testing.factories.evidence_on_disk import heldout_items, prompt_items, resolved_spec

HELD_OUT = "Which old bridge of Vienna was rebuilt after the great flood of that year?"
SCREENED = {"objective", "stages"}
ELSEWHERE = {
    "constitution": "its text is compared by `design.overlap`",
    "data": "its rows are compared: prompts, answers and turns",
    "heldout": "the split itself",
}
HARMLESS = {
    "name": "of the session", "profile": "a name", "task": "a name", "model": "a place of weights",
    "control": "a place of weights", "builder": "who builds; it reads the objective", "reviewer": "who judges",
    "panel": "who judges", "reading": "for reviewers", "budget": "money", "analysis": "names and figures",
    "thresholds": "figures", "verifier": "limits", "evaluation": "names of stages and figures",
    "criteria": "what is shown to people", "companions": "documents for people", "clean_code": "a word of two",
    "schema_version": "a number",
}  # fmt: skip
OF_STAGES = {
    "name": "a name", "kind": "a name", "inputs": "names of artifacts", "script": "its text is registered and compared",
    "choices": "compared with the parameters",
    "pilot": "a name", "gate": "names and figures",
    "ranges": "figures", "launcher": "a name", "resources": "names and figures",
}  # fmt: skip
OVERLAP = {"design.overlap", "leakage.overlap", "dpo.overlap", "rollouts.overlap", "recipe.data", "recipe.overlap"}
UNTRAINED = {
    "package": "copies weights", "export": "copies weights", "merge": "copies weights",
}  # fmt: skip


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that a value of a field may be or hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def text_of(annotation: Any) -> Any:
    """Return a value of a field that holds the held-out text, or None where no value of it holds a text."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is str:
        return HELD_OUT
    if origin is Annotated:
        return text_of(arguments[0])
    if origin in (Union, types.UnionType):
        return next((value for argument in arguments if (value := text_of(argument)) is not None), None)
    if origin in (tuple, list):
        inner = text_of(arguments[0]) if arguments else None
        return None if inner is None else (inner,)
    if origin in (dict, Mapping):
        inner = text_of(arguments[1])
        return None if inner is None else {"some": inner}
    return None


def every_model(model: type[BaseModel]) -> set[type[BaseModel]]:
    models, waiting = set[type[BaseModel]](), [model]
    while waiting:
        if (current := waiting.pop()) not in models:
            models.add(current)
            waiting += [inner for field in current.model_fields.values() for inner in models_in(field.annotation)]
    return models


@pytest.mark.parametrize("kind", STAGE_KINDS)
def test_every_text_of_every_parameter_is_found(kind: str) -> None:
    for model in every_model(STAGE_KINDS[kind].parameters):
        for name, field in model.model_fields.items():
            if (value := text_of(field.annotation)) is not None:
                holder = model.model_construct(**{name: value})
                assert HELD_OUT in [text for _, text in iterate_texts(holder, "p")], f"{model.__name__}.{name}"


def test_some_parameters_hold_texts() -> None:
    wrapper, shots = (STAGE_KINDS[kind].parameters.model_fields[name] for kind, name in
                      (("evaluate", "wrapper"), ("sample_responses", "stops")))  # fmt: skip
    assert text_of(wrapper.annotation) == HELD_OUT and text_of(shots.annotation) == (HELD_OUT,)
    assert text_of(Literal["a"]) is None and text_of(int | None) is None


def test_every_field_of_a_design_is_compared_or_named() -> None:
    assert set(Design.model_fields) == SCREENED | set(ELSEWHERE) | set(HARMLESS)
    holding = {name for name, field in StageBase.model_fields.items()
               if text_of(field.annotation) is not None or list(models_in(field.annotation))}  # fmt: skip
    assert holding <= set(OF_STAGES), "of every stage, next to its parameters"
    assert {"scripts", "constitution_digest", "data_digests", "task_text", "reading"} <= set(
        ResolvedDesign.model_fields
    )


@pytest.mark.parametrize("kind", [name for name, kind in STAGE_KINDS.items() if kind.makes_weights()])
def test_every_kind_that_trains_compares_what_it_trains_on(kind: str) -> None:
    checks = {check.id for check in CHECKS if check.belongs_to(STAGE_KINDS[kind])}
    assert checks & OVERLAP or kind in UNTRAINED


def design(folder: Path, stage: str, **parameters: Any) -> ResolvedDesign:
    """Return a design with other parameters of a stage, which are taken as they are."""
    resolved = resolved_spec(folder)
    stages = tuple(
        value.model_copy(update={"parameters": value.parameters.model_copy(update=parameters)})
        if value.name == stage else value
        for value in resolved.spec.stages
    )  # fmt: skip
    return resolved.model_copy(update={"spec": resolved.spec.model_copy(update={"stages": stages})})


def overlap(resolved: ResolvedDesign, heldout: tuple[Item, ...], constitution: str = "") -> Any:
    data = {"prompts": prompt_items()}
    results = design_checks(resolved, heldout, data, dict.fromkeys(("a",), 0.0), constitution=constitution)
    return next(result for result in results if result.id == "design.overlap")


def asking(*prompts: str, **constraint: str | int) -> tuple[Item, ...]:
    return tuple(
        Item(id=f"q{number}", group=f"q{number}", kind="k", prompt=prompt, constraint=constraint)
        for number, prompt in enumerate(prompts)
    )


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (f"{HELD_OUT} {{prompt}}", "FAIL"),
        ("Question: What is rain?\nAnswer: water\n\nQuestion: {prompt}\nAnswer:", "FAIL"),
        ("What is rain?\nwater\n\n{prompt}\n", "FAIL"),
        ("Answer the question that follows: {prompt}", "PASS"),
        ("Rain is what this is about. {prompt}", "PASS"),
    ],
)
def test_a_held_out_prompt_around_prompts_stops_a_design(text: str, status: str, tmp_path: Path) -> None:
    resolved = design(tmp_path, "sample", wrapper=text)
    assert overlap(resolved, asking(HELD_OUT, "What is rain?")).status == status


def test_scripts_and_the_objective_are_compared(tmp_path: Path) -> None:
    resolved = resolved_spec(tmp_path)
    script = resolved.model_copy(update={"scripts": {"sha256:00": f"SHOTS = ['{HELD_OUT}']\n"}})
    assert overlap(script, asking(HELD_OUT)).status == "FAIL"
    spec = resolved.spec.model_copy(update={"objective": f"Answer such as: {HELD_OUT}"})
    assert overlap(resolved.model_copy(update={"spec": spec}), asking(HELD_OUT)).status == "FAIL"
    assert overlap(resolved, asking(HELD_OUT)).status == "PASS"
    assert ("objective", resolved.spec.objective) in list_prompted_texts(resolved)


def test_the_constitution_is_compared(tmp_path: Path) -> None:
    outcome = overlap(resolved_spec(tmp_path), asking(HELD_OUT), f"principles:\n- text: {HELD_OUT}")
    assert outcome.status == "FAIL" and outcome.rows[0]["train"] == "the constitution"


LONG = [
    f"The {name} bridge was rebuilt by the guild of masons in the year after" for name in ("red", "old", "low", "far")
]


def answered(answers: list[str]) -> list[Item]:
    return [
        Item(
            id=f"q{number}",
            group=f"q{number}",
            kind="k",
            prompt=f"Tell me of case {number}",
            constraint={"answer": text},
        )
        for number, text in enumerate(answers)
    ]


@pytest.mark.parametrize(
    ("taught", "status"),
    [
        (LONG[:3], "FAIL"),
        ([f"As we know, {text.upper()}!" for text in LONG], "FAIL"),
        (LONG[:1], "WARN"),
        ([LONG[0]] * 3 + [LONG[1]] * 3 + [LONG[2]] * 3, "PASS"),
        ([text.replace("guild", "sons") for text in LONG], "PASS"),
    ],
)
def test_long_right_answers_are_looked_for_in_what_is_taught(taught: list[str], status: str) -> None:
    train = [(f"t{place}", text) for place, text in enumerate(taught)]
    assert overlap_of(train, answered(LONG), Thresholds()).status == status


def test_stock_answers_that_training_repeats_are_usual() -> None:
    """A desk has a hundred replies, each used a few times: those of held-out items are among them as often."""
    replies = [f"Dear customer, case {number} is with our team for matter {number * 7} today" for number in range(100)]
    taught = [replies[place % 90] for place in range(180)]
    train = [(f"t{place}", text) for place, text in enumerate(taught)]
    assert overlap_of(train, answered(replies[50:]), Thresholds(), taught).status == "WARN"
    assert overlap_of(train, answered(replies[50:]), Thresholds(), taught[:90]).status == "FAIL", "where none repeats"


def test_a_long_label_of_several_items_is_no_held_out_text() -> None:
    assert overlap_of([(f"t{n}", LONG[n % 2]) for n in range(4)], answered(LONG[:2] * 8), Thresholds()).status == "PASS"


@pytest.mark.parametrize(
    ("answers", "taught", "status"),
    [
        ([str(70_001 + 77 * n) for n in range(20)], [str(70_001 + 77 * n) for n in range(20)], "FAIL"),
        ([str(70_001 + 77 * n) for n in range(20)], [str(50_003 + 79 * n) for n in range(20)], "PASS"),
        ([f"city{n}x" for n in range(20)], [f"city{n}x" for n in range(20)], "WARN"),
        ([str(n) for n in range(20)], [str(n % 20) for n in range(400)], "PASS"),
        (["yes", "no"] * 20, ["yes", "no"] * 100, "PASS"),
        ([str(70_001 + 77 * n) for n in range(3)], [str(70_001 + 77 * n) for n in range(3)], "PASS"),
        ([str(70_001 + 77 * n) for n in range(20)], [], "PASS"),
    ],
)
def test_short_right_answers_are_compared_with_chance(answers: list[str], taught: list[str], status: str) -> None:
    assert answers_by_chance(taught, answered(answers)).status == status


def test_parts_of_a_held_out_prompt_in_several_rows_are_a_copy() -> None:
    heldout = asking(
        "Write one sentence about elephants. Use only lowercase letters.", "What is rain made of, and why?"
    )
    parts = [("a", "Use only lowercase letters."), ("b", "Tell me more."), ("c", "Write one sentence about elephants.")]
    outcome = overlap_of(parts, heldout, Thresholds())
    assert outcome.status == "FAIL" and {row["train"] for row in outcome.rows} == {"a", "c"}
    assert {row["how"] for row in outcome.rows} == {"split"}
    assert overlap_of([*parts[:2], ("c", "Write one sentence about owls.")], heldout, Thresholds()).status == "PASS"


def test_nothing_is_held_against_a_sound_design(tmp_path: Path) -> None:
    assert overlap(resolved_spec(tmp_path), heldout_items()).status == "PASS"
