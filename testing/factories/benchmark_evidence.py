"""Evidence of a stage that ran a task of inspect_ai, with its log; each test breaks one thing of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reviews.evidence.evidence import Evidence
from specs.stages.base.artifacts import Item
from specs.stages.base.kind import StageKind
from specs.stages.evaluation.kinds import INSPECT, LM_EVAL
from specs.system.digests import digest_bytes, digest_path
from testing.factories.evidence_on_disk import evidence_of, witness_of, write_rows
from training.rules.evaluation.benchmark_scores import SCORER
from training.rules.evaluation.inspect_log import NAME, write_log

ANSWERS = ("cold", "small", "short", "slow", "sad", "dark", "soft", "dry", "old", "poor", "weak", "low")
RIGHT = 9
"""So many answers are right; the others are not."""
ENVIRONMENT = digest_bytes(b"environment")
Raw = dict[str, Any]


def items() -> tuple[Item, ...]:
    return tuple(
        Item(id=f"o/{n}", group=f"og{n}", kind="opposite", prompt=f"Which word is {n}?", constraint={"answer": answer})
        for n, answer in enumerate(ANSWERS)
    )


def write_answer(place: int) -> str:
    return f"It is {ANSWERS[place]}" if place < RIGHT else f"I do not know {place}"


def rows() -> list[Raw]:
    """Return one row an item, each with a call for a draft and one for the answer."""
    return [
        {
            "item": item.id,
            "calls": [
                call([item.prompt], f"draft {place}"),
                call([item.prompt, f"draft {place}", "Now"], write_answer(place)),
            ],
            "output": write_answer(place),
            "target": [ANSWERS[place]],
            "scores": {"match": "C" if place < RIGHT else "I", "long": 0.5},
            "correct": place < RIGHT,
        }
        for place, item in enumerate(items())
    ]


def sampled_rows(epochs: int) -> list[Raw]:
    """Return a row an item and epoch: one call, of which each epoch has a draw of its own."""
    return [
        row | {"sample": epoch, "calls": [row["calls"][1] | {"draw": epoch}]}
        for row in rows()
        for epoch in range(epochs)
    ]


def call(turns: list[str], output: str) -> Raw:
    roles = ("user", "assistant", "user")
    return {
        "messages": [{"role": role, "content": text} for role, text in zip(roles, turns, strict=False)],
        "prompt_tokens": 9,
        "prompt_digest": digest_bytes(turns[0].encode()),
        "max_new_tokens": 32,
        "output": output,
        "output_tokens": 4,
        "truncated": False,
        "finish": "eos",
        "answer_ids": [1, 2, 3, 4],
    }


def samples(of: list[Raw]) -> list[Raw]:
    """Return what the library's log says of rows."""
    raws: list[Raw] = []
    for number, row in enumerate(of):
        answers: list[Any] = [
            {"choices": [{"message": {"role": "assistant", "content": call["output"]}}], "response_id": f"{number}-{n}"}
            for n, call in enumerate(row["calls"])
        ]
        # Long texts are kept once, next to the sample.
        answers[0]["choices"][0]["message"]["content"] = "attachment://draft"
        raws.append(
            {
                "id": row["item"],
                "epoch": row.get("sample", 0) + 1,
                "input": row["calls"][0]["messages"][0]["content"],
                "target": row["target"][0],
                "messages": [],
                "output": {"choices": [{"message": {"role": "assistant", "content": row["output"]}}]},
                "scores": {name: {"value": value} for name, value in row["scores"].items()},
                "events": [{"event": "model", "output": answer} for answer in answers],
                "attachments": {"draft": row["calls"][0]["output"]},
            }
        )
    return raws


def header(**changes: Any) -> Raw:
    scores = [{"name": "match", "scorer": "match", "params": {}}, {"name": "long", "scorer": "long", "params": {}}]
    evaluated = {"task": "opposites", "task_args_passed": {"data": "/inputs/items.jsonl", "level": 2}}
    return {"version": 2, "status": "success", "eval": evaluated, "plan": {}, "results": {"scores": scores}} | changes


