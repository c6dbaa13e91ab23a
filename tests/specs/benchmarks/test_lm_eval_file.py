"""A task file of lm-eval as a registered script: what is taken with it, and what is refused with its place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from specs.benchmarks.lm_eval_file import as_script, document_of, files_of, lacking_fields, settings_of
from specs.loading.loading import load_spec
from specs.system.errors import SpecError
from specs.system.home import HOME
from specs.system.yaml.problems import format_loc
from testing.factories.spec_files import problems_of

EXAMPLE = HOME / "docs" / "examples" / "opposites"
TASK = """\
task: sums
output_type: generate_until
doc_to_text: "{{prompt}}"
doc_to_target: !function marks.target
metric_list:
  - metric: !function marks.right
"""


def written(folder: Path, text: str, **beside: str) -> Path:
    for name, other in beside.items():
        (folder / name.replace("_", ".")).write_text(other, encoding="utf-8")
    path = folder / "sums.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def refused(folder: Path, text: str, **beside: str) -> str:
    path = written(folder, text, marks_py="", **beside)
    with pytest.raises(SpecError) as error:
        as_script(path, path.read_bytes(), "sums", 64)
    return str(error.value)


def test_the_file_and_what_it_names_are_one_text(tmp_path: Path) -> None:
    path = written(tmp_path, "include: base.yaml\ntask: sums\n", base_yaml=TASK, marks_py="def right(): ...\n")
    script = as_script(path, path.read_bytes(), "sums", 64)
    files = files_of(script)
    assert files.main == "sums.yaml" and set(files.texts) == {"sums.yaml", "base.yaml", "marks.py"}
    assert files.texts["base.yaml"] == TASK and files.texts["marks.py"] == "def right(): ...\n"
    settings = settings_of(files)
    assert settings["doc_to_target"] == "!function marks.target" and settings["task"] == "sums"
    # What was read is what is registered: an edit of any file changes the text.
    (tmp_path / "marks.py").write_text("def right(): return 1\n", encoding="utf-8")
    assert as_script(path, path.read_bytes(), "sums", 64) != script


def test_a_registered_script_of_another_form_holds_no_task() -> None:
    for text in ("print(1)\n", "MAIN = 'a.yaml'\n", "MAIN = open('x')\nFILES = {}\n"):
        with pytest.raises(ValueError, match=r"holds no task|malformed node"):
            files_of(text)


@pytest.mark.parametrize(
    ("change", "output"),
    [
        (("task: sums", "task: products"), "sums.yaml:1:7: task: the task is 'products', the stage names 'sums'"),
        (("task: sums", "task: [sums, products]"), "is a group or a class of the library"),
        (("task: sums", "class: !function marks.Task\ntask: sums"), "is a group or a class of the library"),
        (("generate_until", "multiple_choice"), "sums.yaml:2:14: output_type: is multiple_choice"),
        (("generate_until", "loglikelihood_rolling"), "kind: perplexity reads texts"),
        (("generate_until", "generate_until\nnum_fewshot: 4"), "sums.yaml:3:14: num_fewshot: 4 worked examples"),
        (("generate_until", "generate_until\ngeneration_kwargs: {max_gen_toks: 65}"), "grants max_new_tokens 64"),
        (("marks.target", "other.target"), "the file 'other.py', which it names, cannot be read"),
        (("task: sums", "include: ../base.yaml\ntask: sums"), "'../base.yaml' is not a file next to this one"),
        (("task: sums", "include: sums.yaml\ntask: sums"), "includes itself"),
        (("task: sums", "task: !!python/name:os.system sums"), "sums.yaml:1:7"),
    ],
)
def test_what_a_job_cannot_provide_is_reported_with_its_place(
    tmp_path: Path, change: tuple[str, str], output: str
) -> None:
    assert change[0] in TASK
    assert output in refused(tmp_path, TASK.replace(*change, 1))


def test_a_secret_in_a_file_that_the_task_names_is_refused_with_its_place(tmp_path: Path) -> None:
    secret = "sk-ant-" + "api03-" + "A1b2C3d4E5" * 4
    path = written(tmp_path, TASK, marks_py=f'\nKEY = "{secret}"\n')
    with pytest.raises(SpecError, match=r"marks\.py:2:8: here begins a secret") as error:
        as_script(path, path.read_bytes(), "sums", 64)
    assert secret not in str(error.value)


def test_the_file_is_read_as_the_library_reads_it(tmp_path: Path) -> None:
    """PyYAML reads yes and no as truth values, and a tag wherever one may stand, with or without a comment."""
    text = (
        TASK.replace("marks.target", "marks.target  # ours")
        + """\
    ignore_case: no
    higher_is_better: Yes
    aggregation: !function marks.mean
  - {metric: exact_match, ignore_case: "no", filter: [!function marks.first, on]}
