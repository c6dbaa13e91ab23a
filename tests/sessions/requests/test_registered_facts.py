"""`review ask` prints what is registered about the matter of a question, anyone who answers it, or no one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reviews.requests.registered_values import MAX_FACTS, SpecValueIndex
from testing.factories.evidence_on_disk import resolved_spec
from testing.fixtures.command_sessions import called as peergate
from testing.fixtures.quick_session import open_quick

ASK = ("review", "ask", "--topic", "the design", "--question")


def facts(folder: Path, question: str) -> dict[str, str]:
    return {value.pointer: value.value for value in SpecValueIndex(resolved_spec(folder).spec).bearing_on(question)}


@pytest.mark.parametrize(
    ("question", "registered", "not_meant"),
    [
        ("Is one seed enough for this?", {"/analysis/seeds", "/analysis/n", "/analysis/minimum_effect"}, "/budget/"),
        ("Which alpha makes it significant?", {"/analysis/alpha", "/analysis/n"}, "/model/"),
        ("Does the GPU time fit into the budget?", {"/budget/max_cost_usd", "/budget/max_hours"}, "/analysis/seeds"),
        ("Is the held-out split large enough?", {"/heldout/digest", "/analysis/n"}, "/model/"),
        ("What is the baseline?", {"/analysis/baseline", "/analysis/treatment"}, "/budget/"),
        (
            "Is the learning rate of train too low?",
            {"/stages/2/parameters/learning_rate", "/stages/2/kind"},
            "/budget/",
        ),
        ("Who is the reviewer?", {"/reviewer/vendor"}, "/budget/"),
    ],
)
def test_the_words_of_a_question_lead_to_what_is_registered(
    tmp_path: Path, question: str, registered: set[str], not_meant: str
) -> None:
    results = facts(tmp_path, question)
    assert registered <= results.keys() and len(results) <= MAX_FACTS
    assert not [pointer for pointer in results if pointer.startswith(not_meant)]


def test_a_question_about_something_else_has_no_facts(tmp_path: Path) -> None:
    assert facts(tmp_path, "Is it raining?") == {}


def test_they_are_printed_where_no_one_answers(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    done = peergate(*ASK, "Is one seed enough?", "--session", "small", "--runs", run.parent)
    assert done.returncode == 4 and "not judged" in done.stderr
    assert done.stdout.startswith("## Registered facts\n") and "no one judged it" in done.stdout
    assert "- /analysis/seeds: [7]\n" in done.stdout and "- /analysis/n: 12\n" in done.stdout
    report = json.loads(peergate(*ASK, "Is one seed enough?", "--session", run, "--json").stdout)
    assert {"pointer": "/analysis/seeds", "value": "[7]"} in [
        {name: item[name] for name in ("pointer", "value")} for item in report["registered"]
    ]


def test_they_are_printed_below_an_answer(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    options = ("--kind", "trivial", "--session", "small", "--runs", run.parent)
    done = peergate("review", "ask", "--topic", "a name", "--question", "Which name has the model?", *options)
    assert done.returncode == 0 and done.stdout.index("## Approval") < done.stdout.index("## Registered facts")
    assert "- /model/source: " in done.stdout


def test_outside_of_a_session_a_spec_in_the_context_is_read(tmp_path: Path) -> None:
    resolved_spec(tmp_path)
    without = peergate(*ASK, "Is one seed enough?", cwd=tmp_path)
    assert without.returncode == 4 and without.stdout == ""
    done = peergate(*ASK, "Is one seed enough?", "--context", "spec.yaml", cwd=tmp_path)
    assert done.returncode == 4 and "- /analysis/seeds: [7]\n" in done.stdout
