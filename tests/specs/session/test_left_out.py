"""What a spec may leave out: the registration is that of the spec with every value written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from specs.loading.loading import load_spec
from specs.system.digests import digest_file
from testing.factories.spec_files import items, list_problems, write_spec


def rewrite(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def written_once(folder: Path, seed: str = "7") -> Path:
    """Write the spec with its seed at the top alone."""
    path = write_spec(folder)
    text = path.read_text(encoding="utf-8").replace(", seed: 7}", "}").replace("  seeds: [7]\n", "")
    return rewrite(path, text.replace("name: small\n", f"name: small\nseed: {seed}\n"))


def test_one_seed_at_the_top_registers_what_a_seed_in_every_stage_registers(tmp_path: Path) -> None:
    everywhere = load_spec(write_spec(tmp_path))
    once = load_spec(written_once(tmp_path))
    assert once.registration() == everywhere.registration()
    assert {stage.parameters.seed for stage in once.spec.stages} == {7}
    assert load_spec(written_once(tmp_path, "8")).registration() != everywhere.registration()


def test_a_stage_without_parameters_inherits_the_seed_too(tmp_path: Path) -> None:
    path = written_once(tmp_path)
    text = path.read_text(encoding="utf-8").replace("    parameters: {learning_rate: 1e-5, epochs: 2}\n", "")
    text = text.replace("    ranges:\n      learning_rate: {min: 1e-6, max: 1e-4}\n", "")
    assert load_spec(rewrite(path, text)).spec.stage("train").parameters.seed == 7


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("epochs: 2", "epochs: 2, seed: 9", "48:56: stages[2].parameters.seed: stage 'train': this is 9, the spec"),
        ("  n: 3\n", "  n: 3\n  seeds: [4]\n", "24:3: analysis.seeds: these are [4], the spec's seed is 7"),
        ("seed: 7", "seed: seven", "3:7: seed: seed must be a whole number from 0 to 2147483647, got 'seven'"),
        ("seed: 7", "seed: true", "3:7: seed: seed must be a whole number"),
        ("seed: 7", "seed: -1", "3:7: seed: seed must be a whole number"),
        ("seed: 7", "seed: 2147483648", "3:7: seed: seed must be a whole number"),
        ("seed: 7", "sead: 7", "3:1: sead: unknown key 'sead' (did you mean 'seed'?)"),
        ("seed: 7\n", "", "1:1: seed: 'seed' is missing (one seed for the analysis and all stages: seed: 7)"),
        ("parameters: {probe_items: 2}", "parameters: 4", "63:17: stages[4].parameters: stage 'ship': "),
    ],
)
def test_a_wrong_seed_is_one_problem_at_its_place(tmp_path: Path, old: str, new: str, expected: str) -> None:
    path = written_once(tmp_path)
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    (problem,) = list_problems(rewrite(path, text.replace(old, new)))
    assert problem.startswith(expected)


def test_a_wrong_seed_is_reported_together_with_what_else_is_wrong(tmp_path: Path) -> None:
    path = written_once(tmp_path, "x")
    assert len(list_problems(rewrite(path, path.read_text(encoding="utf-8").replace("alpha: 0.05", "alpha: 5")))) == 2


# ---- the constitution -------------------------------------------------------------------------------------------


def test_a_spec_whose_stages_read_no_constitution_names_none(tmp_path: Path) -> None:
    resolved = load_spec(write_spec(tmp_path, ("constitution: constitution.yaml\n", "")))
    assert resolved.constitution_digest is None


def test_a_stage_that_reads_one_needs_it(tmp_path: Path) -> None:
    reads = ("prompts: data.prompts}", "prompts: constitution}")
    missing = "the spec names no constitution (write constitution: FILE.yaml at the top of the spec)"
    (message,) = list_problems(write_spec(tmp_path, reads, ("constitution: constitution.yaml\n", "")))
    assert message == f"35:37: stages[1].inputs.prompts: stage 'sample': {missing}"
    (other,) = list_problems(write_spec(tmp_path, reads))
    assert "needs items, 'constitution' is the constitution" in other
    assert list_problems(write_spec(tmp_path, ("constitution: constitution.yaml", "constitution: gone.yaml")))[
        0
    ].startswith("5:15: constitution: file 'gone.yaml' does not exist")


# ---- digests ----------------------------------------------------------------------------------------------------


UNPINNED = ("heldout.jsonl\n  digest: HELDOUT", "heldout.jsonl")


def test_a_digest_that_is_left_out_is_registered_as_the_file_is(tmp_path: Path) -> None:
    pinned = load_spec(write_spec(tmp_path))
    path = write_spec(tmp_path, UNPINNED)
    assert load_spec(path).registration() == pinned.registration()
    (tmp_path / "heldout.jsonl").write_text(items("other", 3), encoding="utf-8")
    changed = load_spec(path)
    assert changed.spec.heldout.digest == digest_file(tmp_path / "heldout.jsonl") != pinned.spec.heldout.digest
    assert changed.registration() != pinned.registration()


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ("gone.jsonl", "15:9: heldout.path: file 'gone.jsonl' does not exist"),
        ("4", "15:9: heldout.path: path must be text, got 4"),
        ('"a\\0b"', "15:9: heldout.path: the text holds a NUL"),
    ],
)
def test_a_file_without_a_digest_that_cannot_be_read_is_one_problem(tmp_path: Path, new: str, expected: str) -> None:
    (message,) = list_problems(write_spec(tmp_path, ("heldout.jsonl\n  digest: HELDOUT", new)))
    assert message.startswith(expected)


def test_a_folder_as_held_out_split_has_to_be_a_saved_dataset(tmp_path: Path) -> None:
    (message,) = list_problems(write_spec(tmp_path, ("heldout.jsonl\n  digest: HELDOUT", ".")))
    assert "the folder is not a saved dataset" in message


def test_a_fifo_as_held_out_split_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (message,) = list_problems(write_spec(tmp_path, ("heldout.jsonl\n  digest: HELDOUT", "pipe")))
    assert "'pipe' is not a file" in message


BUDGET = "budget: {max_cost_usd: 5, machine_usd_per_hour: 0, max_hours: 12}"
ANALYSIS = ("  alpha: 0.05\n", "  n: 3\n", "  baseline: base\n", "  treatment: tuned\n")


def shortest(folder: Path, *, without: tuple[str, ...] = ANALYSIS, budget: str = "") -> Path:
    """Write the spec with the lines of its analysis and the budget left out."""
    path = write_spec(folder)
    text = path.read_text(encoding="utf-8")
    for line in without:
        assert text.count(line) == 1, line
        text = text.replace(line, "")
    lines = text.split("\n")
    (at,) = (number for number, line in enumerate(lines) if line.startswith("budget:"))
    end = next(n for n in range(at + 1, len(lines)) if not lines[n].startswith(" "))
    lines[at:end] = [budget] if budget else []
    return rewrite(path, "\n".join(lines))


def test_analysis_and_budget_are_filled_in_as_if_written(tmp_path: Path) -> None:
    short, whole = load_spec(shortest(tmp_path)), load_spec(shortest(tmp_path, without=(), budget=BUDGET))
    assert short.registration() == whole.registration()
    partly = load_spec(shortest(tmp_path, budget="budget: {max_cost_usd: 7}"))
    assert partly.spec.budget.max_cost_usd == 7 and partly.spec.budget.max_hours == 12


def test_what_a_machine_that_is_not_ones_own_costs_is_never_assumed(tmp_path: Path) -> None:
    path = shortest(tmp_path)
    text = path.read_text(encoding="utf-8")
    (problem,) = list_problems(rewrite(path, f"launcher: ray\n{text}"))
    assert "1:1: budget: 'budget' is missing (jobs on other machines need one" in problem
    output = "budget: {max_cost_usd: 7}"
    (problem,) = list_problems(rewrite(path, f"{output}\nlauncher: ray\n{text}"))
    assert "budget.machine_usd_per_hour: 'machine_usd_per_hour' is missing (what the machine costs" in problem
    (stage,) = (line for line in text.split("\n") if "name: train" in line)
    indent = " " * (len(stage) - len(stage.lstrip(" -")))
    (problem,) = list_problems(rewrite(path, text.replace(stage, f"{stage}\n{indent}launcher: ray")))
    assert "budget: 'budget' is missing" in problem


def test_two_stages_to_compare_are_found_and_three_are_not(tmp_path: Path) -> None:
    path = shortest(tmp_path)
    text = path.read_text(encoding="utf-8").rstrip("\n")
    third = (
        "  - {name: third, kind: evaluate, inputs: {model: train.checkpoint, items: heldout}, parameters: {seed: 7}}"
    )
    problems = list_problems(rewrite(path, f"{text}\n{third}\n"))
    assert [problem.partition(": ")[2].partition(" (")[0] for problem in problems] == [
        "analysis.baseline: 'baseline' is missing",
        "analysis.treatment: 'treatment' is missing",
    ]


def test_a_held_out_split_that_cannot_be_counted_is_one_problem(tmp_path: Path) -> None:
    path = shortest(tmp_path)
    text = path.read_text(encoding="utf-8")
    pinned = next(line for line in text.split("\n") if "digest: sha256" in line)
    for gone in (text, text.replace(f"{pinned}\n", "", 1)):
        (problem,) = list_problems(rewrite(path, gone.replace("heldout.jsonl", "gone.jsonl")))
        assert "file 'gone.jsonl' does not exist" in problem
    rewrite(path, text.replace(f"{pinned}\n", "", 1))
    (tmp_path / "heldout.jsonl").write_text("{\n", encoding="utf-8")
    assert all("heldout.jsonl:1" in problem for problem in list_problems(path))
