"""A person's own script in a spec (``script: train.py``): registered with its text, run without any model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reviews.audit.verify import verify_run
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.jobs.sandbox.recipe_job import progress_in
from sessions.runtime.human_actions import amend
from sessions.runtime.wiring import require_machine
from specs.jobs.job_records import Manifest
from specs.loading.stored_spec import read_resolved
from specs.stages.registry import resolve_parameters
from specs.system.digests import digest_bytes, digest_path
from specs.system.errors import BlockedError, UserError
from specs.trail.verdict import Packet
from testing.factories.spec_files import loads, write_spec
from testing.factories.spec_files import problems_of as problems
from testing.factories.trained_recipe import STAGE, TRAINED
from testing.fixtures.collected import collected
from testing.fixtures.command_sessions import called
from testing.fixtures.line_writer import line_writer
from testing.fixtures.quick_session import Silent, drive, open_quick, quick_session
from testing.fixtures.sandbox import needs_sandbox
from tests.stages.recipes.test_recipe_in_session import outcomes
from tests.stages.recipes.test_recipe_training_job import MOVED, RealJobs, numbers

SHOWN = "print('progress 3/4 loss=0.5')\nprint('progress 9/4')\n"
OWN_STAGE = STAGE.replace("allow_code: true", "script: train.py").replace("seed: 7", "seed: 7, requires: [numpy>=1]")
OWN = (("  - name: train\n", f"{OWN_STAGE}  - name: train\n"), *TRAINED[2:])


def with_script(folder: Path, text: str = numbers(MOVED)) -> Path:
    (folder / "train.py").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session whose training is a person's script; what is not a recipe is played."""
    folder = with_script(tmp_path_factory.mktemp("own"), SHOWN + numbers(MOVED))
    run = open_quick(folder, *OWN, model=line_writer(folder / "writer"))
    launcher = RealJobs()
    # It is registered: what the file says afterwards changes nothing.
    (folder / "train.py").write_text("raise SystemExit(1)\n", encoding="utf-8")
    with collected():
        drive(quick_session(run, launcher=launcher))
    launcher.local.poll(run)
    return run


@needs_sandbox
@pytest.mark.integration
def test_it_trains_through_its_gate_without_a_model_and_is_shown_whole(taught: Path) -> None:
    assert outcomes(taught)["look"] == "approve"
    store, bodies = Store(taught / "store"), {entry.key: entry.raw for entry in read_entries(taught / "trail.sqlite")}
    code = digest_bytes((SHOWN + numbers(MOVED)).encode())
    packet = Packet.model_validate(store.get_value(bodies["packet/look.1"]["packet"]))
    assert packet.code == SHOWN + numbers(MOVED) and packet.granted_parameters["code"] == code
    manifest = Manifest.model_validate_json(store.get(bodies["exit/small.look.1"]["manifest"]))
    assert manifest.facts["checkpoint"]["code"] == code and list(manifest.facts["requires"]) == ["numpy"]
    checkpoint = bodies["exit/small.look.1"]["outputs"]["checkpoint"]
    assert digest_path(taught / checkpoint["path"]) == checkpoint["digest"]
    audit = verify_run(taught, "trail.sqlite", "store")
    assert audit.damage == [] and audit.verdict == "verified"


@needs_sandbox
@pytest.mark.integration
def test_its_progress_is_shown(taught: Path) -> None:
    lines = (taught / "jobs" / "small.look.1" / "progress.jsonl").read_text(encoding="utf-8").splitlines()
    assert [(item["done"], item["total"], item["note"]) for item in map(json.loads, lines)] == [(3, 4, {"loss": 0.5})]


@pytest.mark.parametrize(
    ("line", "report"),
    [
        ("progress 12/100", (12, 100, {})),
        ("progress 0/1 loss=1e-3 rate=2", (0, 1, {"loss": 1e-3, "rate": 2.0})),
        ("progress 1/1 loss=nan grad=inf word=x", (1, 1, {})),
        ("progress 2/1", None),
        ("progress 0/0", None),
        ("progress -1/2", None),
        ("progress ١/٢", None),
        ("in progress 1/2", None),
        ("progress 1/2 and more", None),
    ],
)
def test_only_whole_and_possible_progress_counts(line: str, report: Any) -> None:
    assert progress_in(line) == report


