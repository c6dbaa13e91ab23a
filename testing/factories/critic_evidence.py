"""Whole and healthy evidence of the stages with critics, and of revisions; each test breaks one thing of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reviews.evidence.evidence import Evidence
from specs.loading.loading import load_constitution
from specs.session.constitution import Constitution
from specs.stages.base.artifacts import Example, Item
from specs.stages.base.witness import Arrangement, LabelScores, arrangement
from specs.stages.critique.kinds import BEST_OF_N as BEST_OF_N_KIND
from specs.stages.critique.kinds import CRITIQUE_INSTRUCTIONS, CRITIQUE_RESPONSES
from specs.stages.critique.kinds import REVISE as REVISE_KIND
from specs.stages.critique.parameters import BestOfNParameters, PairJudge, ReviseParameters
from specs.stages.critique.rows import CandidateRow, RevisionRound, RevisionRow
from specs.stages.registry import Stage
from specs.system.digests import digest_bytes
from testing.factories.bound_evidence import bound
from testing.factories.evidence_on_disk import evidence_of, write_rows
from testing.fixtures.critic_jobs import CONSTITUTION, TOPICS, instructions
from training.jobs.critique.critic import Critic
from training.rules.critique.preference_pairs import (
    all_pairs,
    all_revisions,
    collect_revised_examples,
    pairs_to_compare,
    revisions_to_compare,
)
from training.rules.critique.revision_chains import (
    PromptWriter,
    chain_name,
    faults_of,
    outcome,
    plan,
)
from training.rules.critique.subjects import ResponsePair, labelled_pairs, of_examples, of_items, read_labelled_subjects
from training.rules.rubric_prompts import JudgementPrompts, rubric_for

KINDS = ("critique_instructions", "critique_responses", "revise", "best_of_n")
N = 6
LABELLED = 32
Signed = Callable[[int], tuple[float, float]]
"""From a row's place to log p(good) - log p(bad), in both orders of the labels."""
BEST_OF_N = BestOfNParameters(samples=3, hard_negatives=("verbosity", "unwarranted_refusal"), validation_share=0.3)
REVISE = ReviseParameters(revisions=2)


class Scripted(Critic):
    """A critic whose log-probabilities are given."""

    def __init__(self, judges: Any, parameters: Any, signed: Signed) -> None:
        super().__init__(None, None, rubric_for(judges, None), parameters, "completion")
        self.signed = signed
        self.margin = parameters.margin

    def _ask(
        self, prompts: Sequence[JudgementPrompts], *, alike: bool = False
    ) -> list[tuple[Arrangement, Arrangement]]:
        pairs: list[tuple[Arrangement, Arrangement]] = []
        for place, judgement_prompts in enumerate(prompts):
            plain, swapped = self.signed(place)
            pairs.append(
                (
                    arrangement(scores(judgement_prompts.plain, plain), "A", self.margin),
                    arrangement(scores(judgement_prompts.swapped, -swapped), "B", self.margin),
                )
            )
        return pairs


def scores(prompt: str, difference: float) -> LabelScores:
    """Return log-probabilities with this difference of A and B."""
    a, b = (-0.5, -0.5 - difference) if difference > 0 else (-0.5 + difference, -0.5)
    return LabelScores(
        a=round(a - 3, 6),
        a_spaced=round(a, 6),
        b=round(b, 6),
        b_spaced=None,
        prompt=digest_bytes(prompt.encode()),
        prompt_tokens=len(prompt) // 4,
    )


def alternating(place: int) -> tuple[float, float]:
    """Good, bad, good, ... with a margin of 2 and 1.5 nats."""
    return (2.0, 1.5) if place % 2 == 0 else (-2.0, -1.5)


def revision_first(_: int) -> tuple[float, float]:
    """What stands first is the better one, in both orders."""
    return 2.0, 1.5


def ranked(place: int) -> tuple[float, float]:
    """Of three responses the first wins for one instruction, the last for the next: comparisons 1-2, 1-3, 2-3."""
    return (2.0, 1.5) if place // 3 % 2 == 0 or place % 3 == 0 else (-2.0, -1.5)


def constitution() -> tuple[Constitution, str]:
    return load_constitution(CONSTITUTION)


def labelled_sample(kind: str, count: int = LABELLED) -> list[Item]:
    """Return a labelled sample, good and bad (or first and second) in turn."""
    backlog_items: list[Item] = []
    for n in range(count):
        constraint: dict[str, str | int] = {"label": ("good", "bad")[n % 2]}
        if kind == "critique_responses":
            constraint |= {"response": f"Line {n} on {TOPICS[n % len(TOPICS)]}."}
        if kind in ("best_of_n", "revise"):
            constraint = {"first": f"One {n}.", "second": f"Two {n}.", "label": ("first", "second")[n % 2]}
        backlog_items.append(
            Item(id=f"c{n}", group=f"cg{n}", kind="line", prompt=f"Say {n} things.", constraint=constraint)
        )
    return backlog_items


