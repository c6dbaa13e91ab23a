"""Completing with stop strings and a repetition penalty, on tiny random models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testing.fixtures.small_text import small_model
from training.engines.batched import Completion, shared_beginning
from training.engines.checkpoint import load
from training.engines.engine import BatchedEngine
from training.engines.token_sampling import Penalty, TokenSampling

pytestmark = pytest.mark.integration

PROMPTS = ("tell a short tale about the sea", "name a bee", "write", "list a poem about the old cat and the new dog")
LIMIT = 24


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    return load(small_model(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def ids(loaded: tuple[Any, Any]) -> list[list[int]]:
    return [loaded[1](text)["input_ids"] for text in PROMPTS]


def outputs(
    loaded: tuple[Any, Any], ids: list[list[int]], sampling: TokenSampling, **settings: Any
) -> list[Completion]:
    rows = BatchedEngine(*loaded, 8, share=False).complete(ids, sampling, **settings)
    return [output for row in rows for output in row]


def test_the_same_seed_draws_the_same_answers(loaded: tuple[Any, Any], ids: list[list[int]]) -> None:
    sampling = TokenSampling(LIMIT, 0.9, 0.8)
    sampled, again, other = (outputs(loaded, ids, sampling, samples=2, seed=seed) for seed in (3, 3, 4))
    assert sampled == again != other


def test_a_stop_cuts_the_same_text_and_says_which_one_it_was(loaded: tuple[Any, Any], ids: list[list[int]]) -> None:
    whole = outputs(loaded, ids, TokenSampling(LIMIT, keep_special=True))
    # Parts of what the model writes anyway: from the middle of one token to the middle of another.
    stops = tuple(output.text[9:13] for output in whole[:2])
    assert all(stops)
    cut = outputs(loaded, ids, TokenSampling(LIMIT, stops=stops, keep_special=True))
    ended = {"stop": 0, "length": 0, "eos": 0}
    for before, after in zip(whole, cut, strict=True):
        at, stop = (
            min((before.text.find(stop), stop) for stop in (*stops, "") if stop in before.text and stop)
            if any(stop in before.text for stop in stops)
            else (-1, None)
        )
        ended[after.finish] += 1
        if stop is None:
            assert after == before
        else:
            assert (after.text, after.finish, after.stop, after.truncated) == (before.text[:at], "stop", stop, False)
            assert after.ids == before.ids[: len(after.ids)] and len(after.ids) < len(before.ids)
    assert ended["stop"] >= 2


def test_rows_that_stopped_do_not_change_the_others(loaded: tuple[Any, Any], ids: list[list[int]]) -> None:
    whole = outputs(loaded, ids, TokenSampling(LIMIT))
    stop = whole[0].text[3:7]
    cut = outputs(loaded, ids, TokenSampling(LIMIT, stops=(stop,)))
    others = [place for place, output in enumerate(whole) if stop not in output.text]
    assert others and [cut[place] for place in others] == [whole[place] for place in others]


def test_each_way_to_end_is_reported(loaded: tuple[Any, Any], ids: list[list[int]]) -> None:
    model, _ = loaded
    (first, *_) = outputs(loaded, ids, TokenSampling(6))
    assert (first.finish, first.truncated, first.stop, len(first.ids)) == ("length", True, None, 6)
    # The third token becomes the end token.
    before = model.generation_config.eos_token_id
    model.generation_config.eos_token_id = [before, first.ids[2]]
    try:
        (ended, *_) = outputs(loaded, ids[:1], TokenSampling(6))
    finally:
        model.generation_config.eos_token_id = before
    assert (ended.finish, ended.truncated, ended.ids) == ("eos", False, first.ids[: first.ids.index(first.ids[2])])


def test_the_penalty_is_that_of_transformers(loaded: tuple[Any, Any], ids: list[list[int]]) -> None:
    import torch
    from transformers import RepetitionPenaltyLogitsProcessor

    processor: Any = RepetitionPenaltyLogitsProcessor(1.3)

    logits = torch.randn(2, len(loaded[1]), generator=torch.Generator().manual_seed(5)) * 4
    penalty = Penalty(1.3)
    penalty.begin(ids[:2], 1, logits)
    for row in range(2):
        theirs = processor(torch.tensor([ids[row]]), logits[row : row + 1])
        assert torch.equal(penalty.on(logits)[row : row + 1], theirs)
    # A token that was written counts too, and rows that go take their tokens with them.
    penalty.add(torch.tensor([7, 8]))
    penalty.keep(torch.tensor([1]))
    theirs = processor(torch.tensor([[*ids[1], 8]]), logits[1:2])
    assert torch.equal(penalty.on(logits[1:2]), theirs)


def test_greedy_with_a_penalty_is_what_generate_writes(loaded: tuple[Any, Any], ids: list[list[int]]) -> None:
    import torch

    model, _ = loaded
    ours = outputs(loaded, ids, TokenSampling(LIMIT, repetition_penalty=1.2))
    for prompt, output in zip(ids, ours, strict=True):
        tensor = torch.tensor([prompt])
        theirs: Any = model.generate(
            tensor,
            attention_mask=torch.ones_like(tensor),
            max_new_tokens=LIMIT,
            do_sample=False,
            repetition_penalty=1.2,
        )
        assert list(output.ids) == theirs[0, len(prompt) :].tolist()
    assert [completion.ids for completion in ours] != [
        completion.ids for completion in outputs(loaded, ids, TokenSampling(LIMIT))
    ]


def test_special_tokens_stay_visible_where_they_are_asked_for(loaded: tuple[Any, Any], tmp_path: Path) -> None:
    from training.engines.stop_strings import StopWatcher

    _, tokenizer = loaded
    ids = tokenizer("tell <|start|>user")["input_ids"]
    assert "<|start|>" in StopWatcher(tokenizer, (), keep_special=True).text_of(ids)
    assert "<|start|>" not in StopWatcher(tokenizer, (), keep_special=False).text_of(ids)


BEGINNING = "tell a short tale about the sea and the sky and the owl and the bee and the rain and the old house "


def test_a_common_beginning_is_read_once_and_changes_nothing(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    prompts = [tokenizer(f"{BEGINNING}{text}")["input_ids"] for text in (*PROMPTS, "a")]
    assert shared_beginning(prompts) >= 20
    read: list[int] = []

    def note(_model: Any, _args: Any, arguments: dict[str, Any]) -> None:
        read.append(arguments["input_ids"].numel())

    hook = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        for samples, penalty in ((1, 1.0), (2, 1.2)):
            results: list[list[list[Completion]]] = []
            for share in (False, True):
                sampling = TokenSampling(LIMIT, repetition_penalty=penalty)
                read.clear()
                results.append(
                    BatchedEngine(model, tokenizer, 16, share=share).complete(prompts, sampling, samples=samples)
                )
                read_first = sum(read[: 1 + share])
                assert read_first < 0.6 * sum(map(len, prompts)) if share else read_first >= sum(map(len, prompts))
            assert results[0] == results[1]
    finally:
        hook.remove()


@pytest.mark.parametrize(
    ("prompts", "count"),
    [
        ([[*range(20), 1], [*range(20), 2]], 20),
        # Every prompt keeps its last id: that is the one that predicts.
        ([[*range(20)], [*range(20)]], 19),
        ([[*range(20)], [*range(18)]], 17),
        ([[*range(20)]], 0),
        ([[*range(10), 1], [*range(10), 2]], 0),
        ([[5, *range(20)], [6, *range(20)]], 0),
    ],
)
def test_what_prompts_have_in_common_is_worth_reading_once_from_a_length_on(
    prompts: list[list[int]], count: int
) -> None:
    assert shared_beginning(prompts) == count