# ---- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "change", "output"),
    [
        ("", ("", ""), "'train.py': holds no statement"),
        ("x = (\n", ("", ""), "'train.py': line 1: not valid Python: '(' was never closed"),
        (f"x = '{'y' * 32_768}'\n", ("", ""), "the limit is 32768"),
        ("key = 'ghp_" + "a1B2" * 9 + "'\n", ("", ""), "here begins a secret"),
        ("pass\n", ("script: train.py", "script: other.py"), "file 'other.py' does not exist"),
        ("pass\n", ("script: train.py", f"script: 'train.py@{digest_bytes(b'')}'"), "the spec registers another"),
        ("pass\n", ("script: train.py", "script: ../train.py"), "script"),
        ("pass\n", ("script: train.py", "script: train.py\n    allow_code: true"), "the builder hands none in"),
        ("pass\n", ("numpy>=1", "'numpy @ https://x.org/a.whl'"), "expected a requirement such as"),
        ("pass\n", ("rows: sample.accepted", "rows: base.rows"), "which no script may read"),
        ("pass\n", ("rows: sample.accepted", "rows: heldout"), "is not for recipe stages"),
    ],
)
def test_a_script_that_cannot_be_registered_is_one_error_with_its_place(
    tmp_path: Path, text: str, change: tuple[str, str], output: str
) -> None:
    with_script(tmp_path, text)
    stage = OWN_STAGE.replace(*change) if change[0] else OWN_STAGE
    results = problems(write_spec(tmp_path, ("  - name: train\n", f"{stage}  - name: train\n"), *TRAINED[2:]))
    assert len(results) == 1 and output in f"{results[0].message} {results[0].hint}" and results[0].line >= 1, results


def test_only_stages_that_run_code_have_one(tmp_path: Path) -> None:
    with_script(tmp_path)
    (problem,) = problems(write_spec(tmp_path, ("    kind: sft\n", "    kind: sft\n    script: train.py\n")))
    assert problem.message == "stage 'train': sft runs Peergate's own code" and "recipe" in problem.hint


def test_a_registered_text_that_was_changed_is_no_spec(tmp_path: Path) -> None:
    resolved = loads(write_spec(with_script(tmp_path), *OWN))
    content = resolved.canonical()
    assert read_resolved(content).registration() == resolved.registration()
    with pytest.raises(Exception, match="not a resolved spec"):
        read_resolved(content.replace(b"+ 0.01", b"+ 0.02"))


def test_no_builder_puts_another_in_its_place(tmp_path: Path) -> None:
    stage = loads(write_spec(with_script(tmp_path), *OWN)).spec.stage("look")
    assert resolve_parameters(stage, {}).code == digest_bytes(numbers(MOVED).encode())
    with pytest.raises(ValueError, match="does not allow code"):
        resolve_parameters(stage, {"code": digest_bytes(b"another")})


def test_what_it_needs_is_asked_for_before_the_start(tmp_path: Path) -> None:
    path = write_spec(with_script(tmp_path), *OWN[1:], (OWN[0][0], OWN[0][1].replace("numpy>=1", "numpy>=999")))
    with pytest.raises(BlockedError, match="needs packages that are not installed: numpy>=999"):
        require_machine(loads(path).spec)
    assert "not on this machine" in called("spec", "check", path).stdout


@pytest.mark.integration
def test_no_amendment_registers_another(tmp_path: Path) -> None:
    run = open_quick(with_script(tmp_path), *OWN)
    (tmp_path / "train.py").write_text("pass\n", encoding="utf-8")
    with pytest.raises(UserError, match="script cannot be amended: it is what the session is about"):
        amend(run, tmp_path / "spec.yaml", "Ada", "shorter", False, Silent())  # pyright: ignore[reportArgumentType]
