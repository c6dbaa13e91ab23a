"""A builder's script that trains, at the desk: what a spec registers, what the gate asks, what a reviewer is shown."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.checks.definition import apply
from reviews.evidence.evidence import Evidence
from reviews.gate.check_list import CHECKS
from reviews.gate.measurer import measure
from reviews.gate.packet import build_packet
from specs.stages.recipes.parameters import RecipeParameters
from specs.stages.registry import outputs_of
from specs.system.digests import digest_bytes, digest_path
from specs.trail.verdict import CheckResult
from testing.factories.evidence_on_disk import evidence_of, examples, heldout_items, with_manifest, write_rows
from testing.factories.judged_evidence import results_of
from testing.factories.recipe_session import RECIPE
from testing.factories.spec_files import list_problems, loads, write_spec
from testing.factories.trained_recipe import SHIPPED, STAGE, TRAINED, move, trained_evidence

OTHER = digest_bytes(b"something else")


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    return trained_evidence(tmp_path)


def apply_check(evidence: Evidence, check: str) -> CheckResult:
    return apply(next(gate_check for gate_check in CHECKS if gate_check.id == check), evidence, None)


# ---- the spec -----------------------------------------------------------------------------------------------


def test_later_stages_read_the_checkpoint_of_a_recipe_that_trains(tmp_path: Path) -> None:
    spec = loads(write_spec(tmp_path, *TRAINED, SHIPPED)).spec
    stage = spec.stage("look")
    assert outputs_of(stage.kind, stage.parameters) == {"rows": "rows", "files": "files", "checkpoint": "checkpoint"}
    assert spec.stage("tuned").inputs["model"] == "look.checkpoint" == spec.stage("train").inputs["model"]


def test_without_the_declaration_nothing_changes(tmp_path: Path) -> None:
    resolved = loads(write_spec(tmp_path, *RECIPE))
    stage = resolved.spec.stage("look")
    assert "trains" not in resolved.canonical().decode()
    assert outputs_of(stage.kind, stage.parameters) == {"rows": "rows", "files": "files"}
    assert "trains" not in stage.parameters.model_dump(mode="json")
    assert RecipeParameters(trains="start").model_dump(mode="json")["trains"] == "start"


@pytest.mark.parametrize(
    ("old", "new", "problem", "times"),
    [
        (", trains: start}\n    witness: weights_only", "}",
         "stage 'look' (recipe) has no output 'checkpoint' (it leaves one where its parameters", 2),
        ("trains: start", "trains: stat", "the stage has no input 'stat' to train (did you mean 'start'?)", 1),
        ("trains: start", "trains: rows",
         "trains 'rows', but 'sample.accepted' is not a checkpoint (checkpoint here: mod", 1),
        ("    witness: weights_only\n", "", "no witness can repeat the training of a recipe stage", 1),
        ("rows: sample.accepted", "rows: base.rows", "'base.rows' holds answers to held-out items", 1),
        ("rows: sample.accepted", "rows: heldout", "the held-out split is not for recipe stages", 1),
        ("start: model}", "start: look.checkpoint}", "'look.checkpoint' points to the stage itself", 1),
        ("start: model}", "start: base.checkpoint}", "stage 'base' (evaluate) has no output 'checkpoint'", 1),
    ],
)  # fmt: skip
def test_a_training_recipe_that_is_not_one_cannot_be_registered(
    tmp_path: Path, old: str, new: str, problem: str, times: int
) -> None:
    assert STAGE.count(old) == 1
    changes = (TRAINED[0], (TRAINED[1][0], TRAINED[1][1].replace(old, new)), *TRAINED[2:])
    problems = list_problems(write_spec(tmp_path, *changes))
    assert all(problem in text for text in problems) and len(problems) == times, problems


def test_who_trains_nothing_or_can_be_repeated_registers_no_weights_only(tmp_path: Path) -> None:
    inputs = "    inputs: {model: model, examples: sample.accepted}\n"
    line = "    witness: weights_only\n"
    (problem,) = list_problems(write_spec(tmp_path, (inputs, inputs + line)))
    assert "a witness can repeat its training" in problem
    sampled = "inputs: {model: model, prompts: data.prompts}\n"
    (problem,) = list_problems(write_spec(tmp_path, (sampled, f"{sampled}{line}")))
    assert "the stage trains nothing" in problem


def test_training_that_no_one_accepted_unrepeated_closes_the_gate(evidence: Evidence) -> None:
    unsaid = replace(evidence, stage=evidence.stage.model_copy(update={"witness": None}))
    assert apply_check(unsaid, "witness.training").status == "BLOCKED"


def test_what_was_made_of_answers_to_held_out_items_stays_out_at_any_remove(tmp_path: Path) -> None:
    judge = """\
  - name: judged
    kind: pairwise_judge
    inputs: {model: model, items: data.prompts, reference: base.rows, candidate: base.rows, labelled: data.prompts}
    parameters: {seed: 7}
