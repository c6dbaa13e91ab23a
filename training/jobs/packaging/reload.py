"""Answer prompts from a package: ``python -P -m training.jobs.packaging.reload PACKAGE QUESTIONS ANSWERS``.

QUESTIONS is ``{"prompts": [...], "form": "completion" or "chat", "max_new_tokens": n}``; ANSWERS gets one list of token
ids per prompt.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from specs.stages.answer_end import Form
from training.engines.batched import decode
from training.engines.checkpoint import load
from training.rules.prompt_encoding import dialogue_ids


def answer(folder: Path, prompts: list[str], form: Form, max_new_tokens: int) -> list[list[int]]:
    """Return the greedy answers of a checkpoint, as token ids.

    Raises:
        EncodingFault: the saved tokenizer does not encode a prompt as the text it is.
    """
    model, tokenizer = load(folder)
    encoded = [dialogue_ids(tokenizer, [{"role": "user", "content": prompt}], form).ids for prompt in prompts]
    outputs = decode(model, tokenizer, encoded, max_new_tokens=max_new_tokens, batch_size=len(prompts))
    return [list(output.ids) for (output,) in outputs]


def main() -> int:
    """Read the questions, write the answers."""
    package, questions, answers = map(Path, sys.argv[1:4])
    asked = json.loads(questions.read_bytes())
    found = answer(package, asked["prompts"], asked["form"], asked["max_new_tokens"])
    answers.write_text(json.dumps(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
