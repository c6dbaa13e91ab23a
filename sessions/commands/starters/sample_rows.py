"""The data that a new experiment begins with where a person has named none: objects with two asked keys, in JSON."""

from __future__ import annotations

import json
import random
from itertools import combinations
from typing import Any

_VALUES = {
    "name": "Ada", "age": "36", "city": "London", "price": "12", "color": "blue", "size": "small",
    "year": "1999", "title": "Home", "rank": "3", "owner": "Max", "shape": "round", "weight": "7",
}  # fmt: skip
_THINGS = ("a cat", "a house", "a book", "a river", "a shop", "a song")


def sample_rows() -> list[dict[str, Any]]:
    """Return 66 rows: ``prompt``, a right ``completion``, and the ``keys`` by which a verifier judges any answer."""
    pairs = list(combinations(sorted(_VALUES), 2))
    random.Random(7).shuffle(pairs)
    return [
        {
            "prompt": f'Describe {_THINGS[place % len(_THINGS)]} as a JSON object with the keys "{first}" '
            f'and "{other}". Write only the JSON object.',
            "completion": json.dumps({first: _VALUES[first], other: _VALUES[other]}),
            "keys": f"{first} {other}",
        }
        for place, (first, other) in enumerate(pairs)
    ]


def with_rejected(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows as pairs: the same values without the keys are rejected."""
    return [
        {
            "prompt": row["prompt"],
            "chosen": row["completion"],
            "rejected": f"{' and '.join(json.loads(row['completion']).values())}.",
            "keys": row["keys"],
        }
        for row in rows
    ]


VERIFIER = '''\
"""Judges an answer. `item.prompt` is the prompt, `item.constraint` holds the other columns of heldout.jsonl."""

import json


def verify(item, answer):
    """Return whether an answer is one JSON object with exactly the keys that were asked for."""
    # ValueError and TypeError mean no; any other error closes the gate.
    parsed = json.loads(answer)
    return isinstance(parsed, dict) and set(parsed) == set(item.constraint["keys"].split())
'''

TRL_FILE = """\
# As for `trl sft --config sft.yaml`. Model, rows and output are the stage's: `peergate spec check` names every key that
# is replaced.
model_name_or_path: HuggingFaceTB/SmolLM2-135M-Instruct
dataset_name: train.jsonl
output_dir: out
learning_rate: 1.0e-4
num_train_epochs: 2
per_device_train_batch_size: 4
logging_steps: 1
"""

CONSTITUTION = """\
schema_version: 1
title: Principles by which answers are revised
totals:
  principles: 2
  by_category: {helpfulness: 2}
principles:
  - id: follow-instruction
    category: helpfulness
    text: Do what the instruction asks, including every explicit requirement on the form of the answer.
  - id: nothing-else
    category: helpfulness
    text: Write the answer alone, without an introduction, an explanation or a remark after it.
"""

SCRIPT = '''\
"""Trains the model. Runs in a sandbox: no network, and it reads nothing but its inputs."""

import json
import os

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

INPUTS, OUT = os.environ["INPUTS"], os.environ["OUT"]
EPOCHS, RATE, BATCH = 2, 1e-4, 4

torch.manual_seed(int(os.environ["SEED"]))
tokenizer = AutoTokenizer.from_pretrained(f"{INPUTS}/start")
model = AutoModelForCausalLM.from_pretrained(f"{INPUTS}/start", dtype=torch.float32)
with open(f"{INPUTS}/train") as file:
    rows = [json.loads(line) for line in file]


def encoded(row):
    """Return the tokens of the turns and the answer, and labels that count the answer only."""
    asked = [*row.get("before", []), {"role": "user", "content": row["prompt"]}]
    said = [*asked, {"role": "assistant", "content": row["completion"]}]
    before = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_dict=False)
    whole = tokenizer.apply_chat_template(said, return_dict=False)
    return whole, [-100] * len(before) + whole[len(before):]


examples = [encoded(row) for row in rows]
optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
steps, done = EPOCHS * len(range(0, len(rows), BATCH)), 0
for _ in range(EPOCHS):
    order = torch.randperm(len(examples)).tolist()
    for start in range(0, len(order), BATCH):
        batch = [examples[place] for place in order[start : start + BATCH]]
        loss = 0
        for ids, labels in batch:
            loss = loss + model(torch.tensor([ids]), labels=torch.tensor([labels])).loss / len(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        done += 1
        print(f"progress {done}/{steps} loss={loss.item():.4f}")
model.save_pretrained(f"{OUT}/checkpoint")
'''
