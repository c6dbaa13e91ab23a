"""Random models of published shapes, for benches where speed and memory matter and what is written does not."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from training.planning.model_shapes import PUBLISHED, Shape

SHAPES: dict[str, Shape] = {
    "0.135B": PUBLISHED["SmolLM2-135M"],
    "1B": Shape(16, 2048, 8192, 32, 8, 128256, tied=True),
    "3B": Shape(28, 3072, 8192, 24, 8, 128256, tied=True),
    "8B": PUBLISHED["Llama-3.1-8B"],
}
SPECIAL = {"<end>": 0, "<pad>": 1, "<unknown>": 2}
"""No word may hold the text of one: tokenizers cut it out. A text that begins with the padding has no gradient."""


def random_checkpoint(folder: Path, shape: Shape, dtype: str = "bfloat16") -> Path:
    """Write a random Llama of a shape, whose tokens are words w3, w4, ..., if it is not there; return its folder."""
    if folder.is_dir():
        return folder
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from training.engines.checkpoint import save

    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=8192,
        pad_token_id=1,
        eos_token_id=0,
        bos_token_id=None,
        tie_word_embeddings=shape.tied,
    )
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
            model = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    partial = folder.with_name(f"{folder.name}.partial")
    save(model, _tokenizer(shape.vocabulary), partial)
    partial.rename(folder)
    return folder


def _tokenizer(size: int) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(
        models.WordLevel(SPECIAL | {f"w{number}": number for number in range(3, size)}, unk_token="<unknown>")
    )
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # pyright: ignore[reportAttributeAccessIssue]
    return PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<end>", pad_token="<pad>", unk_token="<unknown>")


def words(count: int, size: int, seed: int) -> str:
    """Return a text of so many tokens of a vocabulary of this size, none of them special."""
    drawn = random.Random(seed)
    return " ".join(f"w{drawn.randrange(3, size)}" for _ in range(count))
