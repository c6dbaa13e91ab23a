"""A task in a file next to the spec: registered with its text, run by its digest, its errors told with their line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from reviews.checks.definition import run_guarded
from reviews.checks.measuring_code import measuring_code, measuring_files
from reviews.stages.evaluation.scorer_checks import check_admission
from sessions.pods.install import bundle_of
from sessions.run.signed_specs import trust_spec
from specs.loading.loading import load_spec
from specs.loading.stored_spec import read_resolved
from specs.session.session_spec import ResolvedSpec
from specs.stages.base.artifacts import Item
from specs.system import plugins
from specs.system.confinement import bubblewrap, task_file, verifier_process
from specs.system.confinement.verifier_process import describe_task
from specs.system.digests import digest_file
from specs.system.errors import PluginFault, SpecError
from testing.factories.task_files import GOOD, TASK, spec_with
from testing.fixtures.sandbox import needs_sandbox
from training.rules.tasks import verifier, worked_example
from training.rules.tasks.form import plugin_task
from training.rules.tasks.verifier_cases import cases_of

ITEM = Item(id="i1", group="g", kind="k", prompt="Say one.", constraint={"due": "yes"})


def list_problems(folder: Path, code: str, *changes: tuple[str, str]) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load_spec(spec_with(folder, code, *changes))
    return [str(problem).removeprefix(f"{folder}/") for problem in caught.value.problems]


@needs_sandbox
def test_it_is_registered_with_its_text_and_judges_answers(tmp_path: Path) -> None:
    resolved = load_spec(spec_with(tmp_path, GOOD))
    assert resolved.spec.task == task_file.pin_task("./verify.py", GOOD) and resolved.task_text == GOOD
    judge = verifier(resolved.spec.task)
    assert judge(ITEM, "1").passed and not judge(ITEM, "2").passed and not judge(ITEM, "one").passed
    assert [case.good for case in cases_of(resolved.spec.task)] == [True] * 3 + [False] * 3
    before = resolved.registration()
    other = load_spec(spec_with(tmp_path, GOOD.replace("== 1", "== 2")))
    assert other.registration() != before and not verifier(other.spec.task)(ITEM, "1").passed
    # Two texts of one path in one process: each name runs its own.
    assert verifier(resolved.spec.task)(ITEM, "1").passed


@needs_sandbox
def test_whoever_reads_the_registered_spec_can_run_it_without_the_file(tmp_path: Path) -> None:
    resolved = load_spec(spec_with(tmp_path, GOOD))
    trust_spec(resolved, sandbox=True)
    (tmp_path / "resolved.json").write_bytes(resolved.canonical())
    (tmp_path / "verify.py").unlink()
    code = (
        "import sys; from pathlib import Path; from specs.loading.stored_spec import read_resolved\n"
        "from specs.stages.base.artifacts import Item; from training.rules.tasks import verifier\n"
        "spec = read_resolved(Path(sys.argv[1]).read_text()).spec\n"
        "item = Item(id='i', group='g', kind='k', prompt='p', constraint={})\n"
        "print(verifier(spec.task)(item, '1').passed, verifier(spec.task)(item, '2').passed)"
    )
    command = [sys.executable, "-P", "-c", code, str(tmp_path / "resolved.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


@needs_sandbox
def test_another_text_than_the_registered_one_is_refused(tmp_path: Path) -> None:
    values: dict[str, Any] = load_spec(spec_with(tmp_path, GOOD)).model_dump(mode="json")
    for text in (GOOD + "\n", None):
        with pytest.raises(ValidationError, match="not the registered one"):
            ResolvedSpec.model_validate(values | {"task_text": text}, strict=False)
    with pytest.raises(KeyError):
        plugin_task(f"./nobody.py@sha256:{'0' * 64}")


@needs_sandbox
def test_a_change_of_the_file_is_another_measuring_code(tmp_path: Path) -> None:
    resolved = load_spec(spec_with(tmp_path, GOOD))
    before = measuring_code(resolved)
    assert "task ./verify.py" in measuring_files(resolved) and "task ./verify.py" not in measuring_files()
    assert measuring_code(read_resolved(resolved.canonical())) == before
    (tmp_path / "verify.py").write_text(GOOD + "\n", encoding="utf-8")
    assert measuring_code(resolved) != before
    (tmp_path / "verify.py").unlink()
    assert measuring_files(resolved)["task ./verify.py"] == "missing"


@needs_sandbox
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def verify(item, answer)\n    return True\n", "verify.py:1:25: not valid Python: expected ':'"),
        ("x = 1\ny = x.z\n" + GOOD, "verify.py:2:1: cannot be loaded: AttributeError: 'int' object has no attribute"),
        ("import sys\nsys.exit(0)\n", "verify.py:2:1: cannot be loaded: SystemExit: 0"),
        ("import torch\n" + GOOD, "verify.py:1:1: cannot be loaded: ImportError: it imports torch"),
        (
            "import rules\n" + GOOD,
            "verify.py:1:1: cannot be loaded: ModuleNotFoundError: No module named 'rules'; it may",
        ),
        ("x = 1\nverify = True\n", "verify.py:2:1: has no function verify(item, answer)"),
        (
            "\ndef verify(item):\n    pass\n",
            "verify.py:2:1: its function verify(item) cannot be called as verify(item, an",
        ),
        (GOOD + "\n\ndef known_answers(n):\n    pass\n", "verify.py:15:1: its function known_answers(n) cannot be"),
        (GOOD + "\nworked_example = 1\n", "verify.py:14:1: has no function worked_example(item)"),
        (
            GOOD.replace("    return int", "  return int").replace("def v", "\n  def v"),
            "verify.py:5:2: not valid Python",
        ),
        ("\x00", "verify.py:1:1: not valid Python"),
        ("KEY = 'sk-proj-" + "aB3" * 16 + "'\n" + GOOD, "verify.py:1:8: here begins a secret"),
    ],
)
def test_an_error_in_the_file_is_one_problem_with_its_line(
    tmp_path: Path, code: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    results = list_problems(tmp_path, code)
    assert len(results) == 1 and results[0].startswith(expected), results


@needs_sandbox
def test_a_file_that_hangs_is_one_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "LOAD_SECONDS", 0.2)
    results = list_problems(tmp_path, "import time\ntime.sleep(3)\n")
    assert len(results) == 1 and "it takes more than 0.2 s" in results[0], results


@needs_sandbox
def test_it_goes_to_a_pod_with_the_spec(tmp_path: Path) -> None:
    path = spec_with(tmp_path, GOOD)
    assert bundle_of(path, load_spec(path)).files["verify.py"] == (tmp_path / "verify.py").resolve()


@needs_sandbox
def test_what_the_spec_says_of_it_is_checked(tmp_path: Path) -> None:
    (missing,) = list_problems(tmp_path, GOOD, (TASK[0], "task: ./other.py"))
    assert (
        missing.endswith(f"(paths start from the spec's folder {tmp_path})")
        and "file './other.py' does not exist" in missing
    )
    pin = f"sha256:{'0' * 64}"
    (changed,) = list_problems(tmp_path, GOOD, (TASK[0], f"task: ./verify.py@{pin}"))
    assert "'./verify.py' has the digest sha256:" in changed and f"the spec registers {pin}" in changed
    (form,) = list_problems(tmp_path, GOOD, (TASK[0], "task: /verify.py"))
    assert "a Python file next to the spec: './FILE.py'" in form
    bare = GOOD.replace("def worked_example", "def other")
    assert load_spec(spec_with(tmp_path, GOOD)).task_text == GOOD
    (without,) = list_problems(tmp_path, bare)
    assert "task ./verify.py has no worked example" in without


READS = """
import sys
from pathlib import Path
from specs.loading.stored_spec import read_resolved
from training.rules.tasks import verifier
verifier(read_resolved(Path(sys.argv[1]).read_text()).spec.task)
"""


def read_elsewhere(path: Path) -> subprocess.CompletedProcess[str]:
    """Read a registered spec in another process, and ask for its verifier."""
    command = [sys.executable, "-c", READS, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@needs_sandbox
def test_reading_a_strangers_run_runs_none_of_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is in the trail: anyone who audits an export would run what its author wrote."""
    mark = tmp_path / "it-ran"
    registered = tmp_path / "resolved.json"
    resolved = load_spec(spec_with(tmp_path, GOOD))
    registered.write_bytes(resolved.canonical())
    trust_spec(resolved, sandbox=True)
    # Code of a task runs in bubblewrap and can leave no mark; that it was started does.
    (tmp_path / "bwrap").write_text(f'#!/bin/sh\ntouch {mark}\nexec {bubblewrap.find_program()} "$@"\n')
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    # Anyone who named the file themselves may judge with it in every later process.
    assert read_elsewhere(registered).returncode == 0 and mark.exists()
    mark.unlink()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "a-stranger"))
    refused = read_elsewhere(registered)
    assert "no spec that was checked here names it" in refused.stderr and refused.returncode != 0
    assert not mark.exists()


