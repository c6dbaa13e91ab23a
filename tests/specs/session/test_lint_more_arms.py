"""Further arms of the analysis: what of a spec is refused, and what a registration says."""

from __future__ import annotations

from pathlib import Path

import pytest

from specs.lint.evaluation_rules import notes
from specs.loading.loading import load_spec
from testing.factories.compared_evidence import talk_spec
from testing.factories.more_arms import ARM, armed_spec
from testing.factories.spec_files import problems_of, write_spec


def test_arms_join_the_compared_stages_and_the_hypothesis(tmp_path: Path) -> None:
    analysis = load_spec(armed_spec(tmp_path)).spec.analysis
    assert analysis.list_compared_stages() == ("base", "tuned", "drafts_after")
    assert [str(criterion) for criterion in analysis.hypothesis()[2:]] == ["arms_p < 0.05", "arms_lead > 0"]
    (tmp_path / "reported").mkdir()
    reported = load_spec(armed_spec(tmp_path / "reported", ("beaten: true", "beaten: false"))).spec.analysis
    assert len(reported.hypothesis()) == 2


def test_a_registration_without_arms_does_not_name_them(tmp_path: Path) -> None:
    assert "arms" not in load_spec(write_spec(tmp_path)).spec.analysis.model_dump(mode="json")


STAGE = "  - name: drafts_after\n    kind: evaluate\n    inputs: {model: drafts.checkpoint, items: heldout}\n"
SETTINGS = "    parameters: {max_new_tokens: 32, seed: 7}\n"
CASES = [
    (("stage: drafts_after", "stage: drafts_afters"), "analysis.arms[0].stage", "unknown stage 'drafts_afters'",
     "did you mean 'drafts_after'?"),
    (("stage: drafts_after", "stage: drafts"), "analysis.arms[0].stage", "'drafts' is a stage of kind sft; an arm is",
     "stages: base, drafts_after, tuned"),
    (("stage: drafts_after", "stage: tuned"), "analysis.arms[0].stage", "'tuned' is the treatment already",
     "name another stage"),
    (("stage: drafts_after", "stage: base"), "analysis.arms[0].stage", "'base' is the baseline already",
     "name another stage"),
    ((ARM, f"{ARM}{ARM}"), "analysis.arms[1].name", "'own drafts' names another arm too", "its own name"),
    ((ARM, f"{ARM}{ARM}"), "analysis.arms[1].stage", "'drafts_after' is the arm 'own drafts' already", ""),
    (("name: own drafts", "name: treatment"), "analysis.arms[0].name", "'treatment' names another arm too", ""),
    ((STAGE, STAGE.replace("heldout", "data.prompts")), "stages[3].inputs.items",
     "the arm reads 'data.prompts', the analysis registers heldout", "read heldout"),
    ((STAGE + SETTINGS, STAGE + SETTINGS.replace("32", "33")), "stages[3].parameters.max_new_tokens",
     "max_new_tokens is 33 here and 32 at the treatment 'tuned'", "all arms are evaluated the same way"),
    ((STAGE, STAGE.replace("kind: evaluate", "kind: multi_turn")), "analysis.arms[0].stage",
     "the arm 'drafts_after' is a stage of kind multi_turn, the treatment one of evaluate", "of one kind"),
    ((STAGE, STAGE.replace("drafts.checkpoint", "train.checkpoint")), "stages[3].inputs.model",
     "the arm 'own drafts' evaluates 'train.checkpoint', as the treatment does, so they cannot differ", ""),
    ((STAGE, STAGE.replace("drafts.checkpoint", "model")), "stages[3].inputs.model",
     "the arm 'own drafts' evaluates 'model', as the baseline does, so they cannot differ", ""),
    ((STAGE + SETTINGS, STAGE + SETTINGS + "    ranges: {max_new_tokens: {min: 8, max: 64}}\n"),
     "stages[3].ranges.max_new_tokens", "a builder cannot move its parameters", "remove the range"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "keys", "message", "hint"), CASES, ids=[case[1] + case[2][:30] for case in CASES])
def test_a_mistake_is_reported_once_where_it_is(
    tmp_path: Path, change: tuple[str, str], keys: str, message: str, hint: str
) -> None:
    problems = [problem for problem in problems_of(armed_spec(tmp_path, change)) if message in problem.message]
    assert [problem.keys for problem in problems] == [keys]
    assert hint in problems[0].hint


def test_an_arm_after_the_treatment_is_refused(tmp_path: Path) -> None:
    path = armed_spec(tmp_path, (STAGE + SETTINGS, ""), ("  - name: ship\n", f"{STAGE}{SETTINGS}  - name: ship\n"))
    message = "'drafts_after' comes after the treatment 'tuned', whose gate judges all arms"
    assert [problem.message for problem in problems_of(path)] == [message]


def test_an_arm_that_is_evaluated_before_a_training_is_noted(tmp_path: Path) -> None:
    (note,) = notes(load_spec(armed_spec(tmp_path)).spec)
    assert note.startswith("drafts_after: evaluates an arm on the held-out split before 'train' trains")
    (tmp_path / "late").mkdir()
    last = (STAGE + SETTINGS, ""), ("  - name: tuned\n", f"{STAGE}{SETTINGS}  - name: tuned\n")
    assert list(notes(load_spec(armed_spec(tmp_path / "late", *last)).spec)) == []


def test_an_arm_of_conversations_that_is_not_shown_its_history_is_refused(tmp_path: Path) -> None:
    control = "    - {before: base_shuffled, after: tuned_shuffled}\n"
    arm = "  arms:\n    - {name: no memory, stage: tuned_shuffled, shows: without history, beaten: false}\n"
    path = talk_spec(tmp_path, (control, control + arm))
    assert "history is shuffled here and whole at the treatment 'tuned'" in [
        problem.message.removeprefix("stage 'tuned_shuffled': ") for problem in problems_of(path)
    ]


def test_a_criterion_on_arms_is_refused(tmp_path: Path) -> None:
    gate = "{metric: identical_outputs, at_least: 1}"
    path = armed_spec(tmp_path, (gate, "{metric: arms_p, below: 0.05}"))
    message = "'arms_p' is judged by what analysis registers (kinds, controls, arms), not by a criterion"
    assert message in problems_of(path)[0].message