def given_examples(count: int = N) -> list[Example]:
    return [
        Example(
            item=backlog_item.id,
            group=backlog_item.group,
            kind=backlog_item.kind,
            sample=0,
            prompt=backlog_item.prompt,
            completion=f"Some say that {TOPICS[n]} has {n + 3} sides and is found everywhere.",
        )
        for n, backlog_item in enumerate(instructions(count))
    ]


def candidates(texts: Callable[[int, int], str] | None = None) -> list[CandidateRow]:
    """Return three responses to each instruction."""

    def write_answer(n: int, place: int) -> str:
        return f"{TOPICS[n]} is the answer number {place} of {n + 4}."

    write = texts or write_answer
    return [
        CandidateRow(
            item=backlog_item.id,
            group=backlog_item.group,
            kind=backlog_item.kind,
            sample=place,
            instruction=backlog_item.prompt,
            prompt=f"Instruction: {backlog_item.prompt}\nResponse:",
            response=write(n, place),
            tokens=12,
            finish="stop",
        )
        for n, backlog_item in enumerate(instructions(N))
        for place in range(BEST_OF_N.samples)
    ]


def chains(
    revise_parameters: ReviseParameters = REVISE, change: Callable[[int, int], str] | None = None
) -> list[RevisionRow]:
    """Return chains of rounds that say it in other words; ``change`` writes a revision by chain and round."""
    rules, digest = constitution()
    examples = given_examples()
    plans = plan(rules, [chain_name(example.item, example.sample) for example in examples], revise_parameters)
    writer = PromptWriter.of(revise_parameters, "base")

    def write_answer(n: int, place: int) -> str:
        return f"{TOPICS[n]} has {n + 3} sides, and {'most' if place else 'all'} of it is found at home."

    write = change or write_answer
    revision_rows: list[RevisionRow] = []
    for n, (example, current_rounds) in enumerate(zip(examples, plans, strict=True)):
        text, rounds = example.completion, list[RevisionRound]()
        for place, rule in enumerate(current_rounds.principles):
            revision = write(n, place)
            prompt = writer.revision_prompt(example.prompt, text, rule, "It says too much.")
            faults = faults_of(revision, text, example.prompt, "stop", revise_parameters, prompt)
            rounds.append(
                RevisionRound(
                    principle=rule.id,
                    category=rule.category,
                    critique_prompt=writer.critique_prompt(example.prompt, text, rule),
                    critique="It says too much.",
                    critique_tokens=5,
                    critique_finish="stop",
                    revision_prompt=prompt,
                    revision=revision,
                    revision_tokens=9,
                    revision_finish="stop",
                    faults=faults,
                )
            )
            text = text if faults else revision
        final, usable = outcome(
            example.completion, [(revision_round.revision, revision_round.faults) for revision_round in rounds]
        )
        revision_rows.append(
            RevisionRow(
                item=example.item,
                group=example.group,
                kind=example.kind,
                sample=0,
                constitution=digest,
                instruction=example.prompt,
                original=example.completion,
                rounds=tuple(rounds),
                final=final,
                usable=usable,
            )
        )
    return revision_rows


