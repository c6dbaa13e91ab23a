"""One critic: a model, a rubric and a margin. Each question is asked in both orders of the labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specs.stages.base.rubric import Rubric
from specs.stages.base.sampling import Form
from specs.stages.base.witness import Arrangement, decide
from specs.stages.critique.parameters import CriticParameters, ShownResponse
from specs.stages.critique.rows import (
    CalibrationRow,
    ComparisonRow,
    CritiqueRow,
    JudgeCalibrationRow,
    contradiction,
)
from training.engines.label_scoring import labels_of, score_both
from training.jobs.witness.label_scores import LabelJudge, judgement
from training.jobs.witness.scoring import Scoring
from training.rules.critique.subjects import ResponsePair, Subject
from training.rules.rubric_prompts import (
    JudgementPrompts,
    judged_text_of,
    prompts_of_comparison,
    prompts_of_instruction,
    prompts_of_response,
)


class Critic:
    """Judges in batches. Equal subjects, parameters and threads give equal rows."""

    def __init__(self, model: Any, tokenizer: Any, rubric: Rubric, parameters: CriticParameters, form: Form) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._rubric, self._parameters = rubric, parameters
        self._form: Form = form
        self.rubric = rubric.content_digest()

    def critiques(self, subjects: Sequence[Subject]) -> list[CritiqueRow]:
        """Return one row for each instruction or response, in their order."""
        parameters = self._parameters
        pairs = [_build_prompts(self._rubric, parameters, subject) for subject in subjects]
        texts, prompts = [text for text, _ in pairs], [both for _, both in pairs]
        return [
            CritiqueRow(
                **subject._asdict(),
                shown_response=text,
                rubric=self.rubric,
                plain=plain,
                swapped=swapped,
                accepted=decide(plain, swapped, parameters.agreement, parameters.margin) is True,
            )
            for subject, text, (plain, swapped) in zip(subjects, texts, self._ask(prompts), strict=True)
        ]

    def judge_labelled_sample(self, sample: Sequence[tuple[Subject, Any]]) -> list[CalibrationRow]:
        """Return the rows of a labelled sample, each with its label."""
        rows = self.critiques([subject for subject, _ in sample])
        return [CalibrationRow(**dict(row), label=label) for row, (_, label) in zip(rows, sample, strict=True)]

    def comparisons(self, pairs: Sequence[ResponsePair]) -> list[ComparisonRow]:
        """Return one row for each pair, in their order."""
        shown_response = _showing(self._parameters)
        requested_pairs = [_comparison_prompts(self._rubric, shown_response, pair) for pair in pairs]
        displayed_pairs, prompts = [texts for texts, _ in requested_pairs], [both for _, both in requested_pairs]
        names: dict[bool | None, Any] = {True: "first", False: "second", None: None}
        return [
            ComparisonRow(
                **pair._asdict(),
                shown_first=texts[0],
                shown_second=texts[1],
                rubric=self.rubric,
                plain=plain,
                swapped=swapped,
                preferred=names[decide(plain, swapped, shown_response.agreement, shown_response.margin)],
            )
            for pair, texts, (plain, swapped) in zip(
                pairs, displayed_pairs, self._ask(prompts, alike=True), strict=True
            )
        ]

    def calibrated_pairs(self, sample: Sequence[tuple[ResponsePair, Any]]) -> list[JudgeCalibrationRow]:
        """Return the rows of a labelled sample of pairs, each with its label."""
        rows = self.comparisons([pair for pair, _ in sample])
        return [JudgeCalibrationRow(**dict(row), label=label) for row, (_, label) in zip(rows, sample, strict=True)]

    def facts(self) -> dict[str, Any]:
        """Return the digest of the rubric, the form of the prompts and the ids of the labels."""
        return {"rubric": self.rubric, "form": self._form, "label_tokens": list(labels_of(self._tokenizer))}

    def _ask(
        self, prompts: Sequence[JudgementPrompts], *, alike: bool = False
    ) -> list[tuple[Arrangement, Arrangement]]:
        size, margin = self._parameters.batch_size, self._parameters.margin
        model, tokenizer = self._model, self._tokenizer
        return score_both(model, tokenizer, prompts, form=self._form, batch_size=size, alike=alike, margin=margin)


def subjects_scored(
    judge: LabelJudge,
    rubric: Rubric,
    parameters: CriticParameters,
    rows: Sequence[tuple[int, CritiqueRow]],
    pairs: Sequence[tuple[Subject, dict[str, Any]]],
) -> list[Scoring]:
    """Return what a critic scored for rows, by their places among the subjects that were due, with their labels."""
    scorings: list[Scoring] = []
    for place, row in rows:
        if place >= len(pairs):
            scorings.append(Scoring(place, {}, ("item",), judge.weights))
            continue
        subject, label = pairs[place]
        text, prompts = _build_prompts(rubric, parameters, subject)
        fields = subject._asdict() | label | {"shown_response": text, "rubric": rubric.content_digest()}
        follows = contradiction(row, parameters.agreement, parameters.margin) is None
        scorings.append(judgement(judge, place, row, prompts, fields, follows=follows))
    return scorings


def pairs_scored(
    judge: LabelJudge,
    rubric: Rubric,
    parameters: ShownResponse,
    rows: Sequence[tuple[int, ComparisonRow]],
    pairs: Sequence[tuple[ResponsePair, dict[str, Any]]],
) -> list[Scoring]:
    """Return what a judge of pairs scored for rows, as :func:`subjects_scored`."""
    scorings: list[Scoring] = []
    for place, row in rows:
        if place >= len(pairs):
            scorings.append(Scoring(place, {}, ("item",), judge.weights))
            continue
        pair, label = pairs[place]
        (first, second), prompts = _comparison_prompts(rubric, parameters, pair)
        fields = pair._asdict() | label | {"shown_first": first, "shown_second": second}
        fields |= {"rubric": rubric.content_digest()}
        follows = contradiction(row, parameters.agreement, parameters.margin) is None
        scorings.append(judgement(judge, place, row, prompts, fields, follows=follows))
    return scorings


def _build_prompts(
    rubric: Rubric, parameters: CriticParameters, subject: Subject
) -> tuple[str | None, JudgementPrompts]:
    """Return what a critic is shown of a subject's response, and its prompts."""
    if subject.response is None:
        return None, prompts_of_instruction(rubric, subject.instruction)
    text = judged_text_of(subject.response, _showing(parameters))
    return text, prompts_of_response(rubric, subject.instruction, text)


def _comparison_prompts(
    rubric: Rubric, shown_response: ShownResponse, pair: ResponsePair
) -> tuple[tuple[str, str], JudgementPrompts]:
    """Return what a judge is shown of two responses, and its prompts."""
    displayed_pair = judged_text_of(pair.first, shown_response), judged_text_of(pair.second, shown_response)
    return displayed_pair, prompts_of_comparison(rubric, pair.instruction, *displayed_pair)


def _showing(parameters: CriticParameters) -> ShownResponse:
    assert isinstance(parameters, ShownResponse)
    return parameters
