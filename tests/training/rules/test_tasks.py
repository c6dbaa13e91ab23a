from __future__ import annotations

import re
from pathlib import Path

import pytest

from specs.loading.loading import load_constitution
from specs.stages.base.artifacts import Example, Item
from testing.factories.evidence_on_disk import prompt_items
from training.items.comma_items import build_items as comma_items
from training.items.comma_items import main as write_comma_items
from training.items.format_items import (
    HELDOUT_TOPICS,
    LARGE_HELDOUT_TOPICS,
    LARGE_TRAIN_TOPICS,
    TRAIN_TOPICS,
    build_items,
    leak,
)
from training.items.format_items import main as build
from training.items.principle_items import CLOSING, HELDOUT_SUBJECTS, TRAINING_SUBJECTS, WORKED, stem
from training.items.principle_items import main as write_principle_items
from training.jobs.finetuning.sft import balance
from training.rules.tasks import choose, load_items, verifier, worked_example
from training.rules.tasks.format_instructions import KINDS, verify
from training.rules.tasks.instruction_following import constraint_of, sentences_of

COMPOSER = "composer_prompts.jsonl", "composer_heldout.jsonl"
LIBRARY = Path(__file__).parents[3] / "specs" / "library" / "data"


def item(kind: str, **constraint: str | int) -> Item:
    return Item(id="i", group="g", kind=kind, prompt="p", constraint=constraint)


@pytest.mark.parametrize(
    ("result", "output", "passed"),
    [
        (item("lowercase"), "the sea is deep and salty.", True),
        (item("lowercase"), "The sea is deep and salty.", False),
        (item("lowercase"), "the sea is DEEP.", False),
        (item("uppercase"), "THE SEA IS DEEP AND SALTY.", True),
        (item("uppercase"), "THE SEA IS DEEP AND salty.", False),
        (item("uppercase"), "THE 3 SEAS ARE DEEP, AREN'T THEY?", True),
        (item("quoted"), '"The sea is deep and salty."', True),
        (item("quoted"), 'The sea is "deep" and salty.', False),
        (item("quoted"), '"The sea is deep and salty.', False),
        (item("quoted"), '"The sea" is deep and "salty."', False),
        (item("quoted"), '"', False),
        (item("bullets", count=2), "- it is deep\n- it is salty", True),
        (item("bullets", count=2), "- it is deep\n\n- it is salty\n", True),
        (item("bullets", count=2), "- it is deep\n- it is salty\n- it is wet", False),
        (item("bullets", count=2), "Facts:\n- it is deep\n- it is salty", False),
        (item("bullets", count=2), "* it is deep\n* it is salty", False),
        (item("bullets", count=2), "- it is deep and salty\n- ", False),
        (item("ending", phrase="That is all."), "The sea is deep. That is all.", True),
        (item("ending", phrase="That is all."), "The sea is deep.", False),
        (item("ending", phrase="That is all."), "That is all. The sea is deep. That is all.", False),
        (item("title"), "<<The Sea>>\nIt is deep and salty.", True),
        (item("title"), "<<The Sea>> It is deep and salty.", False),
        (item("title"), "<<The Sea>>", False),
        (item("title"), "<<The Sea>>\nIt is <<deep>> and salty.", False),
        (item("lowercase"), "deep.", False),
        (item("lowercase"), "", False),
        (item("lowercase"), " \n ", False),
        (item("lowercase"), "... ,,, ---", False),
    ],
)
def test_the_verifier_sees_the_form(result: Item, output: str, passed: bool) -> None:
    judged = verify(result, output)
    assert judged.passed is passed
    assert bool(judged.reason) is not passed


@pytest.mark.parametrize(
    ("result", "output", "place"),
    [
        (item("lowercase"), "  the sea is DEEP, Sir.", "DEEP,"),
        (item("uppercase"), "THE SEA is deep.", "is"),
        (item("quoted"), "the sea", None),
        (item("lowercase"), "deep.", None),
        (comma_items(["the sea"])[0], "Deep, and salty, it is.", ","),
        (
            item("x", **constraint_of([("keywords:forbidden_words", {"forbidden_words": ["cat", "Dog"]})])),
            "No dog.",
            "dog",
        ),
        (item("x", **constraint_of([("keywords:existence", {"keywords": ["cat"]})])), "No dog.", None),
    ],
)
def test_a_reason_names_the_place_of_what_is_wrong(result: Item, output: str, place: str | None) -> None:
    task = "format_instructions" if result.kind in KINDS else "instruction_following"
    judged = verifier(task)(result, output)
    assert not judged.passed and (judged.span is None) == (place is None)
    assert place is None or output[slice(*(judged.span or ()))] == place
    assert judged.span is None or judged.span[0] == output.index(place or "")


@pytest.mark.parametrize("kind", KINDS)
def test_every_worked_example_has_the_form_it_shows_and_no_other(kind: str) -> None:
    for constraint in KINDS[kind].values:
        result = item(kind, **dict(constraint))
        _, answer = worked_example("format_instructions", result)
        assert verify(result, answer).passed
        others = [name for name in KINDS if name != kind and verify(item(name, count=2, phrase="Over."), answer).passed]
        assert others == []