ANSWERS = """
from specs.stages.base.artifacts import Item

def verify(item, answer):
    return VERDICT

def worked_example(item):
    return "Say one.", "1"

def known_answers():
    return [(Item(id="a", group="g", kind="k", prompt="p", constraint={}), text, good) for text, good in KNOWN]
"""
BOTH = [("1", True), ("one", True), ("uno", True), ("2", False), ("3", False), ("4", False)]


@needs_sandbox
@pytest.mark.parametrize(
    ("verdict", "known", "status", "output"),
    [
        ("answer in ('1', 'one', 'uno')", BOTH, "PASS", "judges all 6 known answers right"),
        ("True", BOTH, "FAIL", "says yes to all 6 known answers, right and wrong: let verify(item, answer) return"),
        ("False", BOTH, "FAIL", "says no to all 6 known answers, right and wrong: let verify(item, answer) return"),
        (
            "True",
            BOTH[:3],
            "BLOCKED",
            "has 3 right and 0 wrong known answers, which is too few: let known_answers() ret",
        ),
        ("False", BOTH[3:], "BLOCKED", "has 0 right and 3 wrong known answers, which is too few"),
        ("len(answer) < 9 and answer < '2'", BOTH[:1] + BOTH[3:], "BLOCKED", "has 1 right and 3 wrong known answers"),
        ("answer == '1'", BOTH[:1] * 3 + BOTH[3:], "BLOCKED", "has 1 right and 3 wrong known answers"),
        ("True", [], "BLOCKED", "has 0 right and 0 wrong known answers"),
    ],
)
def test_a_verifier_is_admitted_on_known_answers_of_both_labels(
    tmp_path: Path, verdict: str, known: list[tuple[str, bool]], status: str, output: str
) -> None:
    """One right answer alone would admit ``return True``, and one given three times is one."""
    resolved = load_spec(spec_with(tmp_path, ANSWERS.replace("VERDICT", verdict).replace("KNOWN", repr(known))))
    outcome = run_guarded(lambda: check_admission(resolved.spec, resolved.spec.task, {}))
    assert (outcome.status, output in outcome.detail) == (status, True), outcome
    if status == "BLOCKED":
        assert "(item, answer, right) for 3 right (True) and 3 wrong (False) answers or more" in outcome.detail


