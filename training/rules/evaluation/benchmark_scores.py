"""Which scores of inspect_ai and lm-eval say that an answer is right, and their plain scorers carried out again.

A scorer, or a filter and metric, is carried out again from its options, the answer and the target, by rules written
here from the libraries' descriptions: what they cannot decide with certainty is a claim, and never guessed.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

_PLAIN_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)")
_DROPPED = str.maketrans("", "", "$,£€*_")
_AROUND = "!?:;()[]{}'\"`"
MOST_TEXT = 20_000
"""Characters of an answer in which a pattern is looked for: other people's patterns may take exponential time."""


def is_right(value: str | bool | float | None) -> bool:
    """Return whether a score says that an answer is right: ``C``, true or 1."""
    return value == "C" if isinstance(value, str) else value is not None and float(value) == 1


def scored_again(scorer: str, options: Mapping[str, Any], answer: str, targets: Sequence[str]) -> bool | None:
    """Return whether an answer is right by one of the plain scorers; None where that is not certain here."""
    if scorer == SCORER:
        return exact_match(options, answer, targets)
    rule = _RULES.get(scorer.removeprefix("inspect_ai/"))
    return None if rule is None else rule(options, answer, targets)


def _includes(options: Mapping[str, Any], answer: str, targets: Sequence[str]) -> bool | None:
    if set(options) - {"ignore_case"}:
        return None
    folded = options.get("ignore_case", True)
    text = answer.casefold() if folded else answer
    return any((target.casefold() if folded else target) in text for target in targets)


def _match(options: Mapping[str, Any], answer: str, targets: Sequence[str]) -> bool | None:
    if set(options) - {"ignore_case", "numeric", "location"}:
        return None
    flags = [_matches(options, answer.strip(), target.strip()) for target in targets]
    return True if True in flags else None if None in flags else False


def _matches(options: Mapping[str, Any], text: str, due_text: str) -> bool | None:
    where = options.get("location", "end")
    if options.get("ignore_case", True):
        text, due_text = text.casefold(), due_text.casefold()
    if options.get("numeric", False):
        # Numbers in other scripts, fractions and the like are read by rules of the library's own.
        if not (text.isascii() and due_text.isascii()):
            return None
        due_text = due_text.translate(_DROPPED)
        return None if _number(due_text) is None else _same_number(where, text.translate(_DROPPED), due_text)
    text, due_text = _bare(text), _bare(due_text)
    match where:
        case "begin":
            return text.startswith(due_text)
        case "end":
            return text.endswith(due_text)
        case "any":
            return due_text in text
        case "exact":
            return text == due_text
        case _:
            return None


def _same_number(where: str, text: str, due_text: str) -> bool | None:
    words = text.split()
    numbers = [number for word in words if (number := _number(word)) is not None]
    # What only the library reads as a number: 1e5, 3/4, 5%.
    odd = any(any(letter.isdigit() for letter in word) and _number(word) is None for word in words)
    if odd or where == "exact":
        return None
    wanted = _number(due_text)
    if not numbers:
        return False
    if where == "any":
        return wanted in numbers
    return numbers[0 if where == "begin" else -1] == wanted


def _number(word: str) -> str | None:
    """Return a plain number to five digits; None for anything else."""
    bare = word.strip(_AROUND)
    if bare != word and bare.endswith("."):
        return None
    return f"{float(bare):.5g}" if _PLAIN_NUMBER.fullmatch(bare) else None


def _bare(text: str) -> str:
    """Return a text without white space and punctuation around it."""
    return text.strip(string.whitespace + string.punctuation)


def _pattern(options: Mapping[str, Any], answer: str, targets: Sequence[str]) -> bool | None:
    if set(options) - {"pattern", "ignore_case", "match_all"} or len(answer) > MOST_TEXT:
        return None
    folded, every = options.get("ignore_case", True), options.get("match_all", False)
    try:
        match = re.search(str(options.get("pattern")), answer, re.IGNORECASE if folded else 0)
    except re.error:
        return None
    if match is None:
        return False
    groups = [group for group in (match.groups() or (match.group(0),)) if group is not None]
    known = {target.lower() for target in targets} if folded else set(targets)
    named = [(group.lower() if folded else group) in known for group in groups]
    return bool(named) and (all(named) if every else any(named))


_RULES = {"includes": _includes, "match": _match, "pattern": _pattern}


SCORER = "lm_eval/exact_match"
_METRIC = {"regexes_to_ignore", "ignore_case", "ignore_punctuation", "ignore_numbers"}
_REGEX = {"function", "regex_pattern", "group_select", "fallback"}
_INVALID = "[invalid]"


def scorer_of(settings: Mapping[str, Any], metric: str, name: str) -> tuple[str, dict[str, Any]]:
    """Return how a task scores: the scorer with its options, or a name that nothing here carries out."""
    results = [value for value in _dicts(settings.get("metric_list")) if value.get("metric") == metric]
    filters = [value for value in _dicts(settings.get("filter_list")) if value.get("name") == name]
    steps = _dicts(filters[0].get("filter")) if filters else [{"function": "take_first"}]
    own = settings.get("process_results") or settings.get("doc_to_choice") or settings.get("repeats", 1) != 1
    if metric != "exact_match" or len(results) != 1 or own or (name != "none" and len(filters) != 1):
        return f"lm_eval_task/{metric}", {}
    statements = {
        key: value for key, value in results[0].items() if key not in ("metric", "aggregation", "higher_is_better")
    }
    return SCORER, {"filters": steps, **statements}


def exact_match(options: Mapping[str, Any], answer: str, targets: Sequence[str]) -> bool | None:
    """Return whether an answer is a target after the filters; None where that is not certain."""
    if set(options) - _METRIC - {"filters"} or len(answer) > MOST_TEXT:
        return None
    try:
        text = _apply_filters(options.get("filters"), answer)
        if text is None:
            return None
        texts = [_bare_text(options, target) for target in targets]
        return _bare_text(options, text) in texts
    except (re.error, TypeError, IndexError):
        return None


def _apply_filters(steps: Any, answer: str) -> str | None:
    """Return what the filters leave of one answer; None where one is not known here, or none takes the answer."""
    if not any(step.get("function") == "take_first" for step in _dicts(steps)):
        return None
    for step in _dicts(steps):
        match step.get("function"):
            case "take_first":
                pass
            case "regex" if not set(step) - _REGEX and "regex_pattern" in step:
                answer = _extract_match(step, answer)
            case "remove_whitespace" if len(step) == 1:
                answer = answer.strip()
            case _:
                return None
    return answer


def _extract_match(step: Mapping[str, Any], answer: str) -> str:
    fallback = str(step.get("fallback", _INVALID))
    results: list[Any] = re.findall(str(step["regex_pattern"]), answer)
    if not results:
        return fallback
    value = results[int(step.get("group_select", 0))]
    if isinstance(value, tuple):
        value = next((part for part in value if part), fallback)
    return str(value).strip()


def _bare_text(options: Mapping[str, Any], text: str) -> str:
    for pattern in options.get("regexes_to_ignore") or ():
        text = re.sub(str(pattern), "", text)
    if options.get("ignore_case"):
        text = text.lower()
    dropped = string.punctuation if options.get("ignore_punctuation") else ""
    dropped += string.digits if options.get("ignore_numbers") else ""
    return text.translate(str.maketrans("", "", dropped))


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [dict(element) for element in value if isinstance(element, Mapping)] if isinstance(value, list) else []
