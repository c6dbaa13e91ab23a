"""What `init` accepts, `spec check` accepts: data sets by task, language, size and columns."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from specs.loading.loading import load_spec
from testing.fixtures.command_sessions import called
from testing.fixtures.generated_rows import LANGUAGES, TASKS, DataSet, data_sets
from testing.fixtures.sandbox import needs_sandbox

QUICK = [
    DataSet(task, LANGUAGES[place % len(LANGUAGES)], 150 if task in ("rare label", "several") else 66, form)
    for place, (task, form) in enumerate(zip(TASKS, ("jsonl", "csv", "mapped") * 5, strict=False))
]
FEW = ("labels", "instructed", "several", "pairs")
"""In `make test`; the other tasks are in `make test-more`."""


def accepted(data_set: DataSet, folder: Path) -> str:
    """Run `init` and, where it wrote something, `spec check`; return what `init` printed, nothing if it refused."""
    path, options = data_set.write(folder)
    made = called("init", folder / "made", "--data", path, *options)
    if made.returncode:
        assert made.returncode == 2 and not (folder / "made").exists() and "Traceback" not in made.stderr, made
        return ""
    checked = called("spec", "check", folder / "made")
    assert checked.returncode == 0, f"{data_set}: {made.stdout}\n{checked.stdout}\n{checked.stderr}"
    return made.stdout


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.integration
@pytest.mark.parametrize(
    "data_set",
    [data_set if data_set.task in FEW else pytest.param(data_set, marks=pytest.mark.more) for data_set in QUICK],
    ids=str,
)
def test_every_task_is_accepted_and_no_row_vanishes(data_set: DataSet, tmp_path: Path) -> None:
    done = accepted(data_set, tmp_path)
    assert done, data_set
    rows = len(rows_of(tmp_path / "made" / "heldout.jsonl")) + len(rows_of(tmp_path / "made" / "train.jsonl"))
    silent = rows == data_set.size
    # A row that is on neither side is counted and its reason said; several answers to one prompt are one item.
    assert silent or "left out" in done or "one of each is kept" in done or "several right answers" in done, done


EVERY = data_sets()
TENTH = random.Random(1).sample(range(len(EVERY)), len(EVERY) // 10)
"""CI runs these, of every task, in `make test-more`; the rest is nightly."""


@pytest.mark.parametrize(
    "data_set",
    [
        pytest.param(data_set, marks=pytest.mark.more if place in TENTH else pytest.mark.nightly)
        for place, data_set in enumerate(EVERY)
    ],
    ids=str,
)
def test_what_init_accepts_spec_check_accepts(data_set: DataSet, tmp_path: Path) -> None:
    done = accepted(data_set, tmp_path)
    assert done or data_set.size == 24 or data_set.task in ("rare label", "several", "twins"), data_set


def test_one_answer_to_most_prompts_needs_more_rows(tmp_path: Path) -> None:
    path, _ = DataSet("rare label", "en", 66, "jsonl").write(tmp_path)
    done = called("init", tmp_path / "made", "--data", path)
    assert done.returncode == 2 and not (tmp_path / "made").exists()
    assert re.search(r"one answer is right for 7\d% of the prompts", done.stderr), done
    assert re.search(r"about \d+ different prompts would do", done.stderr), done


def test_too_few_groups_are_reported(tmp_path: Path) -> None:
    rows = [{"prompt": f"What is {n} + {n}?", "completion": str(2 * n), "group": f"g{n % 5}"} for n in range(90)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    done = called("init", tmp_path / "made", "--data", path)
    assert done.returncode == 2 and "the rows are of 5 groups, and each of the two parts needs 4" in done.stderr


def test_what_the_gate_rejects_is_not_written(tmp_path: Path) -> None:
    rows = [{"question": f"What is {n} + {n}? (Answer: {2 * n})", "answer": str(2 * n)} for n in range(90)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    done = called("init", tmp_path / "made", "--data", path)
    assert done.returncode == 2 and not (tmp_path / "made").exists()
    assert "`start` would refuse these rows" in done.stderr and "design.answers" in done.stderr
    # A person reads the row, not its id.
    assert "(Answer:" in done.stderr


VERIFY = """
def verify(item, answer):
    return item.constraint["unit"] == "m" and answer.strip() == str(2 * int(item.prompt.split()[2]))
