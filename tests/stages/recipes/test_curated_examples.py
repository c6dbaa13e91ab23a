"""Examples that a script curates: rows of their source, unchanged, and nothing of the held-out split among them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.checks.definition import apply
from reviews.evidence.evidence import Evidence
from reviews.gate.check_list import CHECKS
from sessions.runtime.preflight import design_forecast
from specs.trail.verdict import CheckResult
from testing.factories.evidence_on_disk import evidence_of, examples, heldout_items, resolved_spec, write_rows
from testing.factories.recipe_session import RECIPE, recipe_session
from testing.factories.spec_files import list_problems, write_spec
from testing.fixtures.recipe_process import run
from testing.fixtures.sandbox import needs_sandbox

KEPT = ("recipe.curated", "recipe.overlap", "recipe.groups", "recipe.repeats")
READS = (
    "    inputs: {rows: sample.rows, prompts: data.prompts, model: model}\n    parameters: {",
    "    inputs: {examples: sample.accepted}\n    parameters: {curates: examples, ",
)


def curating(folder: Path, source: list[dict[str, Any]], selected: list[dict[str, Any]]) -> Evidence:
    """Return the evidence of a stage whose script was given some examples and kept others."""
    evidence = evidence_of(folder, "look")
    parameters = evidence.stage.parameters.model_copy(update={"curates": "examples"})
    return replace(
        evidence,
        stage=evidence.stage.model_copy(update={"parameters": parameters}),
        inputs=evidence.inputs | {"examples": write_rows(folder / "source.jsonl", source)},
        outputs=evidence.outputs | {"examples": write_rows(folder / "kept.jsonl", selected)},
    )


def results(evidence: Evidence) -> dict[str, CheckResult]:
    return {check.id: apply(check, evidence, None) for check in CHECKS if check.id in KEPT}


def leaked(**changes: Any) -> dict[str, Any]:
    return examples()[0] | {"prompt": heldout_items()[0].prompt, "group": "other"} | changes


def test_a_selection_without_anything_held_out_passes(tmp_path: Path) -> None:
    checks = results(curating(tmp_path, [*examples(), leaked()], examples()))
    assert {check.status for check in checks.values()} == {"PASS"} and len(checks) == 4
    count = len(examples())
    assert checks["recipe.curated"].detail == f"{count} of the {count + 1} rows of 'examples' were kept"


def test_a_stage_that_curates_nothing_is_not_asked(tmp_path: Path) -> None:
    assert {result.status for result in results(evidence_of(tmp_path, "look")).values()} == {"NOT_APPLICABLE"}


@pytest.mark.parametrize("change", [{"completion": "new"}, {"prompt": "Another."}, {"item": "other"}])
def test_a_row_that_was_changed_is_none_of_its_source(tmp_path: Path, change: dict[str, str]) -> None:
    check = results(curating(tmp_path, examples(), [*examples()[1:], examples()[0] | change]))["recipe.curated"]
    assert (check.status, check.repairable) == ("FAIL", False)
    assert check.detail == f"1 of {len(examples())} curated examples not among the rows of 'examples'"


def test_a_row_twice_where_it_was_once_is_none_of_its_source(tmp_path: Path) -> None:
    checks = results(curating(tmp_path, examples(), [*examples(), examples()[0]]))
    assert checks["recipe.curated"].status == "FAIL" and checks["recipe.repeats"].status != "FAIL"


@pytest.mark.parametrize(
    ("row", "check"),
    [
        (leaked(), "recipe.overlap"),
        (leaked(prompt=f"  {heldout_items()[0].prompt.upper()} "), "recipe.overlap"),
        (examples()[0] | {"completion": heldout_items()[1].prompt}, "recipe.overlap"),
        (examples()[0] | {"group": heldout_items()[0].group}, "recipe.groups"),
    ],
)
def test_what_is_held_out_is_sent_back_with_a_task_in_words(tmp_path: Path, row: dict[str, Any], check: str) -> None:
    result = results(curating(tmp_path, [*examples(), row], [*examples(), row]))[check]
    assert result.status == "FAIL" and result.blocking and result.repairable and result.rows or check == "recipe.groups"
    assert result.required_change is not None and result.required_change.by_builder
    assert result.required_change.text == "curate again without the rows that this check shows"


def test_without_its_files_a_curation_is_blocked(tmp_path: Path) -> None:
    whole = curating(tmp_path, examples(), examples())
    for evidence in (replace(whole, inputs={}), replace(whole, outputs={})):
        assert results(evidence)["recipe.curated"].status == "BLOCKED"


KEEP_ONE = "import os\nopen('examples.jsonl', 'w').write(open(os.environ['INPUTS'] + '/rows').readline())"


@needs_sandbox
def test_a_script_keeps_rows_of_its_input_and_writes_none(tmp_path: Path) -> None:
    session = recipe_session(tmp_path)
    ended = run(session, KEEP_ONE, curates="rows")
    first = (session.run / "made" / "rows.jsonl").read_bytes().splitlines()[0]
    assert ended.code == 0 and ended.files["examples.jsonl"] == first + b"\n", ended.log
    assert "files/examples.jsonl" not in ended.files
    assert ended.manifest.facts["curated"]["kept"] == 1


@needs_sandbox
@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("print('nothing')", "the script left no examples.jsonl"),
        ("open('examples.jsonl', 'w').write('{\"new\": 1}\\n')", "1 rows of examples.jsonl are not rows of 'rows'"),
        (KEEP_ONE.replace(".readline()", ".readline() * 2"), "or are there more often"),
    ],
)
def test_a_script_that_writes_rows_of_its_own_fails(tmp_path: Path, script: str, why: str) -> None:
    ended = run(recipe_session(tmp_path), script, curates="rows")
    assert ended.code != 0 and why in ended.log and "examples.jsonl" not in ended.files


def test_a_spec_names_an_input_of_examples_to_curate(tmp_path: Path) -> None:
    assert resolved_spec(tmp_path, *RECIPE, READS).spec.stage("look").parameters.curates == "examples"
    for text, problem in (
        ("{curates: nothing, ", "the stage has no input 'nothing' to curate"),
        ("{curates: rows, ", "curates 'rows', but 'sample.rows' holds no examples"),
    ):
        changed = (READS[0], READS[0].replace("parameters: {", f"parameters: {text}"))
        (message,) = list_problems(write_spec(tmp_path, *RECIPE, changed))
        assert problem in message


def scraped(folder: Path, *changes: tuple[str, str]) -> dict[str, str]:
    """Return the status of the design checks where a registered file holds a held-out prompt."""
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(folder / "scraped.jsonl", [*examples(), leaked(), leaked(group=heldout_items()[0].group)])
    data = ("  prompts: {path", "  scraped: {path: scraped.jsonl, as: examples}\n  prompts: {path")
    reads = (READS[0], READS[1].replace("sample.accepted", "data.scraped"))
    resolved = resolved_spec(folder, *RECIPE, data, reads, *changes)
    return {check.id: check.status for check in design_forecast(resolved).checks}


def test_a_file_that_is_only_curated_is_judged_as_it_was_curated_and_another_at_the_design(tmp_path: Path) -> None:
    values = scraped(tmp_path / "curated")
    assert (values["design.overlap"], values["design.groups"]) == ("PASS", "PASS")
    trained = (
        "examples: sample.accepted}\n    parameters: {learning",
        "examples: data.scraped}\n    parameters: {learning",
    )
    values = scraped(tmp_path / "trained", trained)
    assert (values["design.overlap"], values["design.groups"]) == ("FAIL", "FAIL")
