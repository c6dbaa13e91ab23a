"""Multiple choice asked and scored by lm-eval (EleutherAI's evaluation harness) with its own class for our model.

The stage's items are the task's data, so that they are registered and compared like those of every other stage, and
nothing is fetched. What comes back are log-likelihoods; what is right is measured from them afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from specs.evidence import Item
from specs.kinds_evaluation import LmEvalTask
from specs.rows_evaluation import ChoiceRow, ChoiceScore
from training.entry import refuse
from training.tasks.multiple_choice import answer_of, choices_of

NAME = "registered_items"
"""The task's name in lm-eval."""


class Asked(NamedTuple):
    """Rows in the order of the items, and what the library says of its run."""

    rows: list[ChoiceRow]
    facts: dict[str, Any]


def ask_lm_eval(
    model: Any, tokenizer: Any, items: Sequence[Item], task: LmEvalTask, batch_size: int, folder: Path
) -> Asked:
    """Run the task on a loaded model; leave with exit code 4 where lm-eval is not installed.

    Args:
        model: a causal language model of transformers, in evaluation mode.
        tokenizer: its tokenizer.
        items: the questions.
        task: how they are written.
        batch_size: choices read together.
        folder: where the task and its data are written for the library.

    Raises:
        ValueError: an item is no question with choices, a question with a choice is longer than the model's context
            (the library would cut it), or the library asked something else than the items.
    """
    if find_spec("lm_eval") is None:
        refuse("choose with lm_eval: lm-eval is not installed (pip install 'peergate[lm-eval]')")
    from lm_eval import simple_evaluate  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
    from lm_eval.models.huggingface import HFLM  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
    from lm_eval.tasks import TaskManager  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

    libraries: Any = import_module("datasets")
    libraries.config.HF_DATASETS_CACHE = folder / "cache"
    _write(folder, items, task)
    reader: Any = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=batch_size)
    found: Any = simple_evaluate(
        model=reader,
        tasks=[NAME],
        # Only this folder: the library's own tasks come from the hub.
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        num_fewshot=0,
        bootstrap_iters=0,
        log_samples=True,
    )
    samples = {int(one["doc_id"]): one for one in found["samples"][NAME]}
    if set(samples) != set(range(len(items))):
        raise ValueError(f"lm-eval answered {len(samples)} of {len(items)} questions")
    rows = [_row(reader, item, samples[place]) for place, item in enumerate(items)]
    stated = {name: value for name, value in found["results"][NAME].items() if isinstance(value, float)}
    return Asked(rows, {"version": version("lm_eval"), "states": stated})


def _write(folder: Path, items: Sequence[Item], task: LmEvalTask) -> None:
    """Write the task and its data. JSON is YAML, so that no text of the spec can change what the file says."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "items.jsonl"
    documents = [
        {"prompt": item.prompt, "kind": item.kind, "choices": list(choices_of(item)), "answer": answer_of(item)}
        for item in items
    ]
    data.write_text("".join(f"{json.dumps(one)}\n" for one in documents), encoding="utf-8")
    described = {
        "task": NAME,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_choice": "choices",
        "doc_to_target": "answer",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
        **task.model_dump(mode="json"),
    }
    (folder / f"{NAME}.yaml").write_text(json.dumps(described), encoding="utf-8")


def _row(reader: Any, item: Item, sample: Any) -> ChoiceRow:
    choices = choices_of(item)
    asked: list[tuple[str, str]] = [(before, after) for before, after in sample["arguments"]]
    if [after.strip() for _, after in asked] != [one.strip() for one in choices] or sample["target"] != answer_of(item):
        raise ValueError(f"lm-eval asked '{item.id}' with other choices, or holds another one for right")
    scores: list[ChoiceScore] = []
    prompt_tokens: list[int] = []
    for (before, after), choice, ((nats, _),) in zip(asked, choices, sample["resps"], strict=True):
        context, continuation = reader._encode_pair(before, after)
        if len(context) + len(continuation) > reader.max_length:
            tokens = len(context) + len(continuation)
            raise ValueError(f"'{item.id}' with a choice has {tokens} tokens, the model reads {reader.max_length}")
        # A log-likelihood of 0 can be rounded to the other side.
        scores.append(ChoiceScore(nats=max(0.0, -float(nats)), tokens=len(continuation), bytes=len(choice.encode())))
        prompt_tokens.append(len(context))
    return ChoiceRow(item=item.id, prompt_tokens=min(prompt_tokens), choices=tuple(scores))
