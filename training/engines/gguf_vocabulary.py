"""Writes the tokenizer of a checkpoint into a GGUF file: vocabulary, merges, pre-tokenizer, special tokens, template.

llama.cpp splits text by a name, ``tokenizer.ggml.pre``, for which it has the code. A tokenizer whose way to split has
no known name is refused: under another name it would load, and read numbers as other tokens than in training.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from specs.system.regular_files import read_regular
from training.engines.gguf_weights import NoGguf
from training.rules.packaging.checkpoint_folder import GENERATION, CheckpointFolder
from training.rules.packaging.gguf_rules import split_name

_ROLES = ("bos", "eos", "unk", "pad")


def add_vocabulary(writer: Any, folder: Path, rows: int) -> None:
    """Add the tokenizer of a checkpoint with ``rows`` embeddings; raises NoGguf if llama.cpp would read otherwise."""
    import gguf
    from transformers import AutoTokenizer

    file = folder / "tokenizer.json"
    if not file.is_file():
        raise NoGguf(
            "the checkpoint has no tokenizer.json; a sentencepiece tokenizer cannot be converted for llama.cpp"
        )
    described: dict[str, Any] = json.loads(read_regular(file))
    model: dict[str, Any] = described["model"]
    if model.get("type") != "BPE" or model.get("byte_fallback"):
        raise NoGguf(f"its tokenizer is a {model.get('type')}, and only byte-level BPE can be converted for llama.cpp")
    try:
        pre = split_name(described)
    except ValueError as error:
        raise NoGguf(str(error)) from error
    ids = {str(token): int(id) for token, id in model["vocab"].items()}
    added: list[dict[str, Any]] = described.get("added_tokens") or []
    largest = max([*ids.values(), *(int(value["id"]) for value in added)])
    if largest >= rows:
        raise NoGguf(f"token {largest} is beyond the {rows} rows of the embeddings")
    # llama.cpp wants one token a row: rows that no token has, which pad the embeddings, get a name no one writes.
    tokens = [f"[PAD{place}]" for place in range(rows)]
    types: list[Any] = [gguf.TokenType.UNUSED] * rows
    for token, id in ids.items():
        tokens[id], types[id] = token, gguf.TokenType.NORMAL
    for value in added:
        kind = gguf.TokenType.CONTROL if value.get("special") else gguf.TokenType.USER_DEFINED
        tokens[value["id"]], types[value["id"]] = value["content"], kind
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    if not merges:
        raise NoGguf("its tokenizer has no merges, without which llama.cpp opens no byte-level BPE")
    writer.add_token_merges(merges)
    for role in _ROLES:
        id = getattr(tokenizer, f"{role}_token_id")
        if id is not None:
            getattr(writer, f"add_{role}_token_id")(id)
    first = list(tokenizer("a")["input_ids"])[:1]
    writer.add_add_bos_token(tokenizer.bos_token_id is not None and first == [tokenizer.bos_token_id])
    if isinstance(tokenizer.chat_template, str):
        writer.add_chat_template(tokenizer.chat_template)
    made = CheckpointFolder(folder)
    penalty = made.generation.get("repetition_penalty") if made.has(GENERATION) else None
    if isinstance(penalty, int | float) and penalty != 1:
        writer.add_sampling_penalty_repeat(penalty)
        # transformers penalises every token before, llama.cpp the last 64 unless told otherwise.
        writer.add_sampling_penalty_last_n(-1)
