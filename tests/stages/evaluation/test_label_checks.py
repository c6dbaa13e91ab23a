"""Labels that are none: an answer that its prompt tells, and a verdict that changes when it is asked for again."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from reviews.checks.definition import CheckOutcome, apply
from reviews.stages.evaluation import label_checks
from reviews.stages.evaluation.label_checks import CHECKS, agrees_with_itself, common_answer, judge_design_labels
from specs.loading.loading import load_spec
from specs.stages.base.artifacts import Item
from specs.trail.verdict import CheckResult
from testing.factories.evidence_on_disk import design_results, evidence_of, heldout_items, resolved_spec
from testing.factories.task_files import spec_with
from testing.fixtures.sandbox import needs_sandbox
from training.rules.tasks.form import Verifier
from training.rules.tasks.format_instructions import Judgement


def make_item(prompt: str, answer: str | int = "Paris", **more: str | int) -> Item:
    return Item(id="q", group="g", kind="fact", prompt=prompt, constraint={"answer": answer, **more})


def check_labels(folder: Path, *items: Item) -> CheckOutcome:
    spec = resolved_spec(folder).spec.model_copy(update={"task": "exact_answer"})
    return judge_design_labels(spec, items, {})


@pytest.mark.parametrize(
    "prompt",
    [
        "What is the capital of France? Answer: Paris",
        "What is the capital of France? (Paris)",
        "What is the capital of France?\nHint: the answer is Paris.",
        "Name the capital of France. [gold: paris]",
        "Name the capital of France. The answer is the city of Paris. Write one name.",
        "SOLUTION = Paris\nName the capital of France.",
    ],
)
def test_a_prompt_that_announces_its_answer_stops_the_design(tmp_path: Path, prompt: str) -> None:
    outcome = check_labels(
        tmp_path, make_item("What is the capital of Italy?", "Rome"), make_item(prompt, answer_2="the city of Paris")
    )
    assert (outcome.status, outcome.figure, outcome.repairable) == ("FAIL", 1, False), outcome
    assert "1 of 2 prompts announce their answer" in outcome.detail and "take it out of the prompt" in outcome.detail


TOPICS = ("owls", "bees", "rivers", "clouds", "bread", "chess", "trains", "tea")


def formed(prompt: str, place: int) -> Item:
    kind = ("lowercase", "quoted")[place % 2]
    text = prompt.format(topic=TOPICS[place % 8], kind=kind, id=f"item-{place}", place=place)
    return Item(id=f"item-{place}", group=f"g{place}", kind=kind, prompt=text, constraint={})


@pytest.mark.parametrize(
    ("prompt", "training", "how"),
    [
        ("Write about {topic}. [id: {id}]", "Write about {topic}.", "id"),
        ("Write about {topic}. ({kind})", "Write about {topic}.", "kind"),
        ("<{kind}> Write about {topic}.", "Write about {topic}.", "kind"),
        ("Write about {topic} in {kind} form.", "Tell of {topic} in {kind} form.", ""),
        ("Write about {topic}, number {place}.", "Tell of {topic}.", ""),
        ("Write about {topic}.", "Write about {topic}.", ""),
    ],
)
def test_a_prompt_with_a_note_of_its_record_stops_the_design(
    tmp_path: Path, prompt: str, training: str, how: str
) -> None:
    heldout, others = ([formed(text, place) for place in range(16)] for text in (prompt, training))
    outcome = judge_design_labels(resolved_spec(tmp_path).spec, heldout, {"prompts": others})
    assert (outcome.status == "FAIL") == (how == "id"), outcome
    assert ("hold their own id," in outcome.detail, "say their own kind" in outcome.detail) == (
        how == "id",
        how == "kind",
    )


@pytest.mark.parametrize(
    "item",
    [
        make_item("Paris lies on the Seine, Lyon on the Rhone. Which of the two is the capital of France?"),
        make_item("Which is larger, Lyon or Paris?"),
        make_item("Is Paris the capital of France? Answer: yes or no", "yes"),
        make_item("Question: the capital of France?\nAnswer: Paris\nQuestion: where is the Louvre?\nAnswer:"),
    ],
)
def test_a_text_that_has_to_hold_the_answer_is_a_warning_at_most(tmp_path: Path, item: Item) -> None:
    outcome = check_labels(tmp_path, item)
    assert (outcome.status, outcome.figure) == ("WARN", 1), outcome
    assert outcome.rows[0]["how"] == "held"


def test_prompts_without_their_answers_pass_and_part_of_a_word_is_no_answer(tmp_path: Path) -> None:
    pens = make_item("A box holds 7 pens. Two are lost and two are found. How many are left?", 7, find="last_number")
    assert (
        check_labels(tmp_path, make_item("Where do Parisians live?"), make_item("Where is the Louvre?"), pens).status
        == "PASS"
    )
    assert check_labels(tmp_path, pens.model_copy(update={"prompt": f"{pens.prompt} Answer: 7"})).status == "FAIL"


@pytest.mark.parametrize(
    ("answers", "status", "figure"),
    [
        (("yes", "no", "yes", "no"), "PASS", 0.5),
        (("Yes.", "yes", "YES", "yes", "no"), "PASS", 0.8),
        (("Yes.", "yes", "YES", "yes", "yes", "no"), "FAIL", 5 / 6),
        (("yes",) * 4, "FAIL", 1.0),
    ],
)
def test_a_split_that_one_answer_passes_stops_the_design(
    tmp_path: Path, answers: tuple[str, ...], status: str, figure: float
) -> None:
    resolved = resolved_spec(tmp_path)
    spec = resolved.spec.model_copy(update={"task": "exact_answer"})
    # An item with two right answers that are written alike counts once.
    items = tuple(make_item(f"Is {n} even?", answer, answer_2=answer.upper()) for n, answer in enumerate(answers))
    outcome = common_answer(spec, items, {})
    assert (outcome.status, outcome.figure, outcome.repairable) == (status, figure, status == "PASS"), outcome
    assert "yes" not in outcome.detail.casefold(), "builders read it"
    checked = design_results(resolved.model_copy(update={"spec": spec}), items, {})
    assert next(check for check in checked if check.id == "design.common_answer").status == status


def test_the_share_of_one_answer_is_the_registered_one(tmp_path: Path) -> None:
    spec = resolved_spec(tmp_path).spec
    lax = spec.thresholds.model_copy(update={"common_answer": 0.95})
    spec = spec.model_copy(update={"task": "exact_answer", "thresholds": lax})
    items = [make_item(f"Is {n} even?", "no" if n else "yes") for n in range(20)]
    assert [common_answer(spec, items[:count], {}).status for count in (20, 19)] == ["PASS", "PASS"]
    assert common_answer(spec, items[1:], {}).status == "FAIL"


def test_the_design_gate_has_both_checks(tmp_path: Path) -> None:
    results = {result.id: result for result in design_results(resolved_spec(tmp_path), heldout_items(), {})}
    assert results["design.answers"].status == "NOT_APPLICABLE", "a form is not an answer that a prompt could tell"
    assert results["design.verdicts"].status == "PASS" and results["design.verdicts"].blocking


OWN = """
from specs.stages.base.artifacts import Item
STATE = []

