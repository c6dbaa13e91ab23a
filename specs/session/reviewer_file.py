"""Reads a reviewer from a file of its own, or from options: the mapping a spec has under ``reviewer:``.

Problems are told as those of a spec: all at once, each at its line and column, or by its option.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specs.digests import canonical_bytes
from specs.errors import Problem, SpecError, UserError
from specs.session.lint.rules import lint
from specs.session.problems import LintProblem, Loc, dotted, printable
from specs.session.repair import SESSION_STANDINS, validate
from specs.session.session_spec import Reviewer, SessionSpec
from specs.session.yaml_positions import Document, UnreadableError, read_yaml

_KEY: Loc = ("reviewer",)


def load_reviewer(path: Path) -> Reviewer:
    """Read a reviewer from a YAML file.

    Raises:
        SpecError: it is no reviewer; holds every problem found.
        UserError: the file cannot be read.
    """
    try:
        raw = path.read_bytes()
    except (OSError, ValueError) as error:
        raise UserError(f"'{path}' cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        document = read_yaml(raw)
    except UnreadableError as error:
        raise SpecError([Problem(str(path), *error.place, "", error.message, error.hint)]) from error
    reviewer, found = _read(document)
    problems = [(place, problem) for place, problem in document.problems]
    problems += [(_place(document, problem), problem) for problem in found]
    if reviewer is None or problems:
        raise SpecError(
            [
                Problem(str(path), *place, *map(printable, (dotted(one.loc), one.message, one.hint)))
                for place, one in sorted(problems, key=lambda one: one[0])
            ]
        )
    return reviewer


def reviewer_of(values: dict[str, Any], options: dict[Loc, str]) -> Reviewer:
    """Make a reviewer of values that were given as options.

    Args:
        values: the mapping, as in a spec.
        options: the option that stands for each key.

    Raises:
        UserError: it is no reviewer; names the options.
    """
    reviewer, found = _read(read_yaml(canonical_bytes(values) if values else b"{}"))
    if reviewer is None or found:
        raise UserError("\n".join(printable(_told(one, options)) for one in found) or "this is no reviewer")
    return reviewer


def _read(document: Document) -> tuple[Reviewer | None, list[LintProblem]]:
    """Validate a mapping as the reviewer of an otherwise harmless session, and keep what is about the reviewer."""
    whole = Document(data=SESSION_STANDINS | {"reviewer": document.data}, bad={(*_KEY, *loc) for loc in document.bad})
    spec, problems, damaged = validate(whole, SessionSpec, SESSION_STANDINS)
    if spec is not None:
        problems += [one for one in lint(spec) if not one.rests_on(damaged)]
    found = [LintProblem(one.loc[1:], one.message, one.hint) for one in problems if one.loc[:1] == _KEY]
    return (spec.reviewer if spec is not None else None), list(dict.fromkeys(found))


def _place(document: Document, found: LintProblem) -> tuple[int, int]:
    unknown = found.message.startswith("unknown key")
    return document.key_place(found.loc) if unknown else document.place(found.loc)


def _told(found: LintProblem, options: dict[Loc, str]) -> str:
    hint = found.hint.replace("usd_per_million_tokens: {input: ..., output: ...}", "--price-in and --price-out")
    return f"{_option(found.loc, options)}: {found.message}{f' ({hint})' if hint else ''}"


def _option(loc: Loc, options: dict[Loc, str]) -> str:
    for end in range(len(loc), 0, -1):
        if loc[:end] in options:
            return options[loc[:end]]
    return dotted(loc) or "reviewer"
