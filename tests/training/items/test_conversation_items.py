"""Conversations that are built: different ones, valid, and neither passed by chance nor impossible."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from specs.stages.base.artifacts import Item
from training.items import conversation_items
from training.items.conversation_items import PATTERNS, build
from training.rules.tasks import load_items
from training.rules.tasks.conversation import KINDS, expected_of, judge, turns_of

USELESS = "I Do not know what You mean by all that, but here is a rather long answer anyway."


def obedient(item: Item, turn: int) -> str:
    """Return an answer that does what is asked."""
    requirement = expected_of(item, turn) if turn > 1 else None
    if requirement is None:
        return "All right."
    words = [group[0] for group in requirement.required] or ["fine", "so", "be", "it"][: requirement.most_words or 4]
    text = " ".join(words[: requirement.most_words])
    return text.lower() if requirement.form == "lowercase" else text


def answers(item: Item, text: str | None = None) -> tuple[str, ...]:
    return tuple(obedient(item, n) if text is None else text for n in range(1, len(turns_of(item)) + 1))


def test_three_hundred_conversations_are_different_and_balanced() -> None:
    items = build(75)
    assert Counter(item.kind for item in items) == dict.fromkeys(KINDS, 75)
    assert len({item.id for item in items}) == len({(item.prompt, *turns_of(item)) for item in items}) == 300
    patterns = Counter((item.kind, item.id.split("-")[1]) for item in items)
    assert min(patterns.values()) >= 10 and len(patterns) == len(PATTERNS)


def test_failure_30_more_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="kind preference has 320 different conversations, 350 were requested"):
        build(350)


def test_the_seed_chooses_and_repeats() -> None:
    assert build(20, 1) == build(20, 1) != build(20, 2)


def test_each_can_be_passed_and_none_is_passed_by_saying_nothing_of_use() -> None:
    for item in build(75):
        assert all(judgement.passed for judgement in judge(item, answers(item))), item
        if "forbid_2" not in item.constraint:
            assert not all(judgement.passed for judgement in judge(item, answers(item, USELESS))), item
        else:
            assert not judge(item, ("Yes.", f"It is {item.constraint['forbid_2']}."))[0].passed


def test_the_file_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "talks.jsonl"
    monkeypatch.setattr("sys.argv", ["build", "--out", str(path), "--each", "10"])
    assert conversation_items.main() == 0 and load_items(path) == build(10)
    monkeypatch.setattr("sys.argv", ["build", "--out", str(path), "--each", "1000"])
    assert conversation_items.main() == 2 and "were requested" in capsys.readouterr().err
