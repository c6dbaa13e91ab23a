"""Prompts laid out as a tree of tokens: what is read, and that no prompt sees another, whatever the model."""

from __future__ import annotations

import random
from typing import Any

import pytest

from training.engines import prefix_reading
from training.engines.prefix_reading import build_prompt_tree, keeps_apart, last_logits, passes

pytestmark = pytest.mark.usefixtures("one_thread")

VOCABULARY = 300
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "bos_token_id": None,
    "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip


def made(name: str, **more: Any) -> Any:
    """Return a random model of an architecture of transformers."""
    import torch
    import transformers

    torch.manual_seed(3)
    config = getattr(transformers, f"{name}Config")(**(SIZES | more))
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    # Attention of fresh weights is nearly flat, and who sees whom would hardly show.
    with torch.no_grad():
        for values in model.parameters():
            if values.ndim == 2:
                values.mul_(6)
    return model


def texts(seed: int = 1) -> list[list[int]]:
    """Return prompts of many lengths that begin alike in twos and threes; one is the beginning of another."""
    draw = random.Random(seed)

    def random_tokens(count: int) -> list[int]:
        return [draw.randrange(VOCABULARY) for _ in range(count)]

    stems = [random_tokens(9), random_tokens(4), random_tokens(1)]
    results = [stem + random_tokens(count) for stem in stems for count in (1, 5, 12)]
    return [*results, stems[0], results[2] + random_tokens(3), random_tokens(20)]


def alone(model: Any, prompts: list[list[int]]) -> Any:
    import torch

    with torch.inference_mode():
        return torch.stack([model(torch.tensor([prompt]), use_cache=False).logits[0, -1] for prompt in prompts])


def read(model: Any, prompts: list[list[int]], shared: int, tree: bool, most: int = 16) -> Any:
    """Return the logits in the order of the prompts, the first tokens from a cache."""
    import torch

    tails = [prompt[shared:] for prompt in prompts]
    results: dict[int, Any] = {}
    with torch.inference_mode():
        start = torch.tensor([prompts[0][:shared]])
        before = model(start, use_cache=True).past_key_values if shared else None
        for chosen in passes(tails, most):
            logits = last_logits(model, [tails[number] for number in chosen], shared, before, tree)
            results |= dict(zip(chosen, logits, strict=True))
    return torch.stack([results[number] for number in range(len(prompts))])


def test_a_tree_holds_each_beginning_once() -> None:
    tree = build_prompt_tree([[1, 2], [1, 2, 3, 4], [1, 2, 3, 5], [6]])
    assert tree.ids == [1, 2, 3, 4, 5, 6]
    assert tree.depths == [0, 1, 2, 3, 3, 0]
    assert tree.ends == [1, 3, 4, 5]
    assert [path for _, path in tree.paths] == [[0, 1], [0, 1, 2, 3], [0, 1, 2, 4], [5]]


def test_passes_hold_every_prompt_once_and_no_more_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_reading, "PASS_TOKENS", 24)
    prompts = [*texts(), list(range(40))]
    results = passes(prompts, 2)
    assert sorted(number for group in results for number in group) == list(range(len(prompts)))
    assert max(len(group) for group in results) == 2
    for row in results:
        in_order = [prompts[number] for number in row]
        assert in_order == sorted(in_order)
        assert len(row) == 1 or len(build_prompt_tree(in_order).ids) <= 24
    assert len(passes(prompts, 100)) < len(results)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("Llama", {}),
        ("Llama", {"attn_implementation": "eager"}),
        ("Qwen2", {}),
        ("Gemma2", {"head_dim": 8, "sliding_window": 64}),
        ("OPT", {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    ],
    ids=["llama", "llama eager", "qwen2", "gemma2", "opt"],
)
@pytest.mark.parametrize("shared", [0, 6])
def test_a_tree_gives_the_logits_of_one_prompt_at_a_time(name: str, more: dict[str, Any], shared: int) -> None:
    model = made(name, **more)
    start = texts(2)[-1][:shared]
    prompts = [start + text for text in texts()]
    assert keeps_apart(model, 60)
    expected = alone(model, prompts)
    scale = float(expected.abs().max())
    assert float((read(model, prompts, shared, tree=True) - expected).abs().max()) < 1e-4 * scale
    assert float((read(model, prompts, shared, tree=False, most=4) - expected).abs().max()) < 1e-4 * scale


def test_a_window_shorter_than_a_prompt_is_read_in_rows() -> None:
    model = made("Mistral", sliding_window=8)
    prompts = [texts(2)[-1][:6] + text for text in texts()]
    assert keeps_apart(model, 8) and not keeps_apart(model, 9)
    expected = alone(model, prompts)
    scale = float(expected.abs().max())
    assert float((read(model, prompts, 6, tree=False) - expected).abs().max()) < 1e-4 * scale
    # As a tree the window would be ignored.
    assert float((read(model, prompts, 6, tree=True) - expected).abs().max()) > 1e-2 * scale


def test_a_model_without_such_masks_is_read_in_rows() -> None:
    """Bloom makes its positions of a mask of two dimensions."""
    model = made("Bloom", n_layer=2, n_head=4)
    prompts = [texts(2)[-1][:6] + text for text in texts()]
    assert not keeps_apart(model, 60)
    expected = alone(model, prompts)
    assert float((read(model, prompts, 6, tree=False) - expected).abs().max()) < 1e-4 * float(expected.abs().max())


def test_a_model_that_ignores_the_mask_or_refuses_it_is_read_in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    ignores, refuses, as_made = made("Llama"), made("Llama"), made("Llama")
    forward = type(ignores).forward

    def without(self: Any, attention_mask: Any = None, **named: Any) -> Any:
        if self is refuses and attention_mask is not None and attention_mask.ndim != 2:
            raise ValueError("two dimensions")
        return forward(self, attention_mask=None if self is ignores else attention_mask, **named)

    monkeypatch.setattr(type(ignores), "forward", without)
    assert (keeps_apart(ignores, 20), keeps_apart(refuses, 20), keeps_apart(as_made, 20)) == (False, False, True)
