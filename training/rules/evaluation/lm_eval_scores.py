"""The plain filters and metrics of lm-eval carried out again; what is not certain here stays a claim.

Written from the library's description: a filter takes a part of the answer, ``exact_match`` compares it with a target.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

SCORER = "lm_eval/exact_match"
MOST_TEXT = 20_000
"""Characters in which a pattern is looked for: other people's patterns may take exponential time."""
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
        texts = [_bare(options, target) for target in targets]
        return _bare(options, text) in texts
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


def _bare(options: Mapping[str, Any], text: str) -> str:
    for pattern in options.get("regexes_to_ignore") or ():
        text = re.sub(str(pattern), "", text)
    if options.get("ignore_case"):
        text = text.lower()
    dropped = string.punctuation if options.get("ignore_punctuation") else ""
    dropped += string.digits if options.get("ignore_numbers") else ""
    return text.translate(str.maketrans("", "", dropped))


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [dict(element) for element in value if isinstance(element, Mapping)] if isinstance(value, list) else []
