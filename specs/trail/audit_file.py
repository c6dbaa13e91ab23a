"""The recommendations of an audit from outside, in a file that a person names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from specs.stages.explain import validate
from specs.system.digests import Contract
from specs.system.errors import UserError
from specs.system.regular_files import read_regular
from specs.system.yaml.problems import LintProblem
from specs.system.yaml.yaml_positions import read_document

MOST_BYTES = 1 << 20


class AuditRecommendation(Contract):
    """One thing that an audit asked for.

    It is adopted where the criterion is discharged, or where an amendment in force names its id in its reason. The file
    can reject it with a reason; it cannot say that it was adopted.
    """

    id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9._-]{0,39}$")]
    text: Annotated[str, StringConstraints(min_length=5, max_length=2000)]
    criterion: str | None = None
    """The acceptance criterion that it became."""
    rejected: Annotated[str, StringConstraints(min_length=10, max_length=2000)] | None = None
    """Why it is not followed."""


class AuditFile(Contract):
    """An audit's recommendations."""

    schema_version: Literal[1]
    audit: Annotated[str, StringConstraints(min_length=3, max_length=200)]
    """Whose, and of when."""
    recommendations: Annotated[tuple[AuditRecommendation, ...], Field(min_length=1, max_length=1000)]


def read_audit(path: Path) -> AuditFile:
    """Read a file of recommendations; raises SpecError with all its problems, or UserError if it cannot be read."""
    try:
        raw = read_regular(path, MOST_BYTES)
    except OSError as error:
        raise UserError(f"the audit cannot be read: {error.strerror}", where=str(path)) from error
    document = read_document(path, raw)
    result = validate(document.data, AuditFile)
    if isinstance(result, list):
        raise document.error(path, result)
    seen_counts: dict[str, int] = {}
    problems = [
        LintProblem(
            ("recommendations", place, "id"), f"'{recommendation.id}' is the id of an earlier one", "number each once"
        )
        for place, recommendation in enumerate(result.recommendations)
        if seen_counts.setdefault(recommendation.id, place) != place
    ]
    if problems:
        raise document.error(path, problems)
    return result