@needs_sandbox
@pytest.mark.parametrize(
    ("broken", "output"),
    [
        (GOOD.replace("    return int(answer) == 1", "    return item.constraint['gone'] == 1"), "KeyError: 'gone'"),
        (
            GOOD.replace("    return [(item,", "    {}['gone']\n    return [(item,"),
            "verify.py:12: its known_answers breaks: KeyError: 'gone'",
        ),
    ],
)
def test_a_verifier_that_breaks_is_not_called_one_without_known_answers(
    tmp_path: Path, broken: str, output: str
) -> None:
    resolved = load_spec(spec_with(tmp_path, broken))
    with pytest.raises((KeyError, PluginFault)) as caught:
        check_admission(resolved.spec, resolved.spec.task, {})
    assert "no known answers" not in str(caught.value)
    assert output in f"{type(caught.value).__name__}: {caught.value}"


@needs_sandbox
@pytest.mark.parametrize(
    ("broken", "output"),
    [
        (GOOD.replace("    return int(answer) == 1", "    return 'yes'"), "./verify.py:4: its verifier returns a str"),
        (
            GOOD.replace("    return int(answer) == 1", "    there = 1\n    return there.gone"),
            "./verify.py:6: its verifier breaks on item 'i1': AttributeError",
        ),
    ],
)
def test_a_verifier_that_does_not_do_its_part_is_reported_with_its_line(
    tmp_path: Path, broken: str, output: str
) -> None:
    resolved = load_spec(spec_with(tmp_path, broken))
    with pytest.raises(PluginFault) as caught:
        verifier(resolved.spec.task)(ITEM, "1")
    assert str(caught.value).startswith(output)


