"""The tables of keys against the tools themselves: TRL as installed, Axolotl as `make -f more.mk test-axolotl` puts it.

Axolotl and the libraries that it pins lie in a folder of their own (``PEERGATE_AXOLOTL``), before Peergate's on the
path of the processes that these tests start; they do not go together with those that Peergate needs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reviews.audit.verify import verify_run
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from specs.jobs.job_records import Manifest
from specs.stages.recipes.script_file import PACKAGES
from specs.trainers.trainer_file import TrainingInputs
from specs.trainers.trainer_keys import AXOLOTL, EXAMPLE_KEYS, PREFERENCE_KEYS, TRL, Trainer
from testing.fixtures.sandbox import needs_sandbox
from testing.fixtures.tiny_training import opposites, preferred, tiny_checkpoint, write_lines
from tests.stages.recipes.test_recipe_in_session import outcomes
from tests.stages.recipes.test_trainer_script import AXOLOTL as FILE
from tests.stages.recipes.test_trainer_script import session_with, trained
from training.jobs.recipes.adopt_checkpoint import take_checkpoint

FOLDER = os.environ.get("PEERGATE_AXOLOTL", "")
needs_axolotl = pytest.mark.skipif(not FOLDER, reason="Axolotl is not here (make -f more.mk test-axolotl)")
OUTWARD = re.compile(
    r"hub|push|wandb|mlflow|comet|trackio|otel|tensorboard|report_to|token$|trust_remote|resume|fsdp|deepspeed"
    r"|parallel|shard_size|replicate_size|^ray_|^use_ray|trainer_cls|^save_|run_name"
)
"""Keys that may upload, start processes, load code or keep other weights than the last."""
TRL_KEYS = """
import json
from trl.scripts import dpo, sft
print(json.dumps([sorted(one.dest for one in script.make_parser()._actions) for script in (sft, dpo)]))
"""
AXOLOTL_KEYS = """
import json
from axolotl.utils.schemas.config import AxolotlInputConfig
print(json.dumps(sorted(AxolotlInputConfig.model_fields)))
"""


def answer(code: str, path: str = "") -> Any:
    """Return what a process prints as JSON on its last line."""
    variables = {name: os.environ[name] for name in ("PATH", "HOME")} | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def strangers(trainer: Trainer, keys: set[str]) -> tuple[set[str], set[str]]:
    """Return the keys of a table that the tool does not have, and the tool's keys that the table should name."""
    named = {*trainer.replacements, *trainer.off, *trainer.refused, *trainer.harmless}
    return named - keys, {key for key in keys - named if OUTWARD.search(key)}


@pytest.mark.slow
def test_the_table_of_trl_names_its_keys_and_all_that_lead_outside() -> None:
    sft, dpo = map(set, answer(TRL_KEYS))
    unknown, missing = strangers(TRL, sft | dpo)
    # Of its command, of accelerate, and of transformers before its fifth version.
    assert unknown == {"env", "accelerate_config", "num_processes", "num_machines", "logging_dir"} and not missing
    values = set(TRL.replacements) | set(TRL.refused) | set(TRL.harmless)
    assert sft - dpo - values == EXAMPLE_KEYS and dpo - sft - values == PREFERENCE_KEYS


@needs_axolotl
def test_the_table_of_axolotl_names_its_keys_and_all_that_lead_outside() -> None:
    assert strangers(AXOLOTL, set(answer(AXOLOTL_KEYS, FOLDER))) == (set(), set())


@pytest.fixture(scope="module")
def stage_inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The inputs of a stage: a tiny model with a chat template, examples, pairs and texts."""
    folder = tmp_path_factory.mktemp("given")
    tiny_checkpoint(folder / "in" / "start")
    write_lines(folder / "in" / "rows", opposites())
    write_lines(folder / "in" / "pairs", preferred())
    texts = [{"id": f"t{n}", "prompt": f"{row['prompt']} {row['completion']}"} for n, row in enumerate(opposites())]
    write_lines(folder / "in" / "texts", texts)
    return folder


@needs_axolotl
@pytest.mark.parametrize(
    ("more", "inputs"),
    [
        ("", TrainingInputs("start", "rows", "examples")),
        (
            "adapter: lora\nlora_r: 4\nlora_alpha: 8\nlora_target_linear: true\n",
            TrainingInputs("start", "rows", "examples"),
        ),
        ("rl: dpo\n", TrainingInputs("start", "pairs", "preferences")),
        ("", TrainingInputs("start", "texts", "texts")),
        ("", TrainingInputs("start", "rows", "examples", "rows")),
    ],
    ids=["sft", "lora", "dpo", "texts", "eval"],
)
def test_axolotl_trains_and_leaves_what_is_taken_over(
    more: str, inputs: TrainingInputs, stage_inputs: Path, tmp_path: Path
) -> None:
    # Longer rows are left out, and of the tiny model's tokenizer each letter is a token.
    ran = trained(tmp_path, stage_inputs, FILE.replace("sequence_len: 64", "sequence_len: 256") + more, inputs, FOLDER)
    assert ran.code == 0, ran.log
    assert ran.last is not None and ran.last[0] == ran.last[1] and float(ran.last[2]["loss"]) > 0, ran.log
    assert any("eval_loss" in row for row in ran.rows) == (inputs.eval is not None)
    assert take_checkpoint(ran.out / "checkpoint", stage_inputs / "in" / "start", tmp_path / "taken").changed > 0


@needs_axolotl
@needs_sandbox
def test_axolotl_trains_in_the_sandbox_and_through_its_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PACKAGES, FOLDER)
    run = session_with(tmp_path, FILE.replace("num_epochs: 2", "max_steps: 2"))
    log = (run / "jobs" / "small.look.1" / "log.txt").read_text(encoding="utf-8")
    assert outcomes(run)["look"] == "approve", log
    exit_record = next(entry.raw for entry in read_entries(run / "trail.sqlite") if entry.key == "exit/small.look.1")
    facts = Manifest.model_validate_json(Store(run / "store").get(exit_record["manifest"])).facts
    assert facts["sandbox"].startswith("bubblewrap") and facts["requires"] == {"axolotl": "0.19.0"}
    report = (run / "report" / "report.md").read_text(encoding="utf-8")
    assert "wandb_project: switched off" in report
    audit = verify_run(run, "trail.sqlite", "store")
    assert audit.damage == [] and audit.verdict == "verified"
