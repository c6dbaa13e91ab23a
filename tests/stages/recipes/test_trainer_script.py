"""The script that a TRL or Axolotl file becomes: TRL itself in the sandbox; Axolotl through a stand-in for its module.

Axolotl's pins conflict with Peergate's: ``test_trainer_keys.py`` runs it where it is. The stand-in
(``tests/fixtures/stand_in_axolotl``) reads the file as Axolotl does and trains with the trainer of transformers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reviews.audit.verify import verify_run
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.jobs.job_environment import JOB_VARIABLES
from sessions.jobs.sandbox.recipe_job import progress_in
from sessions.runtime.wiring import require_machine
from specs.jobs.job_records import Manifest
from specs.system.errors import BlockedError
from specs.trail.verdict import Packet
from specs.trainers import trainer_file
from specs.trainers.trainer_file import TrainingInputs, as_script, notes_of
from testing.factories.spec_files import loads
from testing.factories.trained_recipe import TRAINED
from testing.fixtures.collected import collected
from testing.fixtures.line_writer import line_writer
from testing.fixtures.quick_session import drive, open_quick, quick_session
from testing.fixtures.sandbox import needs_sandbox
from testing.fixtures.tiny_training import opposites, preferred, tiny_checkpoint, write_lines
from tests.specs.trainers.test_trainer_file import YAML_STAGE, spec_with
from tests.stages.recipes.test_recipe_in_session import outcomes
from tests.stages.recipes.test_recipe_training_job import RealJobs
from training.jobs.recipes.adopt_checkpoint import take_checkpoint

STAND_IN = Path(__file__).parents[2] / "fixtures" / "stand_in_axolotl"
TRL = """\
model_name_or_path: Qwen/Qwen3-0.6B
dataset_name: trl-lib/Capybara
output_dir: out
learning_rate: 1.0e-2
num_train_epochs: 2
per_device_train_batch_size: 2
logging_steps: 1
push_to_hub: true
"""
AXOLOTL = """\
base_model: NousResearch/Llama-3.2-1B
datasets:
  - {path: teknium/GPT4-LLM-Cleaned, type: alpaca}
output_dir: ./outputs/out
sequence_len: 64
micro_batch_size: 4
num_epochs: 2
learning_rate: 0.01
wandb_project: mine
"""


class ScriptRun:
    """How a script ended, outside of a sandbox."""

    def __init__(self, folder: Path, text: str, stage_inputs: TrainingInputs, path: str = "") -> None:
        script = folder / "script.py"
        script.write_text(as_script(Path("file.yaml"), text.encode(), stage_inputs).text, encoding="utf-8")
        self.out = folder / "out"
        self.out.mkdir()
        variables = {
            **{name: os.environ[name] for name in ("PATH", "HOME")},
            **{"INPUTS": str(folder / "in"), "OUT": str(self.out), "SEED": "7", "PYTHONPATH": path},
            **JOB_VARIABLES,
            **{"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        }
        done = subprocess.run(
            [sys.executable, "-u", str(script)],
            cwd=self.out,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.code, self.log = done.returncode, done.stdout

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.out / "rows.jsonl").read_text(encoding="utf-8").splitlines()]

    @property
    def last(self) -> tuple[int, int, dict[str, float | str]] | None:
        lines = [progress_in(line) for line in self.log.replace("\r", "\n").splitlines() if "progress " in line]
        return lines[-1]


@pytest.fixture(scope="module")
def stage_inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The inputs of a stage: a tiny model with a chat template, examples and pairs."""
    folder = tmp_path_factory.mktemp("given")
    tiny_checkpoint(folder / "in" / "start")
    write_lines(folder / "in" / "rows", opposites())
    write_lines(folder / "in" / "pairs", preferred())
    return folder


def trained(folder: Path, stage_inputs: Path, text: str, inputs: TrainingInputs, path: str = "") -> ScriptRun:
    (folder / "in").symlink_to(stage_inputs / "in")
    return ScriptRun(folder, text, inputs, path)


def session_with(folder: Path, text: str) -> Path:
    """Run a session that trains by a file in the sandbox; return its folder."""
    (folder / "sft.yaml").write_text(text, encoding="utf-8")
    stage = YAML_STAGE.replace("max_minutes: 5", "max_minutes: 20")
    changes = (("  - name: train\n", f"{stage}  - name: train\n"), *TRAINED[2:])
    run = open_quick(folder, *changes, model=line_writer(folder / "writer"))
    launcher = RealJobs()
    with collected():
        drive(quick_session(run, launcher=launcher))
    launcher.local.poll(run)
    return run