"""
    stage = STAGE.replace("rows: sample.accepted", "rows: judged.rows")
    problems = list_problems(
        write_spec(tmp_path, TRAINED[0], (TRAINED[1][0], f"{judge}{stage}  - name: train\n"), *TRAINED[2:])
    )
    assert any("'judged.rows' holds answers to held-out items" in problem for problem in problems), problems


def test_the_gap_is_shown_before_a_script_trains_too(tmp_path: Path) -> None:
    gap = ("[train]}\nstages:\n", "[train], gap: {base: [tuned], ceiling: tuned}}\nstages:\n")
    problems = list_problems(write_spec(tmp_path, *TRAINED, gap))
    assert any("'tuned' comes after 'look', which already trains" in problem for problem in problems), problems


# ---- the gate -----------------------------------------------------------------------------------------------


def test_healthy_weights_pass_and_what_differs_is_reported(evidence: Evidence) -> None:
    results = results_of(evidence)
    report = {id: result.status for id, result in results.items() if result.status not in ("PASS", "NOT_APPLICABLE")}
    assert report == {"witness.training": "WARN"}
    assert results["witness.training"].detail.startswith("training not replayed, as registered")
    message = results["recipe.checkpoint"].detail
    assert message.startswith("1 of 20 tensors differ from those of 'start'") and "in model.norm.weight" in message
    assert message.endswith(f"trained by the builder's script {evidence.parameters['code']}")
    assert measure(evidence).metrics == {}


def test_a_recipe_that_trains_nothing_is_not_asked_for_weights(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "look")
    assert {apply_check(evidence, id).status for id in ("recipe.checkpoint", "recipe.data")} == {"NOT_APPLICABLE"}


def _stated(evidence: Evidence, **changes: Any) -> Evidence:
    assert evidence.manifest is not None
    return with_manifest(evidence, facts={"checkpoint": evidence.manifest.facts["checkpoint"] | changes})


def _weights(evidence: Evidence, change: Callable[[Path], None]) -> Evidence:
    change(evidence.outputs["checkpoint"])
    return evidence


def _template(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages }}")


def _code(folder: Path) -> None:
    (folder / "modeling.py").write_text("import os")


def _gone(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def _not_finite(folder: Path) -> None:
    move(folder, float("nan"))


def _half(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4])


def _untrained(evidence: Evidence) -> Evidence:
    shutil.copyfile(
        evidence.inputs["start"] / "model.safetensors", evidence.outputs["checkpoint"] / "model.safetensors"
    )
    return _stated(evidence, changed=0, largest_change=0.0, whole_change=0.0, largest_change_in="")


def _of_another_input(evidence: Evidence) -> Evidence:
    other = evidence.inputs["start"].parent / "other"
    shutil.copytree(evidence.outputs["checkpoint"], other)
    return replace(evidence, inputs=evidence.inputs | {"teacher": other})


def _replaced(evidence: Evidence) -> Evidence:
    from safetensors.numpy import load_file, save_file

    from training.rules.weight_files import compare

    path = evidence.outputs["checkpoint"] / "model.safetensors"
    save_file({name: -value for name, value in load_file(path).items()}, path, {"format": "pt"})
    return _stated(evidence, **compare(evidence.inputs["start"], path.parent).as_facts())


def _given(evidence: Evidence, **changes: Any) -> Evidence:
    write_rows(evidence.inputs["rows"], [row | changes for row in examples()])
    return evidence


FLAWS: list[tuple[str, Callable[[Evidence], Evidence], str, str, str]] = [
    ("another base", lambda result: _stated(result, base=OTHER), "recipe.checkpoint", "FAIL", f"states base {OTHER}"),
    ("another script", lambda result: _stated(result, code=OTHER), "recipe.checkpoint", "FAIL", f"states code {OTHER}"),
    ("more changed", lambda result: _stated(result, changed=20), "recipe.checkpoint", "FAIL",
     "states changed 20, it is 1"),
    ("a smaller change", lambda result: _stated(result, largest_change=1e-9), "recipe.checkpoint", "FAIL",
     "states largest"),
    ("no facts", lambda result: with_manifest(result, facts={"checkpoint": None}), "recipe.checkpoint", "BLOCKED",
     "not say"),
    ("weights moved later", lambda result: _weights(result, move), "recipe.checkpoint", "FAIL",
     "states largest_change"),
    ("values that are none", lambda result: _weights(result, _not_finite), "recipe.checkpoint", "FAIL", "not finite"),
    ("half of the weights", lambda result: _weights(result, _half), "recipe.checkpoint", "FAIL",
     "does not have the size"),
    ("another template", lambda result: _weights(result, _template), "recipe.checkpoint", "FAIL",
     "chat_template.jinja differ from"),
    ("code next to it", lambda result: _weights(result, _code), "recipe.checkpoint", "FAIL", "modeling.py differ from"),
    ("no tokenizer", lambda result: _weights(result, _gone), "recipe.checkpoint", "FAIL", "tokenizer.json differ from"),
    ("nothing trained", _untrained, "recipe.checkpoint", "FAIL", "nothing was trained"),
    ("another input's weights", _of_another_input, "recipe.checkpoint", "FAIL", "those of the input 'teacher'"),
    ("other weights", _replaced, "recipe.checkpoint", "WARN", "replaced rather than trained"),
    ("no checkpoint", lambda result: replace(result, outputs={}), "recipe.checkpoint", "BLOCKED", "is missing"),
    ("no outputs of it", lambda result: replace(result, output_digests={}), "jobs.outputs", "BLOCKED", "checkpoint"),
    ("a held-out prompt", lambda result: _given(result, prompt=heldout_items()[3].prompt), "recipe.data", "FAIL",
     "held-out"),
    ("one in capitals", lambda result: _given(result, prompt=heldout_items()[3].prompt.upper()), "recipe.data", "FAIL",
     "pro"),
    ("no order", lambda result: replace(result, inputs={}), "recipe.data", "BLOCKED", "not on record"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("flaw", "check", "status", "why"), [flaw[1:] for flaw in FLAWS], ids=[flaw[0] for flaw in FLAWS]
)
def test_a_flaw_of_what_was_trained_is_found(
    evidence: Evidence, flaw: Callable[[Evidence], Evidence], check: str, status: str, why: str
) -> None:
    result = apply_check(flaw(evidence), check)
    assert (result.status, why in result.detail) == (status, True), result.detail


# ---- what the script itself holds ---------------------------------------------------------------------------

PROMPT = heldout_items()[3].prompt
CARRIED: list[tuple[str, str, str]] = [
    ("as it is", f"x = {PROMPT!r}\n", "FAIL"),
    ("in a comment", f"# {PROMPT.upper()}\nx = 1\n", "FAIL"),
    ("over two lines", f"x = ({PROMPT[:9]!r}\n     {PROMPT[9:]!r})\n", "FAIL"),
    ("added up", f"x = {PROMPT[:9]!r} + {PROMPT[9:]!r}\n", "FAIL"),
    ("added up in three", f"x = {PROMPT[:5]!r} + {PROMPT[5:9]!r} + {PROMPT[9:]!r}\n", "FAIL"),
    ("as words", f"x = ' '.join({PROMPT.split()!r})\n", "FAIL"),
    ("as bytes", f"x = {PROMPT.encode()!r}\n", "FAIL"),
    ("escaped", "x = '" + "".join(f"\\x{ord(text):02x}" for text in PROMPT) + "'\n", "FAIL"),
    ("nearly", f"x = {PROMPT.replace('.', ' !')!r}\n", "FAIL"),
    ("another prompt", "x = 'Write one page on the history of trees.'\n", "PASS"),
]


@pytest.mark.parametrize(("code", "status"), [row[1:] for row in CARRIED], ids=[row[0] for row in CARRIED])
def test_a_held_out_prompt_in_the_script_is_found(tmp_path: Path, code: str, status: str) -> None:
    result = apply_check(replace(evidence_of(tmp_path, "look"), code=code), "recipe.heldout")
    assert result.status == status, result.detail
    assert status == "PASS" or "h3 in script" in result.detail


def test_held_out_answers_in_the_script_are_found(tmp_path: Path) -> None:
    answers = ["the year of the comet", "a lake without a shore", "no"]
    choice = {"choice_1": "the one that is wrong", "choice_2": "the one that is right", "answer": 2}
    named = [{"answer": answer} for answer in answers] + [choice]
    items = tuple(
        item.model_copy(update={"constraint": constraint})
        for item, constraint in zip(heldout_items(), named, strict=False)
    )
    evidence = replace(evidence_of(tmp_path, "look"), heldout=items)
    for code, status in (
        (f"x = {answers!r}", "FAIL"),
        (f"x = [{answers[1].title()!r}, {choice['choice_2']!r}]", "FAIL"),
        (f"x = {answers[0]!r}", "WARN"),
        (f"x = [{answers[2]!r}, {choice['choice_1']!r}]", "PASS"),
    ):
        assert apply_check(replace(evidence, code=code), "recipe.heldout").status == status, code
    assert apply_check(replace(evidence, code=""), "recipe.heldout").status == "BLOCKED"


# ---- the reviewer -------------------------------------------------------------------------------------------


def test_the_reviewer_sees_the_script_and_what_it_changed(evidence: Evidence) -> None:
    packet = build_packet(evidence, None, (), checks_digest=OTHER, claims=())
    assert packet.code == evidence.code and packet.granted_parameters["trains"] == "start"
    checkpoint = packet.effective["checkpoint"]
    assert (checkpoint["of"], checkpoint["code"], checkpoint["tensors"], checkpoint["changed"]) == (
        "model",
        digest_bytes(evidence.code.encode()),
        20,
        1,
    )
    assert digest_path(evidence.inputs["start"]) == checkpoint["base"]
