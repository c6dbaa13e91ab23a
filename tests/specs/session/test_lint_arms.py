"""Arms that hold conversations: what of a spec is refused, what is noted, and what a registration says."""

from __future__ import annotations

from pathlib import Path

import pytest

from specs.lint.evaluation_rules import notes
from specs.loading.loading import load_spec
from specs.schemas import schema_text
from specs.session.session_spec import SessionSpec
from testing.factories.compared_evidence import ANALYSIS, CONTROLS, resolved, talk_spec
from testing.factories.spec_files import problems_of, write_spec

TUNED = "{model: train.checkpoint, items: heldout}\n    parameters: {max_new_tokens: 32, seed: 7}"
CONTROL = "    - {before: base_shuffled, after: tuned_shuffled}\n"


def refused(path: Path) -> list[tuple[str, str, str]]:
    return [(problem.keys, problem.message, problem.hint) for problem in problems_of(path)]


def test_both_arms_may_hold_conversations_with_and_without_a_rule_and_controls(tmp_path: Path) -> None:
    spec = resolved(tmp_path / "whole").spec
    assert spec.stage("tuned").kind == "multi_turn" and spec.analysis.primary_metric == "conversation_pass_rate"
    assert spec.analysis.list_compared_stages() == ("base", "tuned", "base_shuffled", "tuned_shuffled")
    assert list(notes(spec)) == []
    alone = resolved(tmp_path / "alone", flag=False).spec
    assert [note.split(":")[0] for note in notes(alone)] == ["tuned"] and "no control" in next(notes(alone))


def test_the_hypothesis_holds_the_rule_and_the_controls_next_to_the_test(tmp_path: Path) -> None:
    requests = [str(criterion) for criterion in resolved(tmp_path / "whole").spec.analysis.hypothesis()]
    assert requests == [
        "mcnemar_p < 0.05",
        "accuracy_gain >= 0.3",
        "primary_kind_p < 0.1",
        "primary_kind_gain > 0",
        "kinds_kept >= 3",
        "control_excess_p < 0.05",
        "control_excess > 0",
    ]
    assert len(resolved(tmp_path / "alone", flag=False).spec.analysis.hypothesis()) == 2


