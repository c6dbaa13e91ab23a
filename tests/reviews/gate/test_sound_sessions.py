"""Sound but unusual sessions, languages by tasks by shapes: no check of the design refuses one."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from specs.stages.base.artifacts import DialogueTurn, Example, Item
from testing.factories.evidence_on_disk import design_results, resolved_spec

LANGUAGES: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parents[2] / "fixtures" / "sound_languages.json").read_text(encoding="utf-8")
)
"""Words and sentences of 13 languages, of emoji and of code."""
TASKS = ("asks", "rate", "sum", "formal", "json", "english", "form")
SHAPES = ("plain", "preamble", "short", "turns")
PREAMBLE = (
    "You are part of a long pipeline whose output is read by a program. Take your time with every request, keep to the "
    "language in which it is written, do not explain, do not apologise, and write nothing but what is asked. "
)


def session(language: str, task: str, shape: str) -> tuple[tuple[Item, ...], tuple[Item, ...], list[Example]]:
    """Return held-out items, items to train on and taught completions of a sound session."""
    words = LANGUAGES[language]
    nouns, traits = words["nouns"].split(), words["traits"].split()
    pairs = [*itertools.product(nouns[:8], traits), *itertools.product(nouns[8:], traits)]
    items, taught = list[Item](), list[Example]()
    for place, (noun, trait) in enumerate(pairs):
        sentence = words["says"].format(n=noun, t=trait)
        prompt, right = _ask(words, task, noun, trait, sentence, place)
        before: tuple[DialogueTurn, ...] = ()
        if shape == "preamble":
            prompt = PREAMBLE + prompt
        elif shape == "short":
            prompt = prompt if task == "sum" else f"{noun} {trait}?"
        elif shape == "turns":
            before = (DialogueTurn(role="user", content=sentence), DialogueTurn(role="assistant", content="OK."))
        constraint: dict[str, Any] = {"answer": right}
        items.append(
            Item(id=f"i{place}", group=noun, kind=f"k{place % 2}", prompt=prompt, constraint=constraint, before=before)
        )
        taught.append(
            Example(item=f"i{place}", group=noun, kind=f"k{place % 2}", sample=0, prompt=prompt, completion=right)
        )
    half = len(pairs) // 2
    return tuple(items[:half]), tuple(items[half:]), taught[half:]


def _ask(words: dict[str, str], task: str, noun: str, trait: str, sentence: str, place: int) -> tuple[str, str]:
    labels = words["labels"].split()
    polite = words["polite"].format(n=noun, t=trait)
    match task:
        case "asks":
            return words["asks"].format(n=noun, t=trait), trait
        case "rate":
            return words["rate"].format(s=sentence), labels[place % 2]
        case "sum":
            # Some sums of training have a held-out result, and some the same numbers in another order.
            first, second = 10 + place % 13, 20 + place * 7 % 31
            return f"{words['labels']}: {first} + {second} = ?", str(first + second)
        case "json":
            return words["json"].format(s=sentence), f'{{"name": "{noun}", "trait": "{trait}", "again": true}}'
        case "form":
            return f"{polite} {words['labels']}?", labels[place % 2]
        case _:
            return words[task].format(s=sentence), polite


THIRDS = [
    pytest.param(language, task, marks=[pytest.mark.more] if place % 3 else [])
    for place, (language, task) in enumerate(itertools.product(LANGUAGES, TASKS))
]
"""Every language and task; `make test` runs a third of them."""


@pytest.mark.parametrize(("language", "task"), THIRDS)
def test_a_sound_session_passes(language: str, task: str, tmp_path: Path) -> None:
    shape = SHAPES[(list(LANGUAGES).index(language) + TASKS.index(task)) % len(SHAPES)]
    assert refusals(tmp_path, language, task, shape) == {}


@pytest.mark.slow
@pytest.mark.parametrize(("language", "task", "shape"), list(itertools.product(LANGUAGES, TASKS, SHAPES)))
def test_a_sound_session_passes_in_every_shape(language: str, task: str, shape: str, tmp_path: Path) -> None:
    assert refusals(tmp_path, language, task, shape) == {}


def refusals(folder: Path, language: str, task: str, shape: str) -> dict[str, str]:
    """Return what the design checks refuse of a sound session; its power is not in question."""
    heldout, prompts, taught = session(language, task, shape)
    resolved = resolved_spec(folder)
    # As if loaded with these files: what they hold is given to the checks directly.
    resolved = resolved.model_copy(update={"spec": resolved.spec.model_copy(update={"task": "exact_answer"})})
    results = design_results(resolved, heldout, {"prompts": prompts}, {"more": taught})
    return {
        result.id: result.detail
        for result in results
        if result.status in ("FAIL", "BLOCKED", "ERROR") and result.id not in ("design.power", "design.scorer")
    }


@pytest.mark.parametrize("groups", ["named", "numbered", "alone"])
@pytest.mark.parametrize("language", ["english", "german", "russian", "hindi"])
def test_topics_that_are_everyday_words_are_no_leak(language: str, groups: str, tmp_path: Path) -> None:
    """Training prompts of other topics say "time" and "water", each held-out topics."""
    heldout, prompts, _ = session(language, "asks", "plain")
    time, water = LANGUAGES[language]["nouns"].split()[:2]
    names = {"named": "{0}", "numbered": "topic {1}", "alone": "row {2}"}
    rows = tuple(
        item.model_copy(
            update={
                "prompt": f"{item.prompt} {time} {water} {place}",
                "group": names[groups].format(item.group, place // 5, place),
            }
        )
        for place, item in enumerate(prompts)
    )
    results = {
        result.id: result.status for result in design_results(resolved_spec(tmp_path), heldout, {"prompts": rows})
    }
    assert results["design.groups"] == "WARN"


def test_training_on_held_out_topics_under_other_names_is_a_leak(tmp_path: Path) -> None:
    heldout, prompts, _ = session("english", "asks", "plain")
    topics = LANGUAGES["english"]["nouns"].split()[:8]
    rows = tuple(
        item.model_copy(update={"prompt": f"Tell tale {place} of the {topics[place // 5]}.", "group": f"t{place // 5}"})
        for place, item in enumerate(prompts)
    )
    results = {
        result.id: result.status for result in design_results(resolved_spec(tmp_path), heldout, {"prompts": rows})
    }
    assert results["design.groups"] == "FAIL"


@pytest.mark.parametrize(("name", "status"), [("The Time", "FAIL"), ("TIME!", "FAIL"), ("timing", "PASS")])
def test_a_topic_under_another_spelling_is_the_same(name: str, status: str, tmp_path: Path) -> None:
    heldout, prompts, _ = session("english", "asks", "plain")
    rows = (prompts[0].model_copy(update={"group": name}), *prompts[1:])
    results = design_results(resolved_spec(tmp_path), heldout, {"prompts": rows})
    assert {result.id: result.status for result in results}["design.groups"] == status