def benchmark_evidence(
    folder: Path,
    of: list[Raw] | None = None,
    logged: list[Raw] | None = None,
    kind: StageKind = INSPECT,
    changes: Mapping[str, Any] = MappingProxyType({}),
    **head: Any,
) -> Evidence:
    """Return the evidence of a healthy stage, or with other rows, parameters or samples and header of its log."""
    folder.mkdir(exist_ok=True)
    evidence = evidence_of(folder, "base")
    raw: Raw = {"task": "opposites", "score": "match", "max_new_tokens": 32, "seed": 7}
    raw |= ({"args": {"data": "{items}", "level": 2}} if kind is INSPECT else {}) | dict(changes)
    inputs = {"model": "model", "items": "heldout"}
    stage = kind.stage(name="base", kind=kind.name, inputs=inputs, script="task.py", parameters=raw)
    parameters = stage.parameters.model_dump(mode="json")
    path = write_rows(folder / "measured" / "rows.jsonl", rows() if of is None else of)
    log = folder / "measured" / "log"
    log.mkdir()
    write_log(log / NAME, header(**head), samples(rows()) if logged is None else logged)
    facts = {
        "library": {"name": "inspect_ai", "version": "1.0", "environment": ENVIRONMENT, "sandbox": "bubblewrap 0.8.0"}
    }
    outputs = {"rows": path, "log": log}
    assert evidence.manifest is not None
    manifest = evidence.manifest.model_copy(
        update={
            "outputs": {name: digest_path(output) for name, output in outputs.items()},
            "kind": kind.name,
            "effective": parameters,
            "tokens": sum(call["output_tokens"] for row in (of or rows()) for call in row["calls"]),
            "facts": evidence.manifest.facts | facts,
        }
    )
    return replace(
        evidence,
        stage=stage,
        heldout=items(),
        parameters=parameters,
        outputs=outputs,
        output_digests={name: digest_path(output) for name, output in outputs.items()},
        manifest=manifest,
        witness=witness_of(path.parent, stage, outputs, manifest),
    )


def lm_eval_evidence(folder: Path, right: tuple[int, ...] = tuple(range(RIGHT))) -> Evidence:
    """Return the evidence of a task of lm-eval whose filter takes the last word, with these places called right."""
    raws = rows()
    for place, row in enumerate(raws):
        row["scores"], row["correct"] = {"match": float(place in right)}, place in right
        row["calls"] = [row["calls"][1] | {"messages": row["calls"][0]["messages"]}]
    step = [{"function": "regex", "regex_pattern": r"(\w+)$"}, {"function": "take_first"}]
    scores = [{"name": "match", "scorer": SCORER, "params": {"filters": step, "ignore_case": True}}]
    head = {"eval": {"task": "opposites", "task_args_passed": {}}, "results": {"scores": scores}}
    return benchmark_evidence(folder, raws, samples(raws), LM_EVAL, **head)


def changed(place: int, **fields: Any) -> list[Raw]:
    """Return the rows with one of them changed."""
    raws = rows()
    raws[place] = raws[place] | fields
    return raws


def _other_environment(folder: Path) -> Evidence:
    evidence = benchmark_evidence(folder)
    assert evidence.manifest is not None
    facts = {"library": {"name": "inspect_ai", "environment": digest_bytes(b"another")}}
    return replace(evidence, baseline_manifest=evidence.manifest.model_copy(update={"facts": facts}))


def _no_sandbox(folder: Path) -> Evidence:
    evidence = benchmark_evidence(folder)
    assert evidence.manifest is not None
    facts = {"library": {"name": "inspect_ai", "environment": ENVIRONMENT, "sandbox": "none"}}
    return replace(evidence, manifest=evidence.manifest.model_copy(update={"facts": facts}))


def _edited_both(folder: Path) -> Evidence:
    """A score that was edited in the log and in the row: only carrying the scorer out again shows it."""
    edited = changed(RIGHT, scores={"match": "C", "long": 0.5}, correct=True)
    return benchmark_evidence(folder, edited, samples(edited))