BESIDE = {
    "open": "open('table.json')",
    "its own place": "open(__file__.replace('verify.py', 'table.json'))",
    "a module": "__import__('table_of_answers')",
    "pathlib": "__import__('pathlib').Path('data', 'table.json').read_text()",
}


@needs_sandbox
@pytest.mark.parametrize("statement", BESIDE.values(), ids=BESIDE)
@pytest.mark.parametrize("indent", ["", "    "], ids=["when loaded", "when asked"])
def test_a_verifier_that_needs_a_file_next_to_it_is_refused_with_the_reason(
    tmp_path: Path, indent: str, statement: str
) -> None:
    (tmp_path / "table.json").write_text("{}", encoding="utf-8")
    (tmp_path / "table_of_answers.py").touch()
    code = GOOD.replace("    return int(answer) == 1", f"    {statement}\n    return int(answer) == 1")
    if not indent:
        code = f"{statement}\n{GOOD}"
    with pytest.raises((SpecError, PluginFault)) as caught:
        resolved = load_spec(spec_with(tmp_path, code))
        verifier(resolved.spec.task)(ITEM, "1")
    assert "it may import installed packages, and reads no other file, since none is registered: write" in str(
        caught.value
    )
    assert "verify.py:" in str(caught.value)


@needs_sandbox
def test_a_known_answer_that_raises_is_a_no_where_it_is_wrong_and_a_fault_where_it_is_right(tmp_path: Path) -> None:
    """``int("one")`` raises ValueError; a rule that raises it for right answers has a typo, or wrong labels."""
    wrong = GOOD.replace('("1", " 1", "1 ", "2", "10", "-1")', '("1", " 1", "1 ", "2", "3", "one", "")')
    resolved = load_spec(spec_with(tmp_path, wrong))
    assert check_admission(resolved.spec, resolved.spec.task, {}).status == "PASS"
    (tmp_path / "other").mkdir()
    right = wrong.replace('text.strip() == "1")', 'text.strip() in ("1", "one"))')
    resolved = load_spec(spec_with(tmp_path / "other", right))
    outcome = run_guarded(lambda: check_admission(resolved.spec, resolved.spec.task, {}))
    assert outcome.status == "ERROR"
    assert "verify.py:5: its verifier breaks on the known right answer 'one'" in outcome.detail


@needs_sandbox
@pytest.mark.parametrize("answer", ["(None, '1', True)", "(item, 1, True)", "(item, '1', 'yes')", "(item, '1')", "'1'"])
def test_known_answers_of_another_form_are_reported(tmp_path: Path, answer: str) -> None:
    code = GOOD.replace("    return [(item, ", f"    return [{answer}] + [(item, ")
    resolved = load_spec(spec_with(tmp_path, code))
    outcome = run_guarded(lambda: check_admission(resolved.spec, resolved.spec.task, {}))
    assert outcome.status == "ERROR" and "which is not (Item, text, True or False)" in outcome.detail


def test_a_task_that_no_one_brings_is_reported_with_the_way_to_write_a_file(tmp_path: Path) -> None:
    results = list_problems(tmp_path, GOOD, ("task: format_instructions", "task: verify"))
    assert "unknown task 'verify'" in results[0] and "a file next to the spec is written ./verify.py" in results[0]


SHAPED = """
from pydantic import BaseModel, ConfigDict

class Item(BaseModel):
    model_config = ConfigDict(extra="forbid")
    prompt: str
    keyword: str
    count: int

def verify(item, answer):
    return answer.count(item.keyword) == item.count and item.prompt != answer

def worked_example(item):
    return item.prompt, item.keyword * item.count

def known_answers():
    item = Item(prompt="p", keyword="elm", count=2)
    return [(item, text, "elm elm" in text) for text in ("elm elm", "elm elm.", "an elm elm", "elm", "", "oak")]
"""


def shaped(folder: Path, code: str, *constraints: str) -> Path:
    """Write a spec whose items have these constraints, as JSON, in turn."""
    path = spec_with(folder, code)
    for name in ("heldout.jsonl", "prompts.jsonl"):
        lines = [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]
        for number, line in enumerate(lines):
            line["constraint"] = json.loads(constraints[number % len(constraints)])
        (folder / name).write_text("".join(f"{json.dumps(item)}\n" for item in lines), encoding="utf-8")
    digest = digest_file(folder / "heldout.jsonl")
    text = re.sub(r"sha256:[0-9a-f]{64}", digest, path.read_text(encoding="utf-8"))
    path.write_text(text, encoding="utf-8")
    return path