def verify(item, answer):
    VERDICT

def worked_example(item):
    return "Say one.", "1"

def known_answers():
    item = Item(id="a", group="g", kind="k", prompt="p", constraint={})
    return [(item, text, text.strip() == "1") for text in ("1", " 1", "1 ", "2", "10", "-1")]
"""


@needs_sandbox
@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        ("return answer.strip() == '1'", "PASS"),
        ("import random; return random.random() < 0.5", "FAIL"),
        ("STATE.append(answer); return answer.strip() == '1' and STATE.count(answer) == 1", "FAIL"),
        ("STATE.append(len(answer)); return STATE[-1] <= STATE[-2:][0]", "FAIL"),
        ("import time; return int(time.perf_counter() * 1e7) % 2 == 0", "FAIL"),
        ("STATE.append(1); return len(STATE) % 2 == 0", "FAIL"),
        ("return hash(answer) % 2 == 0", "FAIL"),
        ("return hash(item.id) % 2 == 0", "FAIL"),
    ],
    ids=["sound", "chance", "memory", "order", "clock", "turns", "hash", "item"],
)
def test_a_verifier_that_contradicts_itself_is_not_admitted(tmp_path: Path, verdict: str, status: str) -> None:
    resolved = load_spec(spec_with(tmp_path, OWN.replace("VERDICT", verdict)))
    outcome = agrees_with_itself([resolved.spec.task], heldout_items())
    assert outcome.status == status, outcome
    assert ("depend on item and answer alone" in outcome.detail) is (status == "FAIL")


@needs_sandbox
def test_a_task_that_takes_its_prompts_for_answers_is_named(tmp_path: Path) -> None:
    resolved = load_spec(spec_with(tmp_path, OWN.replace("VERDICT", "return 'elm' in answer")))
    outcome = judge_design_labels(resolved.spec, heldout_items(), {})
    assert (outcome.status, outcome.figure) == ("WARN", sum("elm" in item.prompt for item in heldout_items()))


def repeats(folder: Path) -> CheckResult:
    return apply(next(check for check in CHECKS if check.id == "scorer.repeats"), evidence_of(folder, "base"), None)


def test_rows_that_are_judged_otherwise_a_second_time_close_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert repeats(tmp_path).status == "PASS"
    calls = count()

    def fickle(_: str) -> Verifier:
        return lambda item, text: Judgement(next(calls) % 5 == 0)

    monkeypatch.setattr(label_checks, "verifier", fickle)
    check = repeats(tmp_path)
    assert (check.status, check.repairable) == ("FAIL", False) and check.figure and check.rows