description: |
  answer: no
  doc: !function marks.none
"""
    )
    path = written(tmp_path, text, marks_py="")
    settings = settings_of(files_of(as_script(path, path.read_bytes(), "sums", 64)))
    first, second = settings["metric_list"]
    assert settings["doc_to_target"] == "!function marks.target" and first["aggregation"] == "!function marks.mean"
    assert (first["ignore_case"], first["higher_is_better"], second["ignore_case"]) == (False, True, "no")
    assert second["filter"] == ["!function marks.first", True]
    assert settings["description"] == "answer: no\ndoc: !function marks.none\n", "text stays text"


@pytest.mark.parametrize("named", ["/abs/marks.target", "../marks.target", "target", "a.b.target"])
def test_a_function_from_elsewhere_is_reported_with_its_place(named: str, tmp_path: Path) -> None:
    output = refused(tmp_path, TASK.replace("marks.target", named))
    assert f"sums.yaml:4:16: doc_to_target: '{named}' is not a function of a file next to this one" in output


DOCUMENTS = [
    document_of({"id": str(n), "group": "g", "kind": "k", "prompt": "p", "constraint": {"answer": "a", "hint": "h"}})
    for n in range(3)
]


@pytest.mark.parametrize(
    ("settings", "output"),
    [
        ({"doc_to_text": "{{question_content}}\n"}, "doc_to_text: reads the field 'question_content', which 3 of 3"),
        (
            {"doc_to_text": "{{prompt}} {{ hints }}"},
            "doc_to_text: reads the field 'hints', which 3 of 3 items have not",
        ),
        ({"doc_to_target": "{{answr}}"}, "doc_to_target: reads the field 'answr'"),
        ({"doc_to_text": "question_content"}, "doc_to_text: reads no field: every item would be asked"),
        ({"doc_to_text": "{{prompt}} {{hint}}", "doc_to_target": "answer", "description": "Be terse."}, ""),
        ({"doc_to_text": "question", "doc_to_target": "{% if more is defined %}{{more}}{% endif %}{{answer}}"}, ""),
        ({"doc_to_text": "{% for one in choices %}{{one}}{% endfor %}", "process_docs": "!function marks.docs"}, ""),
        ({"doc_to_text": "!function marks.ask"}, ""),
        ({"doc_to_text": "{{prompt"}, "doc_to_text: reads no field"),
    ],
)
def test_a_field_that_no_item_has_is_reported(settings: dict[str, str], output: str) -> None:
    results = [f"{format_loc(problem.loc)}: {problem.message}" for problem in lacking_fields(settings, DOCUMENTS)]
    assert [text[: len(output)] for text in results] == ([output] if output else [])


def test_a_field_that_some_items_lack_is_counted() -> None:
    documents = [
        {name: value for name, value in document.items() if name != "hint"} for document in DOCUMENTS[:1]
    ] + DOCUMENTS[1:]
    (problem,) = lacking_fields({"doc_to_text": "{{hint}}"}, documents)
    assert "which 1 of 3 items have not" in problem.message


def test_spec_check_says_which_field_is_missing(tmp_path: Path) -> None:
    folder = tmp_path / "opposites"
    shutil.copytree(EXAMPLE, folder)
    (task,) = folder.glob("opposites.yaml")
    text = task.read_text(encoding="utf-8")
    task.write_text(text.replace("doc_to_text:", 'doc_to_text: "{{questoin}}"\nold_text:'), encoding="utf-8")
    problems = problems_of(folder / "lm_eval.yaml")
    assert any("doc_to_text reads the field 'questoin'" in problem.message for problem in problems), problems
    assert {problem.hint for problem in problems} == {"did you mean 'question'?"}


def test_worked_examples_of_its_own_are_taken(tmp_path: Path) -> None:
    shots = "num_fewshot: 2\nfewshot_config: {sampler: first_n, samples: [{prompt: a, answer: b}]}\n"
    path = written(tmp_path, TASK + shots, marks_py="")
    assert "first_n" in as_script(path, path.read_bytes(), "sums", 64)


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    return shutil.copytree(EXAMPLE, tmp_path / "opposites") / "lm_eval.yaml"


def test_the_example_is_registered_with_its_text(spec: Path) -> None:
    resolved = load_spec(spec)
    before, after = resolved.spec.stage("before"), resolved.spec.stage("after")
    assert before.parameters == after.parameters
    (text,) = resolved.scripts.values()
    assert files_of(text).texts["opposites.yaml"] == (spec.parent / "opposites.yaml").read_text(encoding="utf-8")
    registered = resolved.registration()
    task = spec.parent / "opposites.yaml"
    task.write_text(task.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
    assert load_spec(spec).registration() != registered


@pytest.mark.parametrize(
    ("change", "output"),
    [
        (("    script: opposites.yaml\n", ""), "write script: FILE.yaml"),
        (("script: opposites.yaml", "script: task.py"), "a task of lm-eval is in a file that ends in .yaml"),
        (("{task: opposites,", "{task: other,"), "the task is 'opposites', the stage names 'other'"),
        (('"exact_match,word"', "[exact_match]"), "score"),
        (("primary_metric: lm_eval_accuracy, ", ""), "write primary_metric: lm_eval_accuracy"),
        (("script: opposites.yaml", "script: missing.yaml"), "file 'missing.yaml' does not exist"),
    ],
)
def test_what_is_wrong_is_reported(spec: Path, change: tuple[str, str], output: str) -> None:
    text = spec.read_text(encoding="utf-8")
    assert change[0] in text
    spec.write_text(text.replace(*change, 1), encoding="utf-8")
    results = [str(problem) for problem in problems_of(spec)]
    assert any(output in word for word in results), results


@pytest.mark.parametrize("name", ["lm_eval.yaml", "spec.yaml"])
def test_a_task_may_be_gap_drift_and_paired_test(spec: Path, name: str) -> None:
    """As a registered comparison it is the example itself."""
    path = spec.with_name(name)
    text, items = path.read_text(encoding="utf-8"), (spec.parent / "heldout.jsonl").read_text(encoding="utf-8")
    (spec.parent / "other.jsonl").write_text(
        items.replace('"id": "', '"id": "o-')
        .replace('"group": "', '"group": "o-')
        .replace("the opposite", "a contrary"),
        encoding="utf-8",
    )
    first = text[text.index("  - name: before") : text.index("  - name: tune")].replace("heldout", "data.other")
    then = first.replace("model: model", "model: tune.checkpoint").replace("name: before", "name: after_other")
    text = text.replace("  - name: tune", first.replace("name: before", "name: before_other") + "  - name: tune") + then
    pair = "before: before_other, after: after_other"
    paired = f"{{{pair}, outcome: binary, test: exact_mcnemar, minimum_effect: 0.3}}"
    plan = f"evaluation: {{gap: {{base: [before]}}, drift: [{{{pair}}}], paired: [{paired}]}}\n"
    path.write_text(
        text.replace("stages:\n", f"{plan}stages:\n").replace("train.csv}}", "train.csv}, other: {path: other.jsonl}}"),
        encoding="utf-8",
    )
    resolved = load_spec(path).spec
    assert resolved.evaluation and resolved.evaluation.drift[0].after == resolved.evaluation.paired[0].after
