"""Multiple choice asked and scored by lm-eval (EleutherAI's evaluation harness) with its class for our model.

The stage's items are the task's data, so nothing is fetched. The spec says how to ask them, or names a task of the
library, whose items hold the document that it reads. The library returns log-likelihoods; the measurer decides.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from specs.stages.base.artifacts import Item
from specs.stages.base.sampling import digest_ids
from specs.stages.evaluation.parameters import LmEvalTask
from specs.stages.evaluation.rows import ChoiceRow, ChoiceScore
from specs.system.extras import install_hint
from training.jobs.job import refuse
from training.rules.tasks.choices import DOCUMENT, answer_of, choices_of

NAME = "registered_items"
"""The task's name in lm-eval."""
_LOCAL: dict[str, Any] = {
    "task": NAME,
    "dataset_path": "json",
    "dataset_name": None,
    "test_split": "test",
    "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
}
_OWN: dict[str, Any] = {"output_type": "multiple_choice", "doc_to_choice": "choices", "doc_to_target": "answer"}
_ONE_SPLIT = {"training_split": None, "validation_split": None, "fewshot_split": None, "num_fewshot": 0}


def ask_lm_eval(
    model: Any, tokenizer: Any, items: Sequence[Item], task: LmEvalTask | str, batch_size: int, folder: Path
) -> tuple[list[ChoiceRow], dict[str, Any]]:
    """Return rows in the order of the items and what the library states; exit with code 4 if it is not installed.

    ``task`` says how to write questions, or names a task of the library, whose files are written to ``folder``. Raises
    ValueError if the library lacks the task or asked something else, or if it would cut a question.
    """
    require_lm_eval()
    library: Any = import_module("lm_eval")
    models: Any = import_module("lm_eval.models.huggingface")
    tasks: Any = import_module("lm_eval.tasks")
    if isinstance(task, str):
        documents, described = [_document(item) for item in items], of_the_library(task) | {"process_docs": None}
    else:
        documents, described = [_own(item) for item in items], _OWN | task.model_dump(mode="json")
    write_task(folder, documents, described)
    reader: Any = models.HFLM(pretrained=model, tokenizer=tokenizer, batch_size=batch_size)
    result: Any = library.simple_evaluate(
        model=reader,
        tasks=[NAME],
        # Only this folder: the library's own tasks come from the hub.
        task_manager=tasks.TaskManager(include_path=str(folder), include_defaults=False),
        num_fewshot=0,
        bootstrap_iters=0,
        log_samples=True,
    )
    samples = {int(value["doc_id"]): value for value in result["samples"][NAME]}
    if set(samples) != set(range(len(items))):
        raise ValueError(f"lm-eval answered {len(samples)} of {len(items)} questions")
    rows = [_row(reader, item, samples[place]) for place, item in enumerate(items)]
    stated = {name: value for name, value in result["results"][NAME].items() if isinstance(value, float)}
    return rows, {"version": version("lm_eval"), "states": stated}


def require_lm_eval() -> None:
    """Exit with code 4 if lm-eval is not installed."""
    if find_spec("lm_eval") is None:
        refuse(f"choose with lm_eval: lm-eval is not installed ({install_hint('lm-eval')})")


def of_the_library(name: str) -> dict[str, Any]:
    """Return the settings with which a task of the library reads a local file and nothing else.

    Raises ValueError if it is not a task of multiple choice that one file describes.
    """
    result: Any = _index().get(name)
    if result is None:
        raise ValueError(f"lm-eval {version('lm_eval')} has no task '{name}'")
    if result.kind.name != "TASK" or not result.yaml_path:
        raise ValueError(f"'{name}' of lm-eval is a {result.kind.name.lower()}, not one task that a file describes")
    kind = result.cfg.get("output_type", "generate_until")
    if kind != "multiple_choice":
        raise ValueError(f"'{name}' of lm-eval is of type {kind}; choose scores multiple_choice")
    return {"include": str(result.yaml_path), "process_results": None, **_ONE_SPLIT}


@cache
def _index() -> dict[str, Any]:
    """Return the library's tasks by name; it reads thousands of files for that."""
    manager: Any = import_module("lm_eval.tasks").TaskManager()
    return manager.task_index


def write_task(folder: Path, documents: Sequence[dict[str, Any]], described: dict[str, Any]) -> None:
    """Write a task and its data, and have the library keep its files in the folder too.

    JSON is YAML, so no text of the spec can change what the file says.
    """
    libraries: Any = import_module("datasets")
    libraries.config.HF_DATASETS_CACHE = folder / "cache"
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "items.jsonl"
    data.write_text("".join(f"{json.dumps(document)}\n" for document in documents), encoding="utf-8")
    whole = described | _LOCAL | {"dataset_kwargs": {"data_files": {"test": str(data)}}}
    (folder / f"{NAME}.yaml").write_text(json.dumps(whole), encoding="utf-8")


def _own(item: Item) -> dict[str, Any]:
    return {"prompt": item.prompt, "kind": item.kind, "choices": list(choices_of(item)), "answer": answer_of(item)}


def _document(item: Item) -> dict[str, Any]:
    arguments = item.constraint.get(DOCUMENT)
    try:
        document: Any = json.loads(arguments) if isinstance(arguments, str) else None
    except json.JSONDecodeError:
        document = None
    if not isinstance(document, dict):
        raise ValueError(
            f"'{item.id}' holds no document for a task of lm-eval in its constraint ({DOCUMENT}): "
            "python -m training.items.lm_eval_items writes such items"
        )
    return cast("dict[str, Any]", document)


def place_of(target: Any, choices: Sequence[str]) -> int | None:
    """Return the place of the choice that a task calls right, by number or text; None if it is not a choice."""
    if isinstance(target, int):
        return target
    named = str(target).strip()
    return choices.index(named) if named in choices else None


def _row(reader: Any, item: Item, sample: Any) -> ChoiceRow:
    choices = choices_of(item)
    pairs: list[tuple[str, str]] = [(before, after) for before, after in sample["arguments"]]
    texts = [after.strip() for _, after in pairs]
    if texts != list(choices) or place_of(sample["target"], choices) != answer_of(item):
        raise ValueError(f"lm-eval asked '{item.id}' with other choices, or with another right choice")
    if DOCUMENT in item.constraint and {before for before, _ in pairs} != {item.prompt}:
        raise ValueError(f"lm-eval asked '{item.id}' with another text: {pairs[0][0]!r}, the item has {item.prompt!r}")
    scores: list[ChoiceScore] = []
    prompts: list[list[int]] = []
    for (before, after), choice, ((nats, _),) in zip(pairs, choices, sample["resps"], strict=True):
        context, continuation = reader._encode_pair(before, after)
        if len(context) + len(continuation) > reader.max_length:
            tokens = len(context) + len(continuation)
            raise ValueError(f"'{item.id}' with a choice has {tokens} tokens, the model reads {reader.max_length}")
        # A log-likelihood of 0 can be rounded to the other side.
        scores.append(ChoiceScore(nats=max(0.0, -float(nats)), tokens=len(continuation), bytes=len(choice.encode())))
        prompts.append([*context, *continuation, len(context)])
    tokens = min(prompt[-1] for prompt in prompts)
    return ChoiceRow(item=item.id, prompt_digest=digest_ids(prompts), prompt_tokens=tokens, choices=tuple(scores))
