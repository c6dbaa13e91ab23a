"""Evidence of stages that measure, with rows written by hand; each test breaks one thing of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from reviews.evidence.evidence import Evidence
from specs.stages.base.artifacts import Item
from specs.stages.base.witness import LabelScores, arrangement, decide
from specs.stages.evaluation.kinds import MULTI_TURN, MULTIPLE_CHOICE, PAIRWISE_JUDGE, PERPLEXITY
from specs.stages.evaluation.parameters import PairwiseJudgeParameters
from specs.stages.evaluation.rows import (
    ChoiceRow,
    ChoiceScore,
    ConversationRow,
    ConversationTurn,
    DuelRow,
    EvaluationRow,
    PerplexityRow,
)
from specs.system.digests import digest_bytes, digest_path
from testing.factories.evidence_on_disk import evidence_of, tokens_in, witness_of, write_rows
from training.rules.rubric_prompts import prompts_of_comparison, rubric_for

TEXTS = ("bees make honey.", "the sea is salt and wide.", "tea.", "iron rusts in the rain of autumn.")
SURPRISE = (12.0, 20.0, 4.0, 26.0)
TOKENS = (4, 7, 2, 8)
CONVERSATIONS = (
    ("memory", "My cat is called Tom.", "What is my cat called?", {"require_2": "Tom"}),
    ("preference", "Answer in small letters.", "Say hello.", {"form_2": "lowercase"}),
    ("continuity", "Tell me about bees.", "What do they make?", {"require_2": "honey|wax"}),
    ("update", "Use at most nine words.", "Now use at most three.", {"most_words_2": 3}),
)
ANSWER_TEXTS = ("It is called Tom.", "hello there to you.", "They make honey.", "As you wish.")


def row(arguments: Any) -> dict[str, Any]:
    return arguments.model_dump(mode="json")


def evidence_with(folder: Path, stage: Any, items: tuple[Item, ...], rows: list[Any], **changes: Any) -> Evidence:
    """Turn the healthy evidence of a base evaluation into that of another kind on items of its own."""
    folder.mkdir(exist_ok=True)
    evidence = evidence_of(folder, "base")
    path = write_rows(folder / "measured" / "rows.jsonl", [row(current_row) for current_row in rows])
    parameters = stage.parameters.model_dump(mode="json")
    assert evidence.manifest is not None
    manifest = evidence.manifest.model_copy(
        update={"kind": stage.kind, "effective": parameters, "tokens": tokens_in(path)}
    )
    return replace(
        evidence,
        stage=stage,
        heldout=items,
        parameters=parameters,
        outputs={"rows": path},
        output_digests={"rows": digest_path(path)},
        manifest=manifest,
        witness=witness_of(path.parent, stage, {"rows": path}, manifest),
        **changes,
    )


def texts() -> tuple[Item, ...]:
    return tuple(
        Item(id=f"t{n}", group=f"g{n}", kind="text", prompt=text, constraint={}) for n, text in enumerate(TEXTS)
    )


def perplexity_rows(extra: float = 0.0) -> list[PerplexityRow]:
    """Return rows of the texts; ``extra`` nats per byte are added to all."""
    return [
        PerplexityRow(
            item=item.id,
            prompt_digest=digest_bytes(item.prompt.encode()),
            nats=SURPRISE[n] + extra * len(item.prompt.encode()),
            tokens=TOKENS[n],
            bytes=len(item.prompt.encode()),
            windows=1,
        )
        for n, item in enumerate(texts())
    ]


def perplexity_evidence(folder: Path, rows: list[PerplexityRow] | None = None) -> Evidence:
    stage = PERPLEXITY.stage(name="read", kind="perplexity", inputs={"model": "model", "items": "heldout"})
    return evidence_with(folder, stage, texts(), rows or perplexity_rows())


def questions() -> tuple[Item, ...]:
    return tuple(
        Item(
            id=f"q{n}",
            group=f"g{n}",
            kind="fact",
            prompt=f"Which is {n}?",
            constraint={"choice_1": "a", "choice_2": "a long one", "answer": 1 + n % 2},
        )
        for n in range(4)
    )


def choice_rows(nats: list[tuple[float, float]]) -> list[ChoiceRow]:
    return [
        ChoiceRow(
            item=item.id,
            prompt_digest=digest_bytes(item.prompt.encode()),
            prompt_tokens=5,
            choices=(ChoiceScore(nats=nat, tokens=1, bytes=1), ChoiceScore(nats=other, tokens=4, bytes=10)),
        )
        for item, (nat, other) in zip(questions(), nats, strict=True)
    ]


def choose_evidence(folder: Path, rows: list[ChoiceRow]) -> Evidence:
    stage = MULTIPLE_CHOICE.stage(
        name="multiple_choice", kind="multiple_choice", inputs={"model": "model", "items": "heldout"}
    )
    return evidence_with(folder, stage, questions(), rows)


def conversations(times: int = 1) -> tuple[Item, ...]:
    return tuple(
        Item(
            id=f"{kind}{n}",
            group=f"{kind}{n}",
            kind=kind,
            prompt=first,
            constraint={"turn_2": second, **counts},  # pyright: ignore[reportArgumentType]
        )
        for n in range(times)
        for kind, first, second, counts in CONVERSATIONS
    )


def conversation_rows(texts: tuple[str, ...] = ANSWER_TEXTS, times: int = 1) -> list[ConversationRow]:
    return [
        ConversationRow(
            item=item.id,
            turns=tuple(
                ConversationTurn(
                    user=user,
                    output=output,
                    prompt_tokens=9,
                    prompt_digest=digest_bytes(user.encode()),
                    output_tokens=4,
                    truncated=False,
                )
                for user, output in ((item.prompt, "Yes."), (str(item.constraint["turn_2"]), texts[n % len(texts)]))
            ),
        )
        for n, item in enumerate(conversations(times))
    ]


def converse_evidence(folder: Path, rows: list[ConversationRow] | None = None, times: int = 8) -> Evidence:
    stage = MULTI_TURN.stage(name="talk", kind="multi_turn", inputs={"model": "model", "items": "heldout"})
    return evidence_with(folder, stage, conversations(times), rows or conversation_rows(times=times))


def healthy_converse(folder: Path, times: int = 8) -> Evidence:
    """Return the evidence of a whole stage: as many conversations as are registered, and no two answers alike."""
    texts = tuple(
        text.format(n)
        for n in range(times)
        for text in ("It is called Tom, say {} people.", "hello to all {} of you.", "They make honey {}.", "Yes, {}.")
    )
    evidence = converse_evidence(folder, conversation_rows(texts, times), times)
    spec = evidence.resolved.spec
    analysis = spec.analysis.model_copy(update={"n": len(texts)})
    resolved = evidence.resolved.model_copy(update={"spec": spec.model_copy(update={"analysis": analysis})})
    return replace(evidence, resolved=resolved, registered=resolved.registration())


def duel(item: Item, reference: str, candidate: str, parameters: PairwiseJudgeParameters, better: str) -> DuelRow:
    """Return a judgement that follows from log-probabilities made up for it: reference, candidate, first or last."""
    rubric = rubric_for("comparison", parameters.rubric)
    prompts = prompts_of_comparison(rubric, item.prompt, reference, candidate)
    first = {"reference": (True, False), "candidate": (False, True), "first": (True, True), "last": (False, False)}
    scores = [
        LabelScores(
            a=-0.25 if a_wins else -1.5,
            a_spaced=None,
            b=-1.5 if a_wins else -0.25,
            b_spaced=None,
            prompt=digest_bytes(text.encode()),
            prompt_tokens=9,
        )
        for text, a_wins in zip(prompts, first[better], strict=True)
    ]
    plain = arrangement(scores[0], "A", parameters.margin)
    swapped = arrangement(scores[1], "B", parameters.margin)
    verdict = decide(plain, swapped, parameters.agreement, parameters.margin)
    return DuelRow(
        item=item.id,
        reference=reference,
        candidate=candidate,
        rubric=rubric.content_digest(),
        plain=plain,
        swapped=swapped,
        preferred=None if verdict is None else "reference" if verdict else "candidate",
    )


def compare_evidence(
    folder: Path,
    better: list[str],
    labels: list[str],
    judged: list[str],
    lengths: tuple[int, int] | list[tuple[int, int]] = (5, 5),
) -> Evidence:
    """Return a comparison of as many items as ``better`` has, calibrated on pairs labelled and judged as told.

    ``lengths`` are those of the reference's and the candidate's answer, of every item or item by item.
    """
    parameters = PairwiseJudgeParameters()
    items = tuple(
        Item(id=f"d{n}", group=f"g{n}", kind="line", prompt=f"Say {n}.", constraint={}) for n in range(len(better))
    )
    length_pairs = lengths if isinstance(lengths, list) else [lengths] * len(better)
    sides = [(f"one {n} " + "x" * value, f"two {n} " + "y" * two) for n, (value, two) in enumerate(length_pairs)]
    rows = [duel(item, *side, parameters, text) for item, side, text in zip(items, sides, better, strict=True)]
    labelled = tuple(
        Item(
            id=f"l{n}",
            group=f"lg{n}",
            kind="line",
            prompt=f"Tell {n}.",
            constraint={
                "reference": f"old {n}" + "x" * (n % 3),
                "candidate": f"new {n}" + "y" * (n % 2),
                "label": label,
            },
        )
        for n, label in enumerate(labels)
    )
    calibrated = [
        duel(item, str(item.constraint["reference"]), str(item.constraint["candidate"]), parameters, text)
        for item, text in zip(labelled, judged, strict=True)
    ]
    stage = PAIRWISE_JUDGE.stage(
        name="duel",
        kind="pairwise_judge",
        inputs={
            "model": "control",
            "items": "heldout",
            "reference": "base.rows",
            "candidate": "tuned.rows",
            "labelled": "data.labels",
        },
    )
    evidence = evidence_with(folder, stage, items, rows)
    answers = [
        [
            EvaluationRow(item=item.id, prompt_tokens=3, output=side[place], output_tokens=3, truncated=False)
            for item, side in zip(items, sides, strict=True)
        ]
        for place in (0, 1)
    ]
    calibration = write_rows(folder / "measured" / "calibration.jsonl", [row(duel_row) for duel_row in calibrated])
    outputs = evidence.outputs | {"calibration": calibration}
    assert evidence.manifest is not None
    return replace(
        evidence,
        witness=witness_of(calibration.parent, stage, outputs, evidence.manifest),
        data=evidence.data | {"labels": labelled},
        inputs=evidence.inputs
        | {
            "reference": write_rows(folder / "reference.jsonl", [row(evaluation_row) for evaluation_row in answers[0]]),
            "candidate": write_rows(folder / "candidate.jsonl", [row(evaluation_row) for evaluation_row in answers[1]]),
        },
        outputs=outputs,
    )
