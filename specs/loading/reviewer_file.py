"""Reads a reviewer from a file or from options: the mapping a spec has under ``reviewer:``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from specs.lint.party_rules import lint_single_reviewer
from specs.stages.explain import validate
from specs.system.digests import canonical_bytes
from specs.system.errors import UserError
from specs.system.regular_files import read_regular
from specs.system.vendors.parties import REVIEWERS, ReviewerSpec
from specs.system.yaml.problems import LintProblem, Loc, format_loc, printable
from specs.system.yaml.yaml_positions import read_document


def load_reviewer(path: Path, *, for_gates: bool = False) -> ReviewerSpec:
    """Read a reviewer from a YAML file; ``for_gates`` allows vendors that answer no questions.

    Raises:
        SpecError: it has problems; all of them are named.
        UserError: the file is unreadable.
    """
    try:
        raw = read_regular(path)
    except (OSError, ValueError) as error:
        raise UserError(f"'{path}' cannot be read: {getattr(error, 'strerror', None) or error}") from error
    document = read_document(path, raw)
    reviewer = _read(document.data, for_gates)
    if isinstance(reviewer, list):
        raise document.error(path, reviewer)
    return reviewer


def reviewer_of(values: dict[str, Any], options: dict[Loc, str]) -> ReviewerSpec:
    """Return the reviewer of values that options gave, each by its place; raises UserError, which names them."""
    reviewer = _read(json.loads(canonical_bytes(values)))
    if isinstance(reviewer, list):
        raise UserError("\n".join(printable(_format_problem(lint_problem, options)) for lint_problem in reviewer))
    return reviewer


def _read(data: Any, for_gates: bool = False) -> ReviewerSpec | list[LintProblem]:
    """Return the reviewer that a mapping describes, or what its schema and the rules on reviewers have against it."""
    reviewer = validate(data, ReviewerSpec)
    if isinstance(reviewer, list):
        return reviewer
    lint_problems = list(lint_single_reviewer((), reviewer))
    if not lint_problems and reviewer.is_plugin and not for_gates:
        message = f"vendor '{reviewer.vendor}' judges gates only, it answers no questions"
        lint_problems.append(LintProblem(("vendor",), message, f"take one of {', '.join(REVIEWERS)}"))
    return lint_problems or reviewer


def _format_problem(result: LintProblem, options: dict[Loc, str]) -> str:
    hint = result.hint.replace("usd_per_million_tokens: {input: ..., output: ...}", "--price-in and --price-out")
    named = (options[result.loc[:end]] for end in range(len(result.loc), 0, -1) if result.loc[:end] in options)
    return f"{next(named, format_loc(result.loc) or 'reviewer')}: {result.message}{f' ({hint})' if hint else ''}"
