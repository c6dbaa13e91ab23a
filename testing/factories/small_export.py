"""An export of the small checkpoint of the factories, and rows of what llama.cpp made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testing.factories.evidence_on_disk import TEMPLATE, heldout_items

STAGE = (
    "        - {metric: identical_outputs, at_least: 1}\n",
    "        - {metric: identical_outputs, at_least: 1}\n"
    "  - name: gguf\n    kind: export\n    inputs: {model: train.checkpoint, items: heldout}\n"
    "    parameters: {probe_items: 2, verify: VERIFY, seed: 7}\n",
)
"""The change of the small spec that adds the stage."""


def with_export(verify: str) -> tuple[str, str]:
    """Return the change of the small spec that exports its model."""
    return STAGE[0], STAGE[1].replace("VERIFY", verify)


def exported(*, read: bool) -> list[dict[str, Any]]:
    """Return healthy rows, read by llama.cpp or not."""
    more = {"read": [1, 2, 3], "largest": 1e-5, "divergence": 1e-9} if read else {}
    return [{"item": item.id, "expected": [1, 2, 3]} | more for item in heldout_items()[:2]]


def texts(*, read: bool) -> list[dict[str, Any]]:
    """Return rows of two texts that become the same tokens."""
    return [{"text": text, "expected": [1], "read": [1]} for text in ("1", "2 3")] if read else []


def write_export(folder: Path) -> Path:
    """Write a GGUF file with one layer of ones for the small checkpoint, and return its folder."""
    import gguf
    import numpy

    folder.mkdir(parents=True, exist_ok=True)
    writer: Any = gguf.GGUFWriter(folder / "model.gguf", "llama")
    writer.add_context_length(8)
    writer.add_embedding_length(4)
    writer.add_block_count(1)
    writer.add_feed_forward_length(4)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(1e4)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(["<end>"])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(0)
    writer.add_chat_template(TEMPLATE)
    layer = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
    for name in ("token_embd", "output_norm", *(f"blk.0.{value}" for value in layer)):
        writer.add_tensor(f"{name}.weight", numpy.ones((1, 4), "f4"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder
