"""A task of lm-eval that has the model write, as a job: its samples become a log of the form that inspect_ai reads.

The library is in Peergate's own environment (the extra ``lm-eval``). Its data are the stage's items, its files those
that were registered: nothing is fetched.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sessions.jobs.benchmarks import environment
from sessions.jobs.benchmarks.lm_eval_interpreter import FILES, SAMPLES
from sessions.jobs.benchmarks.served_task import Harness, require_script, serve
from specs.benchmarks import lm_eval_file
from specs.stages.base.artifacts import Item
from specs.stages.evaluation.parameters import LmEvalParameters
from specs.system.confinement import bubblewrap
from specs.system.errors import BlockedError
from specs.system.regular_files import read_regular
from training.jobs.job import Job, StageResult, refuse
from training.rules.evaluation.benchmark_scores import scorer_of
from training.rules.evaluation.inspect_log import write_log

_DRIVER = Path(__file__).with_name("lm_eval_interpreter.py")
_ITEMS = "/inputs/items.jsonl"
_DATA: dict[str, Any] = {
    "dataset_path": "json",
    "dataset_name": None,
    "dataset_kwargs": {"data_files": {"test": _ITEMS}},
    "custom_dataset": None,
    "test_split": "test",
    "training_split": None,
    "validation_split": None,
    "fewshot_split": None,
}
"""In the place of what the task's file says of its data."""
_NO_FILTER = "none"
_MODEL = "peergate/model"


def lm_eval(job: Job[LmEvalParameters]) -> StageResult:
    """Write ``rows`` and ``log``; ends the process as :func:`serve`."""
    parameters, script = job.parameters, require_script(job)
    if script is None:
        refuse(f"{job.order.key}: the task has no file")
    try:
        library = environment.own("lm-eval")
        files = lm_eval_file.files_of(read_regular(script).decode("utf-8"))
    except (BlockedError, ValueError) as error:
        refuse(f"{job.order.key}: {error}")
    settings = lm_eval_file.settings_of(files)
    entry = {"include": f"{FILES}/{files.main}", "task": parameters.task, **_DATA, **_shots(settings)}

    def keep_log(path: Path, log: Path, items: Sequence[Item]) -> None:
        _keep_log(path, log, items, parameters, settings)

    return serve(
        job,
        Harness(
            name="lm-eval",
            library=library,
            host=bubblewrap.this_host(),
            driver=_DRIVER,
            write_items=write_documents,
            # JSON is YAML.
            settings={
                "task": parameters.task,
                "score": parameters.score,
                "files": files.texts,
                "entry": json.dumps(entry),
            },
            script=None,
            keep_log=keep_log,
        ),
    )


def _shots(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {} if settings.get("num_fewshot") else {"num_fewshot": 0}


def write_documents(items: Sequence[Item], path: Path) -> None:
    """Write items as the documents of a task."""
    documents = [lm_eval_file.document_of(item.model_dump()) for item in items]
    path.write_text(
        "".join(f"{json.dumps(document, ensure_ascii=False)}\n" for document in documents), encoding="utf-8"
    )


def _keep_log(
    path: Path, log: Path, items: Sequence[Item], eval_parameters: LmEvalParameters, settings: Mapping[str, Any]
) -> None:
    """Write the log of what the library said; raises ValueError where it is not of the form that it has."""
    try:
        result = json.loads(read_regular(path / SAMPLES).decode("utf-8"))
        samples = list(_samples(result, {item.id: item for item in items}, eval_parameters.score))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"the task left no samples that can be read: {type(error).__name__}: {error}") from error
    if not samples:
        raise ValueError("the task has no samples")
    metric, _, name = eval_parameters.score.partition(",")
    scorer, options = scorer_of(settings, metric, name or _NO_FILTER)
    write_log(log, _header(eval_parameters, samples, scorer, options), samples)
    shutil.rmtree(path)


def _samples(result: Any, items: Mapping[str, Item], score: str) -> Iterator[dict[str, Any]]:
    """Yield a sample for each document, with the scores of all filters."""
    by_place: dict[Any, list[dict[str, Any]]] = {}
    for value in result:
        by_place.setdefault(value["place"], []).append(value)
    for same in by_place.values():
        first, id = same[0], str(same[0]["id"])
        if id not in items:
            raise ValueError(f"a document has the id {id!r:.60}, which no item has")
        scores = {
            f"{metric},{element['filter']}" if element["filter"] != _NO_FILTER else str(metric): {"value": value}
            for element in same
            for metric, value in element["scores"].items()
        }
        if score not in scores:
            raise ValueError(f"'{id}' has no score '{score}'; it has {'; '.join(scores) or 'none'}")
        requests = {"role": "user", "content": str(first["prompt"])}
        model = {
            "event": "model",
            "model": _MODEL,
            "input": [requests],
            "tools": [],
            "tool_choice": "none",
            "config": {},
        }
        events = [
            model | {"output": _format_output(str(text)) | {"response_id": str(answer)}}
            for answer, text in zip(first["ids"], first["answers"], strict=True)
        ]
        yield {
            "id": id,
            "epoch": 1,
            "input": requests["content"],
            "target": [str(value) for value in first["target"]],
            "messages": [requests],
            "output": _format_output(str(first["answers"][0])),
            "scores": scores,
            "metadata": {"group": items[id].group, "kind": items[id].kind},
            "store": {},
            "events": events,
            "attachments": {},
        }


def _format_output(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, "source": "generate"}
    return {"model": _MODEL, "choices": [{"message": message, "stop_reason": "stop"}], "completion": text}


def _header(
    eval_parameters: LmEvalParameters, samples: Sequence[Mapping[str, Any]], scorer: str, options: dict[str, Any]
) -> dict[str, Any]:
    right = sum(sample["scores"][eval_parameters.score]["value"] in (1, True) for sample in samples)
    accuracy = {"name": "accuracy", "value": right / len(samples), "params": {}}
    scores = [{"name": eval_parameters.score, "scorer": scorer, "params": options, "metrics": {"accuracy": accuracy}}]
    config = {"max_tokens": eval_parameters.max_new_tokens}
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": eval_parameters.task,
            "run_id": eval_parameters.task,
            "created": "1980-01-01T00:00:00+00:00",
            "task": eval_parameters.task,
            "task_id": eval_parameters.task,
            "task_version": 0,
            "task_args": {},
            "task_args_passed": {},
            "dataset": {
                "name": "items",
                "samples": len(samples),
                "sample_ids": [sample["id"] for sample in samples],
                "shuffled": False,
            },
            "model": _MODEL,
            "model_generate_config": config,
            "config": {"epochs": 1},
            "packages": {},
        },
        "plan": {"name": "plan", "steps": [{"solver": "generate", "params": {}}], "config": config},
        "results": {"total_samples": len(samples), "completed_samples": len(samples), "scores": scores},
        "stats": {"started_at": "", "completed_at": "", "model_usage": {}},
    }