MIXED = "the baseline 'base' is a stage of kind multi_turn, the treatment one of evaluate"
CASES = [
    (("  - name: tuned\n    kind: multi_turn", "  - name: tuned\n    kind: evaluate"), "analysis.treatment", MIXED,
     "both arms are of one kind"),
    (("primary_metric: conversation_pass_rate", "primary_metric: accuracy"), "analysis.primary_metric",
     "primary_metric is accuracy, the arms are multi_turn stages", "write primary_metric: conversation_pass_rate"),
    (("treatment: tuned\n", "treatment: train\n"), "analysis.treatment",
     "'train' is a stage of kind sft; an arm is an evaluate or multi_turn or inspect or lm_eval stage",
     "evaluate or multi_turn or inspect or lm_eval stages: base, base_shuffled, tuned_shuffled, tuned"),
    ((TUNED, TUNED.replace("32", "33")), "stages[5].parameters.max_new_tokens",
     "max_new_tokens is 33 here and 32 at the baseline 'base'", "both arms are evaluated the same way"),
    ((TUNED, TUNED.replace("seed: 7", "seed: 7, history: none")), "stages[5].parameters.history",
     "history is none here and whole at the baseline 'base'", "both arms are evaluated the same way"),
    ((TUNED, TUNED.replace("train.checkpoint", "model")), "stages[5].inputs.model",
     "both arms evaluate 'model', so they cannot differ", "evaluate the trained checkpoint"),
    ((TUNED, TUNED.replace("heldout", "data.prompts")), "stages[5].inputs.items",
     "the treatment reads 'data.prompts', the analysis registers heldout", "read heldout"),
    ((CONTROL, CONTROL.replace("base_shuffled", "base_shufled")), "analysis.controls[0].before",
     "unknown stage 'base_shufled'", "did you mean 'base_shuffled'?"),
    ((CONTROL, CONTROL.replace("tuned_shuffled", "train")), "analysis.controls[0].after",
     "a stage of kind sft is not a control: 'train'", ""),
    ((CONTROL, CONTROL.replace("base_shuffled", "base")), "analysis.controls[0].before",
     "'base' shows the whole history", "a control has history: shuffled or none"),
    (
        ("inputs: {model: train.checkpoint, items: heldout}\n    parameters: {max_new_tokens: 32, seed: 7, history",
         "inputs: {model: model, items: heldout}\n    parameters: {max_new_tokens: 32, seed: 7, history"),
        "analysis.controls[0].after",
        "'tuned_shuffled' reads the model 'model', its arm 'tuned' reads 'train.checkpoint'",
        "only the history differs",
    ),
    (
        ("{model: train.checkpoint, items: heldout}\n    parameters: {max_new_tokens: 32, seed: 7, history",
         "{model: train.checkpoint, items: heldout}\n    parameters: {max_new_tokens: 31, seed: 7, history"),
        "analysis.controls[0].after",
        "max_new_tokens is 31 at 'tuned_shuffled' and 32 at its arm",
        "only the history differs",
    ),
    (
        ("{model: model, items: heldout}\n    parameters: {max_new_tokens: 32, seed: 7, history: shuffled",
         "{model: model, items: heldout}\n    parameters: {max_new_tokens: 32, seed: 7, history: none"),
        "analysis.controls[0]",
        "history is none at 'base_shuffled' and shuffled at 'tuned_shuffled'",
        "both sides of a control have the same",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("change", "keys", "message", "hint"), CASES, ids=[case[1] + case[2][:20] for case in CASES])
def test_a_mistake_is_reported_once_where_it_is(
    tmp_path: Path, change: tuple[str, str], keys: str, message: str, hint: str
) -> None:
    results = [row for row in refused(talk_spec(tmp_path, change)) if row[0] == keys]
    assert len(results) == 1, refused(talk_spec(tmp_path, change))
    assert message in results[0][1] and hint in results[0][2]


def test_mixed_arms_are_one_error_and_nothing_else(tmp_path: Path) -> None:
    path = talk_spec(tmp_path, CASES[0][0], flag=False)
    assert [row[:2] for row in refused(path)] == [("analysis.treatment", MIXED)]


def test_a_control_as_an_arm_is_refused(tmp_path: Path) -> None:
    path = talk_spec(
        tmp_path, ("max_new_tokens: 32, seed: 7}", "max_new_tokens: 32, seed: 7, history: none}"), flag=False
    )
    output = "stage 'tuned': history is none: an arm that is not shown its conversation is a control"
    assert [row[:2] for row in refused(path)] == [("stages[3].parameters.history", output)]


def test_a_control_that_comes_after_the_treatment_is_refused(tmp_path: Path) -> None:
    path = talk_spec(tmp_path)
    text = path.read_text(encoding="utf-8").replace(f"{CONTROLS}\n", "")
    path.write_text(text.replace("  - name: ship\n", f"{CONTROLS}\n  - name: ship\n"), encoding="utf-8")
    assert [row[1] for row in refused(path)] == [
        f"'{side}_shuffled' comes after the treatment 'tuned', which it must judge" for side in ("base", "tuned")
    ]


def test_controls_of_arms_that_answer_single_questions_are_refused(tmp_path: Path) -> None:
    path = write_spec(tmp_path, ("  treatment: tuned\n", f"  treatment: tuned\n{ANALYSIS}"))
    assert [row[:2] for row in refused(path)] == [("analysis.controls", "the arms hold no conversations")]


def test_a_rule_that_asks_nothing_is_refused(tmp_path: Path) -> None:
    path = talk_spec(tmp_path, ("kinds: {primary: memory, kept: 3, margin: 0.3, false_discovery: 0.1}", "kinds: {}"))
    assert "a rule on kinds needs primary, risen or kept" in refused(path)[0][1]


def test_a_criterion_on_what_the_rule_judges_is_refused(tmp_path: Path) -> None:
    gate = f"{TUNED}\n    gate:\n      criteria:\n        - {{metric: kinds_kept, at_least: 1}}"
    ((keys, message, _),) = refused(talk_spec(tmp_path, (TUNED, gate)))
    assert keys == "stages[5].gate.criteria[0].metric"
    expected = "'kinds_kept' is judged by what analysis registers (kinds, controls, arms), not by a criterion"
    assert message == f"stage 'tuned': {expected}"


def test_a_builder_moves_nothing_of_arms_and_controls(tmp_path: Path) -> None:
    ranged = "history: shuffled}\n    ranges: {max_new_tokens: {min: 16, max: 64}}"
    path = talk_spec(tmp_path, ("history: shuffled}", ranged))
    assert {row[0] for row in refused(path)} == {f"stages[{n}].ranges.max_new_tokens" for n in (3, 4)}


def test_a_rule_on_kinds_is_for_arms_of_either_kind(tmp_path: Path) -> None:
    rule = "  treatment: tuned\n  kinds: {kept: 1, margin: 0.4}\n"
    spec = load_spec(write_spec(tmp_path, ("  treatment: tuned\n", rule))).spec
    assert str(spec.analysis.hypothesis()[-1]) == "kinds_kept >= 1"


def test_the_schema_names_what_an_analysis_of_conversations_has() -> None:
    output = schema_text(SessionSpec)
    assert all(f'"{name}"' in output for name in ("KindRule", "Control", "conversation_pass_rate", "shuffled"))
