"""Loads a checkpoint in a fresh process: ``python -P -m training.jobs.packaging.reload FOLDER QUESTIONS ANSWERS``.

QUESTIONS is ``{"prompts": [...], "texts": [...], "max_new_tokens": n}``. ANSWERS gets what the library found missing or
left over, the token ids of prompts, greedy answers and texts, and the tokens a second of each of three rounds.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from training.jobs.packaging.probe_answers import encode_probe_prompts, greedy

ROUNDS = 3


def main(arguments: list[str]) -> None:
    """Read the questions, write the answers. Nothing but safetensors is loaded, and no code of the folder."""
    folder, questions, answers = map(Path, arguments)
    value = json.loads(questions.read_bytes())
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    safe = {"local_files_only": True, "trust_remote_code": False}
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, **safe)
    library: Any = AutoModelForCausalLM
    model, result = library.from_pretrained(
        folder, **safe, use_safetensors=True, dtype=torch.float32, output_loading_info=True
    )
    model.eval()
    requests = encode_probe_prompts(tokenizer, value["prompts"], "chat" if tokenizer.chat_template else "completion")
    rates: list[float] = []
    ids: list[list[int]] = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        ids = greedy(model, tokenizer, requests, value["max_new_tokens"])
        rates.append(sum(map(len, ids)) / (time.perf_counter() - started))
    statements = {
        "missing": sorted(map(str, result["missing_keys"])),
        "unexpected": sorted(map(str, result["unexpected_keys"])),
        "prompts": [list(value.ids) for value in requests],
        "answers": ids,
        "texts": [tokenizer(text, add_special_tokens=False)["input_ids"] for text in value["texts"]],
        "rates": rates,
    }
    answers.write_text(json.dumps(statements), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
