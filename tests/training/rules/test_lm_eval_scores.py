"""The plain filters and metrics of lm-eval, carried out again: as the library does, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from training.rules.evaluation.benchmark_scores import MOST_TEXT, SCORER, scored_again, scorer_of

REGEX = {"function": "regex", "regex_pattern": r"#### (\-?[0-9\.\,]+)"}
FIRST = {"function": "take_first"}
LAST = {"function": "regex", "group_select": -1, "regex_pattern": r"(-?[$0-9.,]{2,})|(-?[0-9]+)"}
MATCH: dict[str, Any] = {
    "metric": "exact_match",
    "aggregation": "mean",
    "higher_is_better": True,
    "ignore_case": True,
    "regexes_to_ignore": [",", r"\$", r"(?s).*#### ", r"\.$"],
}
SETTINGS: dict[str, Any] = {
    "metric_list": [MATCH],
    "filter_list": [{"name": "strict", "filter": [REGEX, FIRST]}, {"name": "flexible", "filter": [LAST, FIRST]}],
}


def scored(settings: dict[str, Any], name: str, answer: str, *targets: str, metric: str = "exact_match") -> bool | None:
    scorer, options = scorer_of(settings, metric, name)
    return scored_again(scorer, options, answer, targets)


@pytest.mark.parametrize(
    ("name", "answer", "right"),
    [
        ("strict", "So it is\n#### 1,204", True),
        ("strict", "It is 1204", False),
        ("flexible", "It is $1,204.", True),
        ("flexible", "1204 or 7", False),
        ("flexible", "no number", False),
        ("strict", "#### 12", False),
    ],
)
def test_an_answer_is_judged_as_by_the_task(name: str, answer: str, right: bool) -> None:
    assert scored(SETTINGS, name, answer, "Six hundred and two, twice.\n#### 1204") is right


def test_the_part_of_a_pattern_that_matched_is_taken() -> None:
    assert scored(SETTINGS, "flexible", "It is 7", "7") is True


def test_one_of_several_targets_is_enough() -> None:
    plain = {"metric_list": [{"metric": "exact_match", "ignore_punctuation": True}]}
    assert scored(plain, "none", "tea!", "ale", "tea") is True
    assert scored(plain, "none", "Tea!", "ale", "tea") is False


@pytest.mark.parametrize(
    "settings",
    [
        SETTINGS | {"process_results": "!function a.b"},
        SETTINGS | {"repeats": 3},
        SETTINGS | {"doc_to_choice": ["a", "b"]},
        SETTINGS | {"filter_list": [{"name": "strict", "filter": [REGEX]}]},
        SETTINGS | {"filter_list": [{"name": "strict", "filter": [{"function": "custom"}, FIRST]}]},
        SETTINGS | {"filter_list": [{"name": "strict", "filter": [REGEX | {"unknown": 1}, FIRST]}]},
        SETTINGS | {"filter_list": [{"name": "strict", "filter": [REGEX | {"regex_pattern": "("}, FIRST]}]},
        SETTINGS | {"filter_list": []},
        SETTINGS | {"metric_list": [MATCH | {"unknown": True}]},
        SETTINGS | {"metric_list": [MATCH, MATCH]},
        SETTINGS | {"metric_list": [{"metric": "!function a.b"}]},
    ],
)
def test_what_is_not_certain_stays_a_claim(settings: dict[str, Any]) -> None:
    assert scored(settings, "strict", "#### 1204", "1204") is None


def test_other_metrics_and_long_answers_stay_claims() -> None:
    assert scored(SETTINGS, "strict", "#### 1204", "1204", metric="bleu") is None
    assert scored(SETTINGS, "strict", f"#### 1204{' ' * MOST_TEXT}", "1204") is None
    assert scorer_of(SETTINGS, "exact_match", "strict")[0] == SCORER


def test_the_library_says_the_same() -> None:
    """Kills: another order of filters, a group too many, punctuation dropped before patterns."""
    metrics = pytest.importorskip("lm_eval.api.metrics", reason="lm-eval is not installed (the extra 'lm-eval')")
    filters: Any = pytest.importorskip("lm_eval.filters.extraction")
    answers = ["#### 1,204.", "7, 1204", "$1204", "", "#### -3", "a 1204 b 12", "####  1204", "1.204", "…1204…"]
    for name, step in (("strict", REGEX), ("flexible", LAST)):
        own: Any = filters.RegexFilter(**{key: value for key, value in step.items() if key != "function"})
        for answer in answers:
            ((taken,),) = own.apply([[answer]], [{}])
            arguments = {key: MATCH[key] for key in ("ignore_case", "regexes_to_ignore")}
            expected = metrics.exact_match_hf_evaluate([taken], ["so\n#### 1204"], **arguments)["exact_match"] == 1
            assert scored(SETTINGS, name, answer, "so\n#### 1204") is bool(expected), answer