@needs_sandbox
@pytest.mark.integration
def test_a_trl_file_trains_in_the_sandbox_and_through_its_gate(tmp_path: Path) -> None:
    run = session_with(tmp_path, TRL.replace("num_train_epochs: 2", "max_steps: 2"))
    assert outcomes(run)["look"] == "approve"
    store, bodies = Store(run / "store"), {entry.key: entry.raw for entry in read_entries(run / "trail.sqlite")}
    packet = Packet.model_validate(store.get_value(bodies["packet/look.1"]["packet"]))
    assert packet.code is not None and "push_to_hub: switched off" in "\n".join(notes_of(packet.code))
    manifest = Manifest.model_validate_json(store.get(bodies["exit/small.look.1"]["manifest"]))
    assert manifest.facts["sandbox"].startswith("bubblewrap") and list(manifest.facts["requires"]) == ["trl"]
    lines = (run / "jobs" / "small.look.1" / "progress.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(lines[-1])[name] for name in ("done", "total")] == [2, 2]
    rows = (run / "jobs" / "small.look.1" / "out" / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    assert [item["step"] for item in map(json.loads, rows)][:2] == [1, 2] and json.loads(rows[0])["loss"] > 0
    report = (run / "report" / "report.md").read_text(encoding="utf-8")
    assert "trained by `sft.yaml`, registered as" in report and "push_to_hub: switched off" in report, report
    audit = verify_run(run, "trail.sqlite", "store")
    assert audit.damage == [] and audit.verdict == "verified"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "inputs"),
    [
        ("", TrainingInputs("start", "rows", "examples")),
        ("use_peft: true\nlora_r: 4\n", TrainingInputs("start", "rows", "examples")),
        ("beta: 0.2\n", TrainingInputs("start", "pairs", "preferences")),
        ("", TrainingInputs("start", "rows", "examples", "rows")),
        ("eval_strategy: epoch\n", TrainingInputs("start", "rows", "examples", "rows")),
    ],
    ids=["sft", "lora", "dpo", "eval unsaid", "eval"],
)
def test_trl_trains_and_leaves_what_is_taken_over(
    more: str, inputs: TrainingInputs, stage_inputs: Path, tmp_path: Path
) -> None:
    ran = trained(tmp_path, stage_inputs, TRL + more, inputs)
    assert ran.code == 0, ran.log
    assert ran.last is not None and ran.last[:2] == (12, 12) and float(ran.last[2]["loss"]) > 0, ran.log
    steps = [row for row in ran.rows if "loss" in row]
    assert [row["step"] for row in steps] == list(range(1, 13))
    assert any("eval_loss" in row for row in ran.rows) == (inputs.eval is not None)
    change = take_checkpoint(ran.out / "checkpoint", stage_inputs / "in" / "start", tmp_path / "taken")
    assert change.changed > 0


@pytest.mark.slow
def test_a_key_that_trl_does_not_know_ends_the_script(
    stage_inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # TRL's own command trains without it, and `spec check` refuses it where its layout is known.
    monkeypatch.setattr(trainer_file, "known_keys", {}.get)
    ran = trained(tmp_path, stage_inputs, f"{TRL}learning_rat: 1.0e-4\n", TrainingInputs("start", "rows", "examples"))
    assert ran.code != 0 and "learning_rat" in ran.log and not (ran.out / "checkpoint").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "inputs"),
    [("", TrainingInputs("start", "rows", "examples")), ("rl: dpo\n", TrainingInputs("start", "pairs", "preferences"))],
    ids=["sft", "dpo"],
)
def test_axolotl_is_handed_a_file_that_it_can_read(
    more: str, inputs: TrainingInputs, stage_inputs: Path, tmp_path: Path
) -> None:
    ran = trained(tmp_path, stage_inputs, AXOLOTL + more, inputs, str(STAND_IN))
    assert ran.code == 0, ran.log
    read = json.loads((ran.out / "read.json").read_text(encoding="utf-8"))
    assert read["base_model"] == str(tmp_path / "in" / "start") and read["seed"] == 7
    assert (read["sequence_len"], read["num_epochs"], read["chat_template"]) == (64, 2, "tokenizer_default")
    assert "wandb_project" not in read
    assert ran.last is not None and ran.last[0] == ran.last[1], ran.log
    assert take_checkpoint(ran.out / "checkpoint", stage_inputs / "in" / "start", tmp_path / "taken").changed > 0


def test_axolotl_is_asked_for_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "axolotl.yaml").write_text(AXOLOTL, encoding="utf-8")
    spec = spec_with(tmp_path, YAML_STAGE.replace("sft.yaml", "axolotl.yaml"))
    with pytest.raises(BlockedError, match="needs packages that are not installed: axolotl") as caught:
        require_machine(loads(spec).spec)
    assert "pip install --target script-packages axolotl && export PEERGATE_SCRIPT_PACKAGES=" in str(caught.value.hint)