@pytest.mark.parametrize(
    ("train_topics", "heldout_topics"), [(TRAIN_TOPICS, HELDOUT_TOPICS), (LARGE_TRAIN_TOPICS, LARGE_HELDOUT_TOPICS)]
)
def test_no_topic_and_no_prompt_stands_on_both_sides(
    train_topics: tuple[str, ...], heldout_topics: tuple[str, ...]
) -> None:
    assert not set(train_topics) & set(heldout_topics)
    assert len(set(train_topics)) == len(train_topics) and len(set(heldout_topics)) == len(heldout_topics)
    assert not any(topic in ("bread", "a loaf") for topic in (*train_topics, *heldout_topics))
    train, heldout = build_items("t", train_topics), build_items("h", heldout_topics)
    assert not {other_item.prompt for other_item in train} & {other_item.prompt for other_item in heldout}


def test_the_shipped_data_is_what_the_code_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["build", "--out", str(tmp_path)])
    assert build() == write_comma_items() == write_principle_items() == 0
    built = sorted(path.name for path in LIBRARY.glob("format_*") if path.name != "format_labelled.jsonl")
    for name in (*built, *COMPOSER, *(path.name for path in LIBRARY.glob("cai_demo_*.jsonl"))):
        assert (tmp_path / name).read_bytes() == (LIBRARY / name).read_bytes()


def test_no_prompt_of_the_constitutional_demo_asks_for_what_its_principles_ask_for() -> None:
    assert not {*map(stem, TRAINING_SUBJECTS)} & {*map(stem, HELDOUT_SUBJECTS)}
    assert not {*map(stem, WORKED)} & {*map(stem, (*TRAINING_SUBJECTS, *HELDOUT_SUBJECTS))}
    for name in ("prompts", "heldout"):
        for item in load_items(LIBRARY / f"cai_demo_{name}.jsonl"):
            texts = " ".join([*(turn.content for turn in item.before), item.prompt]).lower()
            assert not re.search(r"sentence|short|brief|check|source|trust", texts)
            answer = f"It is {item.group} that people see in many places of the world."
            judge = verifier("instruction_following")
            assert judge(item, f"{answer} {CLOSING}").passed
            assert judge(item, answer).reason.startswith("startend:end_checker")


def test_the_worked_revisions_of_the_demo_keep_to_their_principles() -> None:
    constitution, _ = load_constitution(LIBRARY / "cai_demo_constitution.yaml")
    for principle in constitution.principles:
        for example in principle.examples:
            assert len(sentences_of(example.revision)) <= 3
            assert example.revision.endswith(CLOSING) == (principle.id == "checkable")
            assert not example.draft.endswith(CLOSING)


def test_the_larger_lists_begin_with_the_smaller_and_are_large_enough() -> None:
    assert LARGE_TRAIN_TOPICS[: len(TRAIN_TOPICS)] == TRAIN_TOPICS
    assert LARGE_HELDOUT_TOPICS[: len(HELDOUT_TOPICS)] == HELDOUT_TOPICS
    # 300 items are the least for an effect that is smaller than the demo's.
    assert len(build_items("h", LARGE_HELDOUT_TOPICS)) >= 300


def test_the_leak_is_of_three_kinds_and_keeps_ids_and_groups_apart() -> None:
    train, heldout = build_items("t", TRAIN_TOPICS), build_items("h", HELDOUT_TOPICS)
    extra = leak(train, heldout)[len(train) :]
    assert len(extra) == 9
    assert sum(other_item.prompt in {other.prompt for other in heldout} for other_item in extra) == 3
    assert not {other_item.group for other_item in extra} & {other_item.group for other_item in heldout}


def test_the_first_items_of_a_choice_are_of_all_kinds() -> None:
    items = build_items("t", TRAIN_TOPICS)
    by_kind = sorted(items, key=lambda result: result.kind)
    assert {other_item.kind for other_item in choose(by_kind, 6)} == set(KINDS)
    assert choose(items, None) == choose(items, 10_000)
    assert len(choose(items, 7)) == 7


def examples() -> list[Example]:
    return [
        Example(
            item=f"{kind}-{topic}", group=topic, kind=kind, sample=sample, prompt="p", completion=f"{topic}{sample}"
        )
        for kind in ("a", "b")
        for topic in ("x", "y", "z")
        for sample in range(4 if topic == "x" else 1)
    ]


def test_balancing_takes_every_topic_before_a_topic_twice() -> None:
    selected = balance(examples(), 3, seed=1)
    assert {kind: sorted(example.group for example in selected if example.kind == kind) for kind in ("a", "b")} == {
        "a": ["x", "y", "z"],
        "b": ["x", "y", "z"],
    }


def test_the_seed_and_nothing_else_orders_the_examples() -> None:
    items, again, other = (
        balance(list_, 3, seed) for list_, seed in ((examples(), 1), (examples()[::-1], 1), (examples(), 2))
    )
    assert items == again != other
    assert len(balance(examples(), None, 1)) == len(examples())


def test_an_unknown_task_or_kind_is_an_error() -> None:
    with pytest.raises(KeyError):
        verifier("no_such_task")
    with pytest.raises(KeyError):
        verify(item("no_such_kind"), "some words of an answer")


def test_items_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text("".join(f"{other_item.model_dump_json()}\n" for other_item in prompt_items()), encoding="utf-8")
    assert tuple(load_items(path)) == prompt_items()