def _own_scorer(folder: Path) -> Evidence:
    scores = [{"name": "match", "scorer": "their_own", "params": {}}]
    return benchmark_evidence(folder, results={"scores": scores})


def _includes(folder: Path) -> Evidence:
    scores = [{"name": "match", "scorer": "includes", "params": {}}]
    return benchmark_evidence(folder, results={"scores": scores})


def _not_the_models(folder: Path) -> Evidence:
    """A solver wrote the text that was scored."""
    raws = changed(RIGHT, output=f"It is {ANSWERS[RIGHT]}", scores={"match": "C", "long": 0.5}, correct=True)
    return benchmark_evidence(folder, raws, samples(raws))


def _elsewhere(folder: Path) -> Evidence:
    raws = rows()
    raws[0]["calls"] = [call(["Something else?"], "draft 0"), call(["Something", "draft 0", "Now"], write_answer(0))]
    return benchmark_evidence(folder, raws, samples(raws))


def _other_target(folder: Path) -> Evidence:
    raws = changed(0, target=["warm"], scores={"match": "I", "long": 0.5}, correct=False)
    return benchmark_evidence(folder, raws, samples(raws))


def _longer(folder: Path) -> Evidence:
    raws = rows()
    raws[3]["calls"][1]["max_new_tokens"] = 33
    return benchmark_evidence(folder, raws, samples(raws))


FLAWS: dict[str, tuple[Callable[[Path], Evidence], str, str]] = {
    "a score edited in the rows": (
        lambda folder: benchmark_evidence(folder, changed(RIGHT, scores={"match": "C", "long": 0.5}, correct=True)),
        "benchmark.log",
        "FAIL",
    ),
    "a row called right against its score": (lambda folder: benchmark_evidence(folder, changed(RIGHT, correct=True)),
     "benchmark.log", "FAIL"),
    "an answer edited in the rows": (lambda folder: benchmark_evidence(folder, changed(2, output="It is short, short")),
     "benchmark.log", "FAIL"),
    "a sample dropped from the log": (lambda folder: benchmark_evidence(folder, logged=samples(rows())[1:]),
     "benchmark.log", "FAIL"),
    "an item dropped from both": (lambda folder: benchmark_evidence(folder, rows()[1:], samples(rows()[1:])),
     "benchmark.log", "BLOCKED"),
    "samples of other ids": (
        lambda folder: benchmark_evidence(folder, logged=[raw | {"id": f"x{raw['id']}"} for raw in samples(rows())]),
        "benchmark.log",
        "FAIL",
    ),
    "a task that ended with an error": (lambda folder: benchmark_evidence(folder, status="error"), "benchmark.log",
     "FAIL"),
    "a scorer that looks for the target anywhere": (_includes, "benchmark.scorer", "WARN"),
    "a scorer that cannot be carried out": (_own_scorer, "benchmark.scorer", "WARN"),
    "the log of another task": (
        lambda folder: benchmark_evidence(
            folder, eval={"task": "easy", "task_args_passed": {"data": "/inputs/items.jsonl", "level": 2}}
        ),
        "benchmark.task",
        "FAIL",
    ),
    "another argument": (
        lambda folder: benchmark_evidence(
            folder, eval={"task": "opposites", "task_args_passed": {"data": "/inputs/items.jsonl", "level": 1}}
        ),
        "benchmark.task",
        "FAIL",
    ),
    "more tokens than granted": (_longer, "benchmark.task", "FAIL"),
    "arms in different environments": (_other_environment, "benchmark.task", "FAIL"),
    "a task without a sandbox": (_no_sandbox, "benchmark.sandbox", "FAIL"),
    "a score edited in log and rows": (_edited_both, "benchmark.scores", "FAIL"),
    "a scorer of their own": (_own_scorer, "benchmark.scores", "WARN"),
    "a scored text that the model did not write": (_not_the_models, "benchmark.scores", "WARN"),
    "an item that was not asked": (_elsewhere, "benchmark.items", "WARN"),
    "a target of another item": (_other_target, "benchmark.items", "WARN"),
}  # fmt: skip
