"""One critic: a model, a rubric and a margin. Each question is asked in both orders of the labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specs.stages.answer_end import Form
from specs.stages.critique.parameters import CriticParameters, ShownResponse
from specs.stages.critique.rows import CalibrationRow, ComparisonRow, CritiqueRow, JudgeCalibrationRow
from specs.stages.label_scores import Arrangement, decide
from specs.stages.rubric import Rubric
from training.engines.label_scoring import labels_of, score_both
from training.rules.critique.subjects import Pair, Subject
from training.rules.rubric_prompts import (
    Prompts,
    prompts_of_comparison,
    prompts_of_instruction,
    prompts_of_response,
    shown_of,
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
        given = self._parameters
        shown = [None if one.response is None else shown_of(one.response, self._showing()) for one in subjects]
        prompts = [
            prompts_of_instruction(self._rubric, one.instruction)
            if text is None
            else prompts_of_response(self._rubric, one.instruction, text)
            for one, text in zip(subjects, shown, strict=True)
        ]
        return [
            CritiqueRow(
                **one._asdict(),
                shown=text,
                rubric=self.rubric,
                plain=plain,
                swapped=swapped,
                accepted=decide(plain, swapped, given.agreement, given.margin) is True,
            )
            for one, text, (plain, swapped) in zip(subjects, shown, self._ask(prompts), strict=True)
        ]

    def calibrated(self, sample: Sequence[tuple[Subject, Any]]) -> list[CalibrationRow]:
        """Return the rows of a labelled sample, each with its label."""
        rows = self.critiques([subject for subject, _ in sample])
        return [CalibrationRow(**dict(row), label=label) for row, (_, label) in zip(rows, sample, strict=True)]

    def comparisons(self, pairs: Sequence[Pair]) -> list[ComparisonRow]:
        """Return one row for each pair, in their order."""
        given = self._showing()
        shown = [(shown_of(one.first, given), shown_of(one.second, given)) for one in pairs]
        prompts = [
            prompts_of_comparison(self._rubric, one.instruction, *texts)
            for one, texts in zip(pairs, shown, strict=True)
        ]
        names: dict[bool | None, Any] = {True: "first", False: "second", None: None}
        return [
            ComparisonRow(
                **one._asdict(),
                shown_first=texts[0],
                shown_second=texts[1],
                rubric=self.rubric,
                plain=plain,
                swapped=swapped,
                preferred=names[decide(plain, swapped, given.agreement, given.margin)],
            )
            for one, texts, (plain, swapped) in zip(pairs, shown, self._ask(prompts, alike=True), strict=True)
        ]

    def calibrated_pairs(self, sample: Sequence[tuple[Pair, Any]]) -> list[JudgeCalibrationRow]:
        """Return the rows of a labelled sample of pairs, each with its label."""
        rows = self.comparisons([pair for pair, _ in sample])
        return [JudgeCalibrationRow(**dict(row), label=label) for row, (_, label) in zip(rows, sample, strict=True)]

    def facts(self) -> dict[str, Any]:
        """Return the digest of the rubric, the form of the prompts and the ids of the labels."""
        return {"rubric": self.rubric, "form": self._form, "label_tokens": list(labels_of(self._tokenizer))}

    def _showing(self) -> ShownResponse:
        assert isinstance(self._parameters, ShownResponse)
        return self._parameters

    def _ask(self, prompts: Sequence[Prompts], *, alike: bool = False) -> list[tuple[Arrangement, Arrangement]]:
        size, margin = self._parameters.batch_size, self._parameters.margin
        model, tokenizer = self._model, self._tokenizer
        return score_both(model, tokenizer, prompts, form=self._form, batch_size=size, alike=alike, margin=margin)
