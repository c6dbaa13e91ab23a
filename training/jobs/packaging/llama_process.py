"""Reads an export with llama.cpp: ``python -P -m training.jobs.packaging.llama_process FILE QUESTIONS FOLDER``.

QUESTIONS is ``{"texts": [...], "questions": [{"prompt": [...], "answer": [...]}]}``. FOLDER gets ``answers.json``
with the token ids of each text, and for each question a file ``NUMBER.npy`` with the logits at each place of its
answer.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from training.engines.llama_reading import LlamaFile


def main(arguments: list[str]) -> None:
    """Read the questions, write the answers."""
    import numpy

    file, questions, folder = map(Path, arguments)
    value = json.loads(questions.read_bytes())
    opened = LlamaFile(file)
    for number, element in enumerate(value["questions"]):
        numpy.save(folder / f"{number}.npy", opened.read(element["prompt"], element["answer"])[:-1])
    statements = {"reader": opened.description, "texts": [opened.encode(text) for text in value["texts"]]}
    (folder / "answers.json").write_text(json.dumps(statements), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
