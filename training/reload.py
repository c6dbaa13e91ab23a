"""Answer prompts from a packaged model in a fresh process: ``python -P -m training.reload PACKAGE QUESTIONS ANSWERS``.

QUESTIONS is ``{"prompts": [...], "max_new_tokens": n}``; ANSWERS gets one list of token ids per prompt.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from training.checkpoint import load
from training.decoding import decode, encode


def answer(folder: Path, prompts: list[str], max_new_tokens: int) -> list[list[int]]:
    """Return the greedy answers of a checkpoint, as token ids."""
    model, tokenizer = load(folder)
    encoded = [encode(tokenizer, [{"role": "user", "content": prompt}]) for prompt in prompts]
    outputs = decode(model, tokenizer, encoded, max_new_tokens=max_new_tokens, batch_size=len(prompts))
    return [list(output.ids) for (output,) in outputs]


def main() -> int:
    """Read the questions, write the answers."""
    package, questions, answers = map(Path, sys.argv[1:4])
    asked = json.loads(questions.read_bytes())
    answers.write_text(json.dumps(answer(package, asked["prompts"], asked["max_new_tokens"])), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
