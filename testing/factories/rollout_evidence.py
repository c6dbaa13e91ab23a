"""The evidence of stages that train on rollouts: steps in which answers get right."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from reviews.evidence.evidence import Evidence, WitnessEvidence
from specs.jobs.job_records import Challenge, Segment
from specs.stages.base.artifacts import Item
from specs.stages.base.stage import Kind
from specs.stages.base.witness import TILTS
from specs.stages.finetuning.online_parameters import SelfDistillation
from specs.stages.registry import STAGE_KINDS
from specs.system.digests import digest_bytes, digest_path
from testing.factories.evidence_on_disk import evidence_of, replayed, sketch, trained_facts, with_manifest, write_rows
from training.rules.finetuning.rewards import advantages, hints, rewards_of, sum_weighted_rewards
from training.rules.seeded_order import draw_share
from training.rules.tasks import judge_answers

PROMPTS, EPOCHS, GENERATIONS, AT_ONCE, MOST = 32, 2, 4, 2, 40
RIGHT, WRONG = "a small tale of seven quiet words here.", "A Tale In Capitals Was Told Here."
REWARDS = {"verified": 1.0, "ended": 0.5}
COUNTED: dict[str, Any] = {
    "rewards": REWARDS,
    "generations": GENERATIONS,
    "batch_size": 8,
    "seed": 7,
    "epochs": EPOCHS,
    "warmup_steps": 2,
    "learning_rate": 1e-5,
    "max_new_tokens": MOST,
    "validation_share": 0.25,
    "updates": 1,
}
Rights = Callable[[float], int]
"""How many of a group's answers are right, at a share of the training between 0 and 1."""


def improving(at: float) -> int:
    """Return one right answer of four in the beginning, and three in the end."""
    return 1 if at < 0.3 else 2 if at < 0.7 else 3


def prompts() -> list[dict[str, Any]]:
    """Return prompts of as many groups."""
    return [
        {
            "id": f"p{n}",
            "group": f"roll-{n}",
            "kind": "lowercase",
            "prompt": f"Say something about drawer {n}. Use only lowercase letters.",
            "constraint": {},
        }
        for n in range(PROMPTS)
    ]


