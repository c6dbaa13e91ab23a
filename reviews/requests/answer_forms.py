"""What a model may answer to each request, and how that becomes an answer with evidence that was looked up."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from reviews.requests.citations import CitationResolver, overlap
from reviews.reviewers.vendors.model_exchange import AnswerPart, read_part
from specs.system.errors import ReviewerUnavailable
from specs.system.vendors.conversation import AnswerForm
from specs.trail.requested_review import (
    MAX_WORDS,
    AdversarialAnswer,
    Answer,
    BestCase,
    Citation,
    ClaimStatus,
    Concern,
    DraftAnswer,
    Fix,
    Issue,
    IssueSeverity,
    Mode,
    Overclaim,
    QuestionAnswer,
    RequestReading,
    ReviewAnswer,
    ReviewRecommendation,
    ScoreRow,
    UnresolvedFinding,
)

STATEMENT_CHARACTERS = 4000
_PLACEHOLDER = re.compile(
    r"\W*(?:TODO|TBD|TBA|FIXME|XXX|placeholder|lorem ipsum|to be (?:done|determined|filled in|written)|"
    r"your (?:answer|text) here|fill (?:this )?in|n/?a|\.{3,}|…)\W*",
    re.IGNORECASE,
)
_OPENS_AS_PLACEHOLDER = re.compile(r"\s*[\[<({]+\s*(?:TODO|TBD|FIXME|placeholder)\b", re.IGNORECASE)
_SEVERITIES: dict[IssueSeverity, int] = {"CRITICAL": 0, "HIGH": 1, "SUGGESTION": 2}
_SCALE = range(1, 6)


class AnswerPlace(AnswerPart):
    """Lines of one of the files, and words quoted from them."""

    file: str
    first_line: int
    last_line: int
    quote: str


class QuestionPart(AnswerPart):
    """What a model returns to a question; ``approval`` comes last, so that it is written after the reasons."""

    reasoning: str
    risks: list[str]
    recommendation: str
    option: int | None
    approval: bool


class BestCasePart(AnswerPart):
    """The strongest argument for what is reviewed, which comes first so that the findings have to answer it."""

    argument: str
    evidence: list[AnswerPlace]


class ConcernPart(AnswerPart):
    """A doubt about the statistics."""

    statement: str
    evidence: list[AnswerPlace]


class IssuePart(AnswerPart):
    """One issue."""

    severity: IssueSeverity
    statement: str
    evidence: list[AnswerPlace]


class ReviewPart(AnswerPart):
    """What a model returns to a request for a full review."""

    best_case: BestCasePart
    issues: list[IssuePart]
    statistical_concerns: list[ConcernPart]
    recommendations: list[ReviewRecommendation]
    not_judged: list[str]
    summary: str
    overall_assessment: str


class RowPart(AnswerPart):
    """A claim and what the evidence says."""

    claim: str
    stated_at: AnswerPlace
    evidence: list[AnswerPlace]
    explanation: str
    status: ClaimStatus


class OverclaimPart(AnswerPart):
    """Words that say too much."""

    statement: str
    stated_at: AnswerPlace
    instead: str


class AdversarialPart(AnswerPart):
    """What a model returns about claims and evidence."""

    best_case: BestCasePart
    scorecard: list[RowPart]
    overclaimed: list[OverclaimPart]
    fixes: list[Fix]
    not_judged: list[str]
    overall_assessment: str


class DraftPart(AnswerPart):
    """What a model returns to a goal; ``spec`` comes last, so that it is written after the reasons."""

    reasoning: str
    assumptions: list[str]
    open_questions: list[str]
    spec: str


PARTS: dict[Mode, type[QuestionPart] | type[ReviewPart] | type[AdversarialPart] | type[DraftPart]] = {
    "question": QuestionPart,
    "review": ReviewPart,
    "adversarial": AdversarialPart,
    "draft": DraftPart,
}


def form_of(mode: Mode) -> AnswerForm:
    """Return the form of the answers to a kind of request."""
    return AnswerForm(mode, PARTS[mode].model_json_schema())


def read_question(text: str, options: Sequence[str], who: str) -> QuestionAnswer:
    """Read the answer to a question; raises ReviewerUnavailable if it is not whole, or longer than ``MAX_WORDS``."""
    part = _whole(read_part(text, QuestionPart, who), who)
    if not part.risks:
        raise ReviewerUnavailable("the answer neither names a risk nor says that there is none", where=who)
    if part.option is not None and not 1 <= part.option <= len(options):
        raise ReviewerUnavailable(f"the answer recommends option {part.option} of {len(options)}", where=who)
    words = sum(len(risk.split()) for risk in (part.recommendation, part.reasoning, *part.risks))
    if words > MAX_WORDS:
        raise ReviewerUnavailable(f"the answer has {words} words, at most {MAX_WORDS} are an answer", where=who)
    return QuestionAnswer(
        recommendation=part.recommendation,
        reasoning=part.reasoning,
        risks=tuple(part.risks),
        option=options[part.option - 1] if part.option is not None else None,
        approval=part.approval,
        words=words,
    )


def read_draft(text: str, problems: Callable[[str], str], who: str) -> DraftAnswer:
    """Read a draft; ``problems`` says what is wrong with its spec, and ReviewerUnavailable is raised if anything is."""
    part = read_part(text, DraftPart, who)
    _whole(part.model_copy(update={"spec": "as YAML"}), who)
    if wrong := problems(part.spec):
        what = "the spec that was drafted has problems"
        raise ReviewerUnavailable(what, where=who, cause="out_of_schema", detail=wrong)
    return DraftAnswer(
        spec=part.spec,
        reasoning=part.reasoning,
        assumptions=tuple(part.assumptions),
        open_questions=tuple(part.open_questions),
    )


def read_review(text: str, reading: RequestReading, who: str) -> ReviewAnswer:
    """Read a full review and look its evidence up.

    Raises ReviewerUnavailable if it is not whole and in the form, or its best case points at nothing that was read.
    """
    part = _whole(read_part(text, ReviewPart, who), who)
    look_up = _LookUp(reading)
    best_case = look_up.best_case(part.best_case, who)
    issues = [
        Issue(severity=issue.severity, statement=issue.statement, evidence=places)
        for issue in part.issues
        if (places := look_up.of("issue", issue.statement, issue.evidence))
    ]
    concerns = [
        Concern(statement=concern_part.statement, evidence=places)
        for concern_part in part.statistical_concerns
        if (places := look_up.of("statistical concern", concern_part.statement, concern_part.evidence))
    ]
    return ReviewAnswer(
        summary=part.summary,
        best_case=best_case,
        issues=tuple(sorted(issues, key=lambda issue: _SEVERITIES[issue.severity])),
        recommendations=tuple(part.recommendations),
        statistical_concerns=tuple(concerns),
        overall_assessment=part.overall_assessment,
        not_judged=tuple(part.not_judged),
        unresolved=tuple(look_up.unresolved),
        dropped_places=look_up.dropped,
    )


def read_adversarial(text: str, reading: RequestReading, who: str) -> AdversarialAnswer:
    """Read a scorecard, look its evidence up, and order the fixes by delta / effort.

    A claim must be where the answer points. A row without evidence next to the claim's own lines becomes unsupported.
    Raises ReviewerUnavailable if the answer is not whole, judges no claim, its best case points at nothing that was
    read, or a fix leaves the scale.
    """
    part = _whole(read_part(text, AdversarialPart, who), who)
    if not part.scorecard:
        raise ReviewerUnavailable("the answer judges no claim", where=who)
    wrong = next((fix for fix in part.fixes if fix.delta not in _SCALE or fix.effort not in _SCALE), None)
    if wrong is not None:
        message = f"a fix has delta {wrong.delta} and effort {wrong.effort}; both go from 1 to 5"
        raise ReviewerUnavailable(message, where=who)
    look_up = _LookUp(reading)
    best_case = look_up.best_case(part.best_case, who)
    rows = [row for row_part in part.scorecard if (row := look_up.row(row_part)) is not None]
    overclaimed = [
        Overclaim(statement=overclaim_part.statement, stated_at=places[0], instead=overclaim_part.instead)
        for overclaim_part in part.overclaimed
        if (places := look_up.of("overclaim", overclaim_part.statement, [overclaim_part.stated_at]))
    ]
    return AdversarialAnswer(
        best_case=best_case,
        scorecard=tuple(rows),
        overclaimed=tuple(overclaimed),
        fixes=in_order(part.fixes),
        overall_assessment=part.overall_assessment,
        not_judged=tuple(part.not_judged),
        unresolved=tuple(look_up.unresolved),
        dropped_places=look_up.dropped,
    )


def in_order(fixes: Iterable[Fix]) -> tuple[Fix, ...]:
    """Return fixes by priority (delta / effort), the greatest first; among equals the larger delta first."""
    return tuple(sorted(fixes, key=lambda fix: (-fix.priority, -fix.delta)))


class _LookUp:
    """Looks up the places of one answer and counts the unresolved places."""

    def __init__(self, reading: RequestReading) -> None:
        self.places = CitationResolver(reading)
        self.unresolved: list[UnresolvedFinding] = []
        self.dropped = 0

    def of(self, what: str, statement: str, pointed: Sequence[AnswerPlace]) -> tuple[Citation, ...]:
        """Return the places that resolve; a finding without one is noted as unresolved."""
        places = self._resolve_places(pointed)
        if places:
            self.dropped += len(pointed) - len(places)
        else:
            at = tuple(
                f"{answer_place.file}:{answer_place.first_line}-{answer_place.last_line}" for answer_place in pointed
            )
            self.unresolved.append(UnresolvedFinding(what=what, statement=statement, pointed_at=at))
        return places

    def best_case(self, part: BestCasePart, who: str) -> BestCase:
        """Return a best case; raises ReviewerUnavailable, so that it is asked for again, if no place of it resolves."""
        places = self._resolve_places(part.evidence)
        if not places:
            at = (
                ", ".join(
                    f"{answer_place.file}:{answer_place.first_line}-{answer_place.last_line}"
                    for answer_place in part.evidence
                )
                or "no place"
            )
            what = "the best case of the answer points at nothing that was read"
            raise ReviewerUnavailable(what, where=who, cause="out_of_schema", detail=at)
        self.dropped += len(part.evidence) - len(places)
        return BestCase(argument=part.argument, evidence=places)

    def row(self, part: RowPart) -> ScoreRow | None:
        """Return a row of the scorecard; None when the claim is not where the answer points."""
        stated = self.of("claim", part.claim, [part.stated_at])
        if not stated:
            return None
        places = self._resolve_places(part.evidence)
        own = tuple(place for place in places if not overlap(place, stated))
        self.dropped += len(part.evidence) - len(places)
        lowered = part.status != "unsupported" and not own
        return ScoreRow(
            claim=part.claim,
            stated_at=stated[0],
            status="unsupported" if lowered else part.status,
            evidence=own,
            explanation=part.explanation,
            lowered=lowered,
        )

    def _resolve_places(self, pointed: Sequence[AnswerPlace]) -> tuple[Citation, ...]:
        looked = (
            self.places.resolve(answer_place.file, answer_place.first_line, answer_place.last_line, answer_place.quote)
            for answer_place in pointed
        )
        return tuple(place for place in looked if place is not None)


_PartT = TypeVar("_PartT", bound=AnswerPart)


def _whole(part: _PartT, who: str) -> _PartT:
    """Return an answer; raises ReviewerUnavailable if a text is empty, a placeholder, or too long to be one."""
    for name, text in _texts(part, ""):
        if name.endswith((".quote", ".file")):
            continue
        if not re.search(r"\w", text):
            raise ReviewerUnavailable(f"the answer leaves {name} empty", where=who)
        if _PLACEHOLDER.fullmatch(text.strip()) or _OPENS_AS_PLACEHOLDER.match(text):
            raise ReviewerUnavailable(f"the answer leaves a placeholder in {name}", where=who)
        if len(text) > STATEMENT_CHARACTERS:
            message = f"the answer has {len(text)} characters in {name}, at most {STATEMENT_CHARACTERS} are read"
            raise ReviewerUnavailable(message, where=who)
    return part


def _texts(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from _texts(element, f"{name}[{index}]")
    elif isinstance(value, BaseModel):
        for field in type(value).model_fields:
            yield from _texts(getattr(value, field), f"{name}.{field}" if name else field)


def places_in(answer: Answer) -> Iterator[Citation]:
    """Yield every place an answer points at."""
    if isinstance(answer, ReviewAnswer | AdversarialAnswer) and answer.best_case is not None:
        yield from answer.best_case.evidence
    if isinstance(answer, ReviewAnswer):
        for issue in (*answer.issues, *answer.statistical_concerns):
            yield from issue.evidence
    elif isinstance(answer, AdversarialAnswer):
        for row in answer.scorecard:
            yield row.stated_at
            yield from row.evidence
        for overclaim in answer.overclaimed:
            yield overclaim.stated_at
