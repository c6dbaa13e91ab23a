"""Label log-probabilities: batches over a shared beginning against one prompt at a time, on random weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from specs.stages.base.rubric import Rubric
from specs.stages.base.sampling import Form
from specs.stages.base.witness import LabelScores
from testing.fixtures.tiny_training import tiny_checkpoint
from training.engines import prefix_reading
from training.engines.checkpoint import load
from training.engines.label_scoring import Labels, NoLabels, encode_prompt, labels_of, score
from training.rules.prompt_encoding import EncodingFault
from training.rules.rubric_prompts import load_shipped_rubric, prompts_of_comparison, prompts_of_instruction

# Short, so that a context of 512 bytes holds it.
RUBRIC = Rubric(
    judges="instruction",
    good="it can be done",
    bad="it cannot be done",
    head="Judge this instruction.\n{options}\nIf unsure: {bad}",
    item="It: {instruction}\nLabel:",
)
TEXTS = ["Sing.", "Name two rivers.", "Say why the sea is salt.", "Go.", "Name two rivers.", "Count {options} to nine."]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    import torch

    before = torch.get_num_threads()
    # Models this small are slower with more.
    torch.set_num_threads(1)
    yield load(tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "model"))
    torch.set_num_threads(before)


def one_by_one(model: Any, tokenizer: Any, prompts: list[str], form: Form) -> list[list[float | None]]:
    """The plainest way: one prompt at a time, no cache, all logits."""
    import torch

    results: list[list[float | None]] = []
    with torch.inference_mode():
        for prompt in prompts:
            ids = torch.tensor([encode_prompt(tokenizer, prompt, form)])
            logs = torch.log_softmax(model(input_ids=ids, use_cache=False).logits[0, -1].float(), -1)
            results.append([None if id is None else float(logs[id]) for id in labels_of(tokenizer)])
    return results


def forms(scores: LabelScores) -> list[float | None]:
    return [scores.a, scores.a_spaced, scores.b, scores.b_spaced]


@pytest.mark.parametrize("form", ["completion", "chat"])
@pytest.mark.parametrize("batch_size", [1, 4, 16])
def test_batched_scores_are_those_of_one_prompt_at_a_time(loaded: tuple[Any, Any], form: Form, batch_size: int) -> None:
    prompts = [prompts_of_instruction(RUBRIC, text).plain for text in TEXTS]
    ours = score(*loaded, prompts, form=form, batch_size=batch_size)
    for scores, plain in zip(ours, one_by_one(*loaded, prompts, form), strict=True):
        assert [value is None for value in forms(scores)] == [value is None for value in plain]
        values = [(value, other) for value, other in zip(forms(scores), plain, strict=True) if value is not None]
        assert values and all(other is not None and abs(value - other) < 1e-4 for value, other in values)
    # Distinct prompts have distinct scores: a batch that mixed its rows up would show.
    assert len({label_scores.a for label_scores in ours}) == len(set(TEXTS))


def test_a_single_prompt_and_prompts_with_nothing_in_common_are_scored_too(loaded: tuple[Any, Any]) -> None:
    prompts = ["x\nLabel:", "Something else entirely\nLabel:"]
    together = score(*loaded, prompts, form="completion", batch_size=2)
    alone = [score(*loaded, [prompt], form="completion", batch_size=2)[0] for prompt in prompts]
    for scores, other in zip(together, alone, strict=True):
        assert scores.a is not None and other.a is not None and abs(scores.a - other.a) < 1e-4
        assert (scores.prompt, scores.prompt_tokens) == (other.prompt, other.prompt_tokens)


def test_a_prompt_that_is_the_beginning_of_another_is_scored_at_its_own_end(loaded: tuple[Any, Any]) -> None:
    prompts = ["The same beginning:", "The same beginning: and more:"]
    ours = score(*loaded, prompts, form="completion", batch_size=2)
    plain = one_by_one(*loaded, prompts, "completion")
    for scores, (first, *_) in zip(ours, plain, strict=True):
        assert scores.a is not None and first is not None and abs(scores.a - first) < 1e-4


@pytest.mark.parametrize("tree", [True, False])
def test_a_tree_reads_each_beginning_once_and_rows_give_the_same(
    loaded: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch, tree: bool
) -> None:
    """Kills: a tree that repeats what prompts share; rows that pad what no one reads into a score."""
    monkeypatch.setitem(prefix_reading._APART, loaded[0], tree)  # pyright: ignore[reportPrivateUsage]
    count: list[int] = []

    def count_tokens(_: Any, __: Any, named: dict[str, Any]) -> None:
        count.append(named["input_ids"].numel())

    hook = loaded[0].register_forward_pre_hook(count_tokens, with_kwargs=True)
    prompts = ["Judge it: a red door.", "Judge it: a red dog.", "Judge it: a sea.", "Judge it: a red dog. Now."]
    scores = score(*loaded, prompts, form="completion", batch_size=4)
    hook.remove()
    # 12 letters begin all of them. Then "red dog.", " Now.", "or." and "sea.", or four rows of the longest.
    assert count == [12, 8 + 5 + 3 + 4 if tree else 4 * 13]
    for label_scores, plain in zip(scores, one_by_one(*loaded, prompts, "completion"), strict=True):
        assert (
            label_scores.a is not None
            and label_scores.b is not None
            and (label_scores.a, label_scores.b) == pytest.approx((plain[0], plain[2]), abs=1e-4)
        )


def test_a_byte_tokenizer_has_no_spaced_label(loaded: tuple[Any, Any]) -> None:
    labels = labels_of(loaded[1])
    assert (labels.a_spaced, labels.b_spaced) == (None, None) and labels.a is not None and labels.b is not None


class Words:
    """A tokenizer of whole words, as far as labels are asked of it."""

    unk_token_id = 0

    def __init__(self, ids: dict[str, list[int]]) -> None:
        self.ids = ids

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": self.ids[text]}


def test_labels_are_single_tokens_in_either_form() -> None:
    assert labels_of(Words({"A": [1], " A": [2], "B": [3], " B": [4]})) == Labels(1, 2, 3, 4)
    assert labels_of(Words({"A": [7, 1], " A": [2], "B": [3], " B": [7, 3]})) == Labels(None, 2, 3, None)


@pytest.mark.parametrize(
    "ids",
    [
        {"A": [7, 1], " A": [7, 1], "B": [3], " B": [4]},
        {"A": [5], " A": [5], "B": [5], " B": [5]},
        {"A": [0], " A": [0], "B": [3], " B": [4]},
    ],
    ids=["two tokens", "one token for both", "unknown"],
)
def test_a_tokenizer_without_labels_is_refused(ids: dict[str, list[int]]) -> None:
    with pytest.raises(NoLabels):
        labels_of(Words(ids))


def test_a_prompt_longer_than_the_context_is_refused(loaded: tuple[Any, Any]) -> None:
    with pytest.raises(ValueError, match="has 601 tokens, the model reads 512"):
        score(*loaded, ["x" * 600 + ":"], form="completion", batch_size=2)


@pytest.mark.parametrize("form", ["completion", "chat"])
def test_template_marks_inside_an_instruction_are_refused(loaded: tuple[Any, Any], form: Form) -> None:
    """An instruction cannot speak with the voice of the template."""
    with pytest.raises(EncodingFault, match="special token"):
        score(*loaded, ["Say<|end|>\nLabel:", "b\nLabel:"], form=form, batch_size=2)


def test_a_chat_prompt_ends_with_the_beginning_of_the_answer(loaded: tuple[Any, Any]) -> None:
    ids = encode_prompt(loaded[1], "Is it good?\nLabel:", "chat")
    assert loaded[1].decode(ids) == "<|start|>user\nIs it good?<|end|>\n<|start|>assistant\nLabel:"


def test_the_shipped_rubrics_have_labels_for_every_example() -> None:
    text = prompts_of_instruction(load_shipped_rubric("instruction"), "Sing.")
    for order, good in ((text.plain, "A"), (text.swapped, "B")):
        answers = [line for line in order.splitlines() if line.startswith("Label: ")]
        examples = load_shipped_rubric("instruction").examples
        assert [line[-1] == good for line in answers] == [example.good for example in examples]
        assert order.endswith("Instruction: Sing.\nLabel:")


def test_compared_responses_change_places_and_the_labels_stay() -> None:
    text, other = prompts_of_comparison(load_shipped_rubric("comparison"), "Say it.", "First {second}.", "Second.")
    assert text.endswith("Response A: First {second}.\nResponse B: Second.\nLabel:")
    assert other.endswith("Response A: Second.\nResponse B: First {second}.\nLabel:")
    assert text.partition("Instruction: Say it.")[0] == other.partition("Instruction: Say it.")[0]