def divided() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the prompts to train on, and those to keep out."""
    texts = draw_share((prompt["group"] for prompt in prompts()), 0.25, 7)
    return [prompt for prompt in prompts() if prompt["group"] not in texts], [
        prompt for prompt in prompts() if prompt["group"] in texts
    ]


def rollouts(
    rights: Rights = improving, tokens: Rights = lambda _: 9, weights: dict[str, float] | None = None
) -> list[dict[str, Any]]:
    """Return the answers of all steps, worth what they are."""
    training, _ = divided()
    steps = len(training) // AT_ONCE * EPOCHS
    reward_weights = weights or REWARDS
    results: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        at = (step - 1) / (steps - 1)
        for place in range(AT_ONCE):
            item = training[((step - 1) * AT_ONCE + place) % len(training)]
            passed = [n < rights(at) for n in range(GENERATIONS)]
            ids = [5] * tokens(at)
            valued = [
                rewards_of(list(reward_weights), verified=value, finish="eos", tokens=len(ids), most=MOST)
                for value in passed
            ]
            rewards = [sum_weighted_rewards(value, reward_weights) for value in valued]
            worth = advantages(rewards, scale=True)
            results += [
                {
                    "item": item["id"],
                    "group": item["group"],
                    "kind": item["kind"],
                    "sample": n,
                    "step": step,
                    "text": RIGHT if passed[n] else WRONG,
                    "finish": "eos",
                    "answer_ids": ids,
                    "end_id": 2,
                    "verified": passed[n],
                    "rewards": valued[n],
                    "reward": rewards[n],
                    "advantage": worth[n],
                }
                for n in range(GENERATIONS)
            ]
    return results


def course(*channels: str, **changes: Any) -> list[dict[str, Any]]:
    """Return the steps."""
    training, _ = divided()
    count = len(training) // AT_ONCE * EPOCHS
    did = {"loss": 0.1, "rows": 8, "tokens": 72, "grad_norm": 0.4}
    return [
        {
            "step": n,
            "epoch": n / count * EPOCHS,
            "loss": 0.1,
            "learning_rate": 1e-5 * min((n - 1) / 2, (count + 1 - n) / (count - 2)),
            "grad_norm": 0.5,
            "tokens": 72,
            "batches": [f"batch {n}"],
            "sketch": sketch(n),
            "kl": 0.01 * n,
            "entropy": 3.0 - 0.05 * n,
            "clipped": 0.0,
            "channels": dict.fromkeys(channels or ("grpo",), did),
        }
        | changes
        for n in range(1, count + 1)
    ]


def validation_rows(before: int = 0, after: int = 4) -> list[dict[str, Any]]:
    """Return the answers to prompts that were kept out, so many of them right."""
    return [
        {
            "item": value["id"],
            "group": value["group"],
            "before": RIGHT if n < before else WRONG,
            "before_ids": [5] * 9,
            "before_finish": "eos",
            "after": RIGHT if n < after else WRONG,
            "after_ids": [5] * 9,
            "after_finish": "eos",
        }
        for n, value in enumerate(divided()[1])
    ]


def pairs() -> list[dict[str, Any]]:
    """Return preferences of other groups."""
    return [
        {
            "prompt": f"Which tool reads file {n} of the folder?",
            "chosen": f"read {n}.txt",
            "rejected": f"delete {n}.txt",
            "group": f"trace-{n}",
            "source": "given",
        }
        for n in range(6)
    ]


def sampled(row: int, **changes: Any) -> dict[str, Any]:
    """Return what a witness reads of an answer that was sampled as granted."""
    token = {"before": 0.0, "own": 1.0, "tilted": [0.0] * len(TILTS)}
    return {
        "row": row,
        "tokens": 1,
        "text": True,
        "ending": True,
        "gap": None,
        "beyond": -0.1,
        "drawn": [token],
    } | changes


def rollout_evidence(
    folder: Path,
    kind: Kind = "grpo",
    *,
    answers: list[dict[str, Any]] | None = None,
    steps: list[dict[str, Any]] | None = None,
    after: list[dict[str, Any]] | None = None,
    **changes: Any,
) -> Evidence:
    """Return the healthy evidence of a stage that trained on rollouts; ``changes`` go to its parameters."""
    three = {"channels": {"grpo": 1.0, "sdpo": 0.0, "dpo": 0.5}} if kind == "composer" else {}
    form = STAGE_KINDS[kind].parameters
    parameters: Any = form.model_validate(COUNTED | three | changes)
    channels = ("sdpo",) if kind == "sdpo" else ("grpo", "dpo") if three else ("grpo",)
    rows = course(*channels) if steps is None else steps
    base = evidence_of(folder, "train", rows)
    inputs = {"model": base.inputs["model"], "prompts": write_rows(folder / "rollout_prompts.jsonl", prompts())}
    named = {"model": "model", "prompts": "data.prompts"}
    if three:
        inputs["pairs"], named["pairs"] = write_rows(folder / "pairs.jsonl", pairs()), "data.pairs"
    stage = STAGE_KINDS[kind].stage(name="train", kind=kind, inputs=named, parameters=parameters)
    arguments = rollouts(weights={**parameters.rewards}) if answers is None else answers
    if kind == "sdpo":
        _hinted(arguments, parameters.distillation)
    outputs = base.outputs | {
        "rollouts": write_rows(folder / "train" / "rollouts.jsonl", arguments),
        "kept": write_rows(folder / "train" / "kept.jsonl", validation_rows() if after is None else after),
    }
    digests = {name: digest_path(path) for name, path in outputs.items()}
    evidence = replace(
        base,
        stage=stage,
        parameters=parameters.model_dump(mode="json"),
        inputs=inputs,
        outputs=outputs,
        output_digests=digests,
    )
    read_back = parameters.model_dump(mode="json") | {"steps": len(rows), "planned_steps": len(rows)}
    evidence = with_manifest(
        evidence,
        outputs=digests,
        effective=read_back | {"precision": "float32", "trained_share": 1.0},
        facts={"pairs": len(pairs()) if three else 0, "pairs_cut": 0},
    )
    return _witnessed(folder, evidence, rows, arguments)


def _hinted(answers: list[dict[str, Any]], self_distillation: SelfDistillation) -> None:
    """Give each answer what its teacher reads, and the first token for its span."""
    items = {prompt["id"]: Item.model_validate(prompt) for prompt in prompts()}
    for at in range(0, len(answers), GENERATIONS):
        group = answers[at : at + GENERATIONS]
        judgements = list(
            judge_answers("format_instructions", [(items[value["item"]], value["text"]) for value in group])
        )
        for value, hint in zip(
            group, hints([value["text"] for value in group], judgements, self_distillation), strict=True
        ):
            value |= {"hint": hint.text} if hint else {}
            if hint and hint.span:
                value |= {"span": hint.span, "span_tokens": (0, 1)}


def _witnessed(
    folder: Path, evidence: Evidence, rows: list[dict[str, Any]], arguments: list[dict[str, Any]]
) -> Evidence:
    """Return the evidence with a witness that trained the first steps again and read their answers."""
    again = tuple(range(min(3, len(rows))))
    read = [sampled(place) for place, value in enumerate(arguments) if value["step"] - 1 in again]
    parts = [
        {"row": place, "part": part, "tokens": 9, "text": True, "ending": True, "gap": 0.0}
        for part in ("before", "after")
        for place in range(len(divided()[1]))
    ]
    lines = [*replayed([rows[place] for place in again]), *read, *parts]
    challenge = Challenge(
        ended=digest_bytes(b"end"), of=len(rows), rows=again, segments=(Segment(after=0, until=len(again)),)
    )
    assert evidence.manifest is not None
    manifest = evidence.manifest.model_copy(update={"facts": trained_facts(rows)})
    path = write_rows(folder / "witness" / "witness.jsonl", lines)
    return replace(evidence, witness=WitnessEvidence(challenge, path, manifest, ""))


def witness_reads(evidence: Evidence, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Evidence:
    """Return the evidence with other readings of answers; None leaves one out."""
    assert evidence.witness is not None and evidence.witness.rows is not None
    lines = [json.loads(line) for line in evidence.witness.rows.read_text(encoding="utf-8").splitlines()]
    changed = [change(line) if "ending" in line else line for line in lines]
    write_rows(evidence.witness.rows, [value for value in changed if value is not None])
    return evidence