@needs_sandbox
def test_a_task_may_say_which_fields_its_items_have(tmp_path: Path) -> None:
    resolved = load_spec(shaped(tmp_path, SHAPED, '{"keyword": "elm", "count": 2}'))
    item = Item(id="i1", group="g", kind="k", prompt="Say it.", constraint={"keyword": "oak", "count": 1})
    assert verifier(resolved.spec.task)(item, "an oak").passed and not verifier(resolved.spec.task)(item, "elm").passed
    assert worked_example(resolved.spec.task, item) == ("Say it.", "oak")
    assert [(case.item.constraint, case.good) for case in cases_of(resolved.spec.task)][:1] == [
        ({"keyword": "elm", "count": 2}, True)
    ]
    assert check_admission(resolved.spec, resolved.spec.task, {}).status == "PASS"
    # A row that does not fit is not a wrong answer.
    with pytest.raises(PluginFault, match="item 'i1' has not the fields that its Item asks for"):
        verifier(resolved.spec.task)(item.model_copy(update={"constraint": {"keyword": "oak"}}), "oak")


@needs_sandbox
def test_a_row_with_other_fields_is_a_problem_with_its_line(tmp_path: Path) -> None:
    path = shaped(tmp_path, SHAPED, '{"keyword": "elm", "count": 2}', '{"keyword": "elm", "count": "many", "more": 1}')
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    results = [str(problem).removeprefix(f"{tmp_path}/") for problem in caught.value.problems]
    assert [text.partition(" ")[0] for text in results if text.startswith("heldout")][:2] == ["heldout.jsonl:2:1:"] * 2
    assert any("prompts.jsonl:2:1: count: Input should be a valid integer" in text for text in results), results
    assert any("more: Extra inputs are not permitted" in text and "in its Item" in text for text in results), results


@needs_sandbox
def test_an_imported_item_is_no_form_of_its_own(tmp_path: Path) -> None:
    name = load_spec(spec_with(tmp_path, GOOD)).spec.task
    assert "Item" in GOOD and not describe_task(name).own_items
    assert describe_task(load_spec(shaped(tmp_path, SHAPED, '{"keyword": "elm", "count": 2}')).spec.task).own_items


@needs_sandbox
def test_limits_are_registered(tmp_path: Path) -> None:
    usual = load_spec(spec_with(tmp_path, GOOD))
    limited = load_spec(spec_with(tmp_path, GOOD, (TASK[0], f"{TASK[1]}\nverifier: {{seconds: 2, memory_mb: 256}}")))
    assert limited.spec.model_dump(mode="json")["verifier"] == {
        "seconds": 2.0, "memory_mb": 256, "sandbox": True, "builder_reads": False
    }  # fmt: skip
    assert limited.registration() != usual.registration()
    assert task_file.limits_of(limited.spec.task).memory_mb == 256
    load_spec(spec_with(tmp_path, GOOD))
    assert task_file.limits_of(usual.spec.task).memory_mb == 512


@needs_sandbox
def test_heldout_items_may_not_lie_where_the_sandbox_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = bubblewrap.this_host()
    assert host is not None
    shows = host._replace(environment=(*host.environment, str(tmp_path)))
    monkeypatch.setattr(bubblewrap, "this_host", lambda: shows)
    (result,) = list_problems(tmp_path, GOOD)
    assert "lie in a folder that the verifier's sandbox shows" in result


def test_without_a_sandbox_the_spec_has_no_task_unless_it_allows_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier_process.end_all()
    monkeypatch.setattr(bubblewrap, "this_host", lambda: None)
    with pytest.raises(PluginFault, match="would run without a sandbox") as caught:
        load_spec(spec_with(tmp_path, GOOD))
    assert "verifier: {sandbox: false}" in caught.value.hint
    path = spec_with(tmp_path, GOOD, (TASK[0], f"{TASK[1]}\nverifier: {{sandbox: false}}"))
    for unconfined in ("never", "trusted"):
        with pytest.raises(PluginFault, match="would run without a sandbox"):
            load_spec(path, unconfined=unconfined)
    resolved = load_spec(path, unconfined="named")
    outcome = check_admission(resolved.spec, resolved.spec.task, {})
    assert outcome.status == "WARN" and "lets its verifier run without a sandbox" in outcome.detail
