"""What rules look at and return, and the places they point at."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from specs.trail.requested_review import (
    BestCase,
    Citation,
    Concern,
    Issue,
    IssueSeverity,
    ReadFile,
    RequestReading,
    ReviewRecommendation,
)

QUOTE_CHARACTERS = 200
MAX_PLACES = 5


@dataclass(frozen=True)
class RuleMaterial:
    """What rules may look at: what was read, and the paths of the files."""

    reading: RequestReading
    sources: Mapping[str, Path]
    """Every regular file by its name, those too large to be shown included."""
    readable: Callable[[Path], bool]
    mask: Callable[[str], str]
    """Takes secrets out of what is quoted from a file that was not shown."""

    def ending(self, *suffixes: str) -> list[ReadFile]:
        """Return the files with one of these suffixes."""
        return [file for file in self.reading.files if file.name.lower().endswith(suffixes)]


@dataclass
class RuleFindings:
    """What a rule found, looked at and could not judge."""

    issues: list[Issue] = field(default_factory=list[Issue])
    concerns: list[Concern] = field(default_factory=list[Concern])
    recommendations: list[ReviewRecommendation] = field(default_factory=list[ReviewRecommendation])
    not_judged: list[str] = field(default_factory=list[str])
    looked_at: list[str] = field(default_factory=list[str])
    passed: list[tuple[str, Citation]] = field(default_factory=list[tuple[str, Citation]])
    """What was found to hold, and where."""

    def issue(self, severity: IssueSeverity, statement: str, evidence: Sequence[Citation]) -> None:
        """Note an issue."""
        self.issues.append(Issue(severity=severity, statement=statement, evidence=tuple(evidence[:MAX_PLACES])))

    def concern(self, statement: str, evidence: Sequence[Citation]) -> None:
        """Note a doubt about the statistics."""
        self.concerns.append(Concern(statement=statement, evidence=tuple(evidence[:MAX_PLACES])))

    def recommend(self, text: str, rationale: str) -> None:
        """Recommend something, once."""
        made = ReviewRecommendation(text=text, rationale=rationale)
        if made not in self.recommendations:
            self.recommendations.append(made)

    def add(self, other: RuleFindings) -> None:
        """Take over what another rule found."""
        for name in ("issues", "concerns", "not_judged", "looked_at", "passed"):
            getattr(self, name).extend(getattr(other, name))
        for recommendation in other.recommendations:
            self.recommend(recommendation.text, recommendation.rationale)


def best_case(holding: Sequence[tuple[str, Citation]]) -> BestCase:
    """Return the facts that hold, with their places, as the case for what is reviewed: rules make no other."""
    if not holding:
        return BestCase(argument="Nothing that rules look up was found to hold.", evidence=())
    pairs = holding[:MAX_PLACES]
    more = f"; and {len(holding) - len(pairs)} more" if len(holding) > len(pairs) else ""
    argument = f"By rule this holds: {'; '.join(dict.fromkeys(fact for fact, _ in pairs))}{more}."
    return BestCase(argument=argument, evidence=tuple(at for _, at in pairs))


def place(file: ReadFile, line: int) -> Citation:
    """Return the place of a line; for an empty line, of the next nonempty line."""
    lines = file.lines
    line = min(max(line, 1), len(lines))
    number = next((at for at in range(line, len(lines) + 1) if lines[at - 1].strip()), line)
    return place_of(file.name, number, lines[number - 1])


def place_of(name: str, number: int, line: str) -> Citation:
    """Return the place of a line of a file, with a quote short enough to show."""
    return Citation(file=name, first_line=number, last_line=number, quote=line.strip()[:QUOTE_CHARACTERS].strip())


def line_of(file: ReadFile, pattern: str) -> int:
    """Return the first line that a pattern matches from its beginning; 1 when none does."""
    return next((number for number, line in enumerate(file.lines, 1) if re.match(pattern, line)), 1)