def critic_evidence(
    folder: Path,
    kind: str,
    *,
    signed: Signed | None = None,
    labels: Signed = alternating,
    sample: list[Item] | None = None,
    stage: Stage | None = None,
    rows: list[Any] | None = None,
    examples: list[Example] | None = None,
    **changes: Any,
) -> Evidence:
    """Return the healthy evidence of a stage's first attempt.

    Args:
        folder: where its files are put.
        kind: of the stage.
        signed: what the critic says of the rows.
        labels: what it says of the labelled sample.
        sample: another labelled sample.
        stage: with other parameters.
        rows: the sampled responses, or the chains.
        examples: what a critic of responses judges.
        changes: other fields of the evidence.
    """
    whole = evidence_of(folder, "base")
    out = folder / kind
    by_kind: dict[str, Signed] = {"best_of_n": ranked, "revise": revision_first}
    signed = signed or by_kind.get(kind, alternating)
    sample = labelled_sample(kind) if sample is None else sample
    inputs = {"model": folder / "model"}
    outputs: dict[str, Path] = {}
    stage = stage or STAGES[kind]
    parameters: Any = stage.parameters

    def write(place: Path, contracts: Sequence[Any]) -> Path:
        return write_rows(place, [contract.model_dump(mode="json") for contract in contracts])

    if kind != "revise":
        inputs["calibration"] = write(folder / "calibration.jsonl", sample)
    if kind == "critique_instructions":
        items = instructions(N)
        inputs["items"] = write(folder / "instructions.jsonl", items)
        judged = Scripted("instruction", parameters, signed).critiques(of_items(items))
        calibration_rows = Scripted("instruction", parameters, labels).judge_labelled_sample(
            read_labelled_subjects(sample, responses=False)
        )
        remaining: list[Any] = [item for item, row in zip(items, judged, strict=True) if row.accepted]
        outputs = {
            "rows": write(out / "rows.jsonl", judged),
            "calibration": write(out / "calibration.jsonl", calibration_rows),
        }
        outputs["accepted"] = write(out / "accepted.jsonl", remaining)
    elif kind == "critique_responses":
        examples = given_examples() if examples is None else examples
        inputs["examples"] = write(folder / "given.jsonl", examples)
        judged = Scripted("response", parameters, signed).critiques(of_examples(examples))
        calibration_rows = Scripted("response", parameters, labels).judge_labelled_sample(
            read_labelled_subjects(sample, responses=True)
        )
        remaining = [example for example, row in zip(examples, judged, strict=True) if row.accepted]
        outputs = {
            "rows": write(out / "rows.jsonl", judged),
            "calibration": write(out / "calibration.jsonl", calibration_rows),
        }
        outputs["accepted"] = write(out / "accepted.jsonl", remaining)
    elif kind == "revise":
        inputs["constitution"] = folder / "principles.yaml"
        inputs["constitution"].write_bytes(CONSTITUTION.read_bytes())
        inputs["examples"] = write(folder / "given.jsonl", given_examples())
        made = chains(parameters) if rows is None else rows
        paths: dict[str, Path] = {}
        answers = None
        if parameters.judge is not None:
            critic = parameters.judge.as_critic()
            inputs |= {"judge": folder / "model"}
            inputs["calibration"] = write(folder / "calibration.jsonl", sample)
            answers = Scripted("comparison", critic, signed).comparisons(revisions_to_compare(made, parameters))
            calibration_rows = Scripted("comparison", critic, labels).calibrated_pairs(labelled_pairs(sample))
            paths = {
                "comparisons": write(out / "comparisons.jsonl", answers),
                "calibration": write(out / "calibration.jsonl", calibration_rows),
            }
        pairs = all_revisions(made, parameters, answers)
        outputs = paths | {
            "rows": write(out / "rows.jsonl", made),
            "preferences": write(out / "preferences.jsonl", pairs.pairs),
            "examples": write(out / "examples.jsonl", collect_revised_examples(made)),
        }
        if parameters.keeps_dropped:
            outputs["dropped"] = write(out / "dropped.jsonl", pairs.dropped)
    else:
        inputs["judge"] = folder / "model"
        inputs["prompts"] = write(folder / "asked.jsonl", instructions(N))
        responses = candidates() if rows is None else rows
        arm_pairs: list[ResponsePair] = pairs_to_compare(responses)
        compared = Scripted("comparison", parameters, signed).comparisons(arm_pairs)
        calibration_rows = Scripted("comparison", parameters, labels).calibrated_pairs(labelled_pairs(sample))
        outputs = {
            "rows": write(out / "rows.jsonl", responses),
            "comparisons": write(out / "comparisons.jsonl", compared),
            "calibration": write(out / "calibration.jsonl", calibration_rows),
            "preferences": write(out / "preferences.jsonl", all_pairs(compared, parameters).pairs),
        }
        if parameters.keeps_dropped:
            outputs["dropped"] = write(out / "dropped.jsonl", all_pairs(compared, parameters).dropped)
    items = [item.model_copy(update={"kind": "lowercase"}) for item in instructions(N)]
    changes = {"data": whole.data | {"asked": tuple(items)}} | changes
    return replace(bound(whole, stage, inputs, outputs), **changes)


STAGES: dict[str, Stage] = {
    "critique_instructions": CRITIQUE_INSTRUCTIONS.stage(
        name="filter",
        kind="critique_instructions",
        inputs={"model": "model", "items": "data.a", "calibration": "data.b"},
    ),
    "critique_responses": CRITIQUE_RESPONSES.stage(
        name="filter", kind="critique_responses", inputs={"model": "model", "examples": "a.b", "calibration": "data.b"}
    ),
    "revise": REVISE_KIND.stage(
        name="rewrite",
        kind="revise",
        inputs={"model": "model", "examples": "a.b", "constitution": "constitution"},
        parameters=REVISE,
    ),
    "best_of_n": BEST_OF_N_KIND.stage(
        name="rank",
        kind="best_of_n",
        inputs={"model": "model", "judge": "model", "prompts": "data.a", "calibration": "data.b"},
        parameters=BEST_OF_N,
    ),
}


JUDGED = STAGES["revise"].model_copy(
    update={
        "inputs": STAGES["revise"].inputs | {"judge": "model", "calibration": "data.b"},
        "parameters": REVISE.model_copy(update={"judge": PairJudge()}),
    }
)
"""A stage that revises and has a judge, who prefers every revision unless told otherwise."""


def edited(evidence: Evidence, output: str, place: int, change: Callable[[dict[str, Any]], None]) -> Evidence:
    """Change one row of an output in its file, as someone with an editor would."""
    path = evidence.outputs[output]
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    change(rows[place])
    write_rows(path, rows)
    return evidence