"""
COLUMNS: list[Any] = [
    ("ignored: source", {"source": "web"}, (), ()),
    ("ignored: source", {"source": "web", "tools": "[search]"}, (), ("--drop", "tools")),
    pytest.param("for the verifier alone: unit", {"unit": "m"}, ("--verifier", "verify.py"), (), marks=needs_sandbox),
]
"""What `init` says of a column: the columns, other options, and the option without which it refuses them."""


@pytest.mark.parametrize(("note", "extra", "options", "needed"), COLUMNS)
def test_init_lists_the_columns_that_nothing_reads(
    note: str,
    extra: dict[str, str],
    options: tuple[str, ...],
    needed: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "verify.py").write_text(VERIFY, encoding="utf-8")
    rows = [{"prompt": f"What is {n} + {n}?", "completion": str(2 * n), **extra} for n in range(66)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    command = ("init", "made", "--data", "rows.jsonl", *options)
    if needed:
        refused = called(*command)
        assert refused.returncode == 2 and needed[1] in refused.stderr and not (tmp_path / "made").exists(), refused
    done = called(*command, *needed)
    assert done.returncode == 0 and f"  {note}\n" in done.stdout, done


def test_a_spec_maps_columns_and_check_lists_what_is_ignored(tmp_path: Path) -> None:
    rows = [{"prompt": f"What is {n} + {n}?", "completion": str(2 * n)} for n in range(66)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert called("init", tmp_path / "made", "--data", path).returncode == 0
    spec = tmp_path / "made" / "experiment.yaml"
    plain = load_spec(spec).data_digests
    names = {"prompt": "Frage", "completion": "Antwort", "answer": "Antwort"}
    for file in ("train.jsonl", "heldout.jsonl"):
        renamed = [{names[name]: value for name, value in row.items()} for row in rows_of(spec.parent / file)]
        text = "".join(json.dumps({**row, "source": "web"} if file == "train.jsonl" else row) + "\n" for row in renamed)
        (spec.parent / file).write_text(text, encoding="utf-8")
    refused = called("spec", "check", spec)
    assert refused.returncode == 2 and "its columns are Antwort, Frage" in refused.stderr, refused
    text = spec.read_text(encoding="utf-8")
    text = text.replace("{path: heldout.jsonl}", "{path: heldout.jsonl, columns: {prompt: Frage, answer: Antwort}}")
    mapping = "columns: {prompt: Frage, completion: Antwort}"
    spec.write_text(text.replace("{path: train.jsonl", f"{{path: train.jsonl, {mapping}"), encoding="utf-8")
    done = called("spec", "check", spec)
    assert done.returncode == 0 and "train.jsonl: ignored: source" in done.stdout, done
    assert load_spec(spec).data_digests == plain, "the registered rows are the same"
    listed = json.loads(called("spec", "check", spec, "--json").stdout)
    assert listed["data_notes"] == {"": {"train": ["ignored: source"]}}


@pytest.mark.parametrize("words", [("--columns", "prompt"), ("--columns", "=x"), ("--columns", "prompt=a+")])
def test_a_mapping_of_another_form_is_reported(words: tuple[str, str], tmp_path: Path) -> None:
    path, _ = DataSet("labels", "en", 66, "jsonl").write(tmp_path)
    done = called("init", tmp_path / "made", "--data", path, *words)
    assert done.returncode == 2 and "--columns: invalid mapping" in done.stderr, done
    assert called("init", tmp_path / "made", "--drop", "tools").returncode == 2, "of rows of one's own"
