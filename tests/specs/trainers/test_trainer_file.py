"""A TRL or Axolotl file becomes a script: what is recognised, replaced, switched off and refused, with its place."""

from __future__ import annotations

import ast
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from specs.stages.recipes.script_file import SCRIPT_BYTES, require_script
from specs.system.errors import Problem, SpecError
from specs.trainers import trainer_file
from specs.trainers.known_keys import Command, known_keys
from specs.trainers.trainer_file import AsScript, TrainingInputs, as_script, notes_of
from specs.trainers.trainer_keys import DATASET_SETTINGS, EXAMPLE_KEYS, LOSS_SETTINGS, TRAINERS, Held
from testing.factories.spec_files import loads, write_spec
from testing.factories.spec_files import problems_of as problems
from testing.factories.trained_recipe import STAGE, TRAINED

EXAMPLES = TrainingInputs("start", "train", "examples")
PAIRS = TrainingInputs("start", "train", "preferences")
TRL = """\
model_name_or_path: Qwen/Qwen3-0.6B
dataset_name: trl-lib/Capybara
output_dir: out
learning_rate: 2.0e-5
packing: true
eval_strategy: steps
push_to_hub: true
report_to: [wandb]
trust_remote_code: false
"""
AXOLOTL = """\
base_model: NousResearch/Llama-3.2-1B
datasets:
  - {path: teknium/GPT4-LLM-Cleaned, type: alpaca}
output_dir: ./outputs/lora-out
val_set_size: 0.1
adapter: lora
lora_r: 16
micro_batch_size: 2
wandb_project:
wandb_entity: me
hub_model_id: me/mine
special_tokens: {pad_token: "</s>"}
"""


def made(text: str, inputs: TrainingInputs = EXAMPLES) -> AsScript:
    return as_script(Path("sft.yaml"), text.encode(), inputs)


def settings(script: AsScript) -> dict[str, Any]:
    expression = next(
        statement.value
        for statement in ast.parse(script.text).body
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and statement.target.id == "SETTINGS"
    )
    assert expression is not None
    return ast.literal_eval(expression)


def refused(text: str, inputs: TrainingInputs = EXAMPLES) -> list[Problem]:
    with pytest.raises(SpecError) as caught:
        made(text, inputs)
    return caught.value.problems


def test_a_trl_file_is_kept_as_it_is_but_for_what_peergate_gives() -> None:
    script = made(TRL)
    assert script.needed == ("trl",) and require_script(script.text)
    results = settings(script)
    assert (results["trainer"], results["command"], results["model"], results["train"]) == (
        "trl",
        "sft",
        "start",
        "train",
    )
    assert results["config"] == {"learning_rate": 2e-5, "packing": True}
    assert notes_of(script.text) == [
        "model_name_or_path: replaced by the granted checkpoint",
        "dataset_name: replaced by the stage's input",
        "output_dir: replaced by the folder that the session keeps",
        "eval_strategy: switched off: the stage has no input 'eval'",
        "push_to_hub: switched off: nothing outside the sandbox can be reached",
        "report_to: switched off: nothing outside the sandbox can be reached",
    ]


def test_a_refused_key_without_a_value_is_left_out() -> None:
    text = f"{TRL}deepspeed:\nnum_processes:\nload_best_model_at_end: false\n"
    assert settings(made(text))["config"] == settings(made(TRL))["config"]


def test_an_axolotl_file_too() -> None:
    script = made(AXOLOTL)
    assert script.needed == ("axolotl",) and require_script(script.text)
    assert settings(script)["config"] == {
        "val_set_size": 0.1,
        "adapter": "lora",
        "lora_r": 16,
        "micro_batch_size": 2,
        "special_tokens": {"pad_token": "</s>"},
    }
    lines = notes_of(script.text)
    assert [line.partition(":")[0] for line in lines] == [
        *("base_model", "datasets", "output_dir", "wandb_entity", "hub_model_id")
    ]


def test_with_rows_to_evaluate_on_it_evaluates() -> None:
    script = made(TRL, EXAMPLES._replace(eval="eval"))
    assert settings(script)["config"]["eval_strategy"] == "steps"
    assert not any(line.startswith("eval_strategy") for line in notes_of(script.text))


def test_the_data_say_how_trl_trains() -> None:
    text = TRL.replace("packing: true\n", "")
    assert settings(made(text, PAIRS))["command"] == "dpo"
    assert settings(made(text, PAIRS._replace(row_kind="texts")))["command"] == "sft"


@pytest.mark.parametrize(
    ("text", "inputs", "line", "output"),
    [
        ("lr: 1\n", EXAMPLES, 1, "this is not a file of TRL or of Axolotl"),
        (TRL + AXOLOTL.replace("output_dir: ./outputs/lora-out\n", ""), EXAMPLES, 1, "keys of both"),
        ("- 1\n", EXAMPLES, 1, ""),
        (TRL + "env: {HF_TOKEN: x}\n", EXAMPLES, 10, "the sandbox sets the variables"),
        (TRL + "deepspeed: zero3.json\n", EXAMPLES, 10, "the sandbox runs one"),
        (TRL + "load_best_model_at_end: true\n", EXAMPLES, 10, "only the last weights are kept"),
        (TRL + "attn_implementation: kernels-community/flash-attn\n", EXAMPLES, 10, "names a place outside"),
        (TRL + "optim_args: file:///etc/passwd\n", EXAMPLES, 10, "names a place outside"),
        (TRL + "lora_target_modules: [q_proj, ../x]\n", EXAMPLES, 10, "names a place outside"),
        (TRL + "model_init_kwargs: {trust_remote_code: true}\n", EXAMPLES, 10, "load code from elsewhere"),
        (TRL + "beta: 0.1\n", EXAMPLES, 10, "belongs to training on preferences, and 'train' holds examples"),
        (TRL, PAIRS, 5, "belongs to training on examples, and 'train' holds preferences"),
        (AXOLOTL + "rl: dpo\n", EXAMPLES, 13, "trains on pairs, and 'train' holds examples"),
        (AXOLOTL, PAIRS, 1, "rl is one of dpo"),
        (AXOLOTL + "rl: grpo\n", PAIRS, 13, "rl is one of dpo"),
        (AXOLOTL + "lora_model_dir: ./old\n", EXAMPLES, 13, "begins with the granted checkpoint"),
        (
            AXOLOTL + "plugins: [axolotl.integrations.liger.LigerPlugin, mine.Plugin]\n",
            EXAMPLES,
            13,
            "one of Axolotl's",
        ),
    ],
)
def test_what_cannot_be_is_one_error_with_its_place(text: str, inputs: TrainingInputs, line: int, output: str) -> None:
    (problem,) = refused(text, inputs)
    assert output in f"{problem.message} {problem.hint}" and problem.line == line and problem.path == "sft.yaml", (
        problem
    )


@pytest.mark.parametrize(
    ("line", "inputs", "output"),
    [
        ("learning_rat: 1.0e-4", EXAMPLES, "as it is installed did you mean 'learning_rate'?"),
        ("max_seq_length: 512", EXAMPLES, "did you mean 'max_length'?"),
        ("evaluation_strategy: steps", EXAMPLES, "did you mean 'eval_strategy'?"),
        ("torch_dtype: bfloat16", EXAMPLES, "did you mean 'dtype'?"),
        ("tokenizer_name_or_path: a/b", EXAMPLES, "is not a key of `trl sft`"),
        ("reward_funcs: [accuracy_reward]", EXAMPLES, "`trl sft --help` lists them"),
        ("max_prompt_length: 512", PAIRS, "is not a key of `trl dpo`"),
    ],
)
def test_a_key_that_trl_does_not_know_is_reported_before_anything_runs(
    line: str, inputs: TrainingInputs, output: str
) -> None:
    (problem,) = refused(f"{TRL.replace('packing: true', 'bf16: false')}{line}\n", inputs)
    assert problem.line == 10 and output in f"{problem.message} {problem.hint}", problem


@pytest.mark.parametrize("command", ["sft", "dpo"])
def test_the_known_keys_are_those_of_its_own_parser(command: Command) -> None:
    script = importlib.import_module(f"trl.scripts.{command}")
    actions = {action.dest for action in script.make_parser()._actions}
    keys = known_keys(command)
    assert keys is not None and actions - keys - {"help", "config"} == set()
    # Switched-off spellings (`no_x`) and fields that the command line does not take are not keys of their own.
    assert {"learning_rate", "model_name_or_path", "datasets", "lora_r"} <= keys


def test_a_layout_of_trl_that_is_not_known_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_: Command) -> None:
        return None

    monkeypatch.setattr(trainer_file, "known_keys", nothing)
    assert "learning_rat" in settings(made(f"{TRL}learning_rat: 1\n"))["config"]


def test_words_are_read_as_trl_reads_them() -> None:
    assert settings(made(TRL.replace("packing: true", "packing: yes")))["config"]["packing"] is True


DATASET = "datasets:\n  - {path: teknium/GPT4-LLM-Cleaned, type: alpaca}\n"


@pytest.mark.parametrize("key", sorted(DATASET_SETTINGS))
def test_dataset_settings_that_say_what_is_learned_are_refused_by_name(key: str) -> None:
    same, _ = DATASET_SETTINGS[key]
    (problem,) = refused(AXOLOTL.replace("type: alpaca", f"type: chat_template, {key}: other"))
    assert problem.keys == f"datasets[0].{key}" and "which is not honoured" in problem.message and problem.line == 3
    for value in (*same, None):
        assert made(AXOLOTL.replace("type: alpaca", f"type: chat_template, {key}: {json.dumps(value)}"))


@pytest.mark.parametrize(("lock", "key"), LOSS_SETTINGS)
def test_settings_of_trl_that_say_what_is_learned_are_refused_by_name(lock: Held, key: str) -> None:
    inputs = EXAMPLES._replace(row_kind=lock)
    text = TRL.replace("packing: true", "packing: false")
    (same,), _ = LOSS_SETTINGS[lock, key]
    (problem,) = refused(f"{text}{key}: {json.dumps(not same)}\n", inputs)
    assert problem.keys == key and "which is not honoured" in problem.message and problem.line == 10
    for value in (same, None):
        assert settings(made(f"{text}{key}: {json.dumps(value)}\n", inputs))["command"] == "sft"


def test_every_key_of_trl_that_masks_the_loss_has_a_rule() -> None:
    masks = {key for key in known_keys("sft") or () if key.endswith("_only_loss")}
    assert masks == {key for _, key in LOSS_SETTINGS} and masks <= EXAMPLE_KEYS


def test_every_turn_but_the_last_is_kept_from_axolotls_loss(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INPUTS", str(tmp_path))
    monkeypatch.setenv("OUT", str(tmp_path))
    script = importlib.import_module("training.jobs.recipes.trainer_script")
    monkeypatch.setattr(script, "SETTINGS", {"row_kind": "examples", "trainer": "axolotl"})
    before = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    row = script._row({"prompt": "c", "completion": "d", "before": before}, True)
    assert [(turn["content"], turn["train"]) for turn in row["messages"]] == [
        *(("a", False), ("b", False), ("c", False), ("d", True))
    ]
    report = script._axolotl_set(tmp_path / "rows.jsonl", True)
    assert report["message_field_training"] == "train" and report["roles_to_train"] == []


def test_every_problem_of_a_file_is_reported_at_once() -> None:
    assert [problem.keys for problem in refused(TRL + "env: {A: b}\nfsdp: full_shard\n")] == ["env", "fsdp"]


def test_no_key_has_two_fates() -> None:
    for trainer in TRAINERS:
        assert not set(trainer.replacements) & set(trainer.off) and not (
            set(trainer.replacements) | set(trainer.off)
        ) & set(trainer.refused)


def test_only_a_training_files_script_says_what_was_replaced() -> None:
    for text in ('"""Trains with love."""\n', "x = (", "pass\n"):
        assert notes_of(text) == []


def test_the_longest_file_that_fits_says_so_when_it_does_not() -> None:
    rest = "lora_target_modules:\n" + "".join(f"- key_{n}_{'x' * 50}\n" for n in range(SCRIPT_BYTES // 60))
    with pytest.raises(Exception, match="the limit is 32768"):
        require_script(made(TRL + rest).text)


# ---- in a spec ----------------------------------------------------------------------------------------------


YAML_STAGE = STAGE.replace("allow_code: true", "script: sft.yaml")


def spec_with(folder: Path, stage: str = YAML_STAGE, text: str = TRL) -> Path:
    (folder / "sft.yaml").write_text(text, encoding="utf-8")
    return write_spec(folder, ("  - name: train\n", f"{stage}  - name: train\n"), *TRAINED[2:])


def test_a_spec_registers_the_script_and_what_it_needs(tmp_path: Path) -> None:
    resolved = loads(spec_with(tmp_path))
    stage = resolved.spec.stage("look")
    text = resolved.scripts[stage.parameters.code]
    assert settings(AsScript(text, ()))["train"] == "rows" and notes_of(text)
    assert stage.script is not None and stage.script.startswith("sft.yaml@sha256:")
    assert stage.parameters.requires == ("trl",)


def test_a_requirement_of_ones_own_stays(tmp_path: Path) -> None:
    stage = YAML_STAGE.replace("seed: 7", "seed: 7, requires: ['TRL>=1']")
    assert loads(spec_with(tmp_path, stage)).spec.stage("look").parameters.requires == ("TRL>=1",)


@pytest.mark.parametrize(
    ("change", "output"),
    [
        ((", trains: start", ""), "write trains: INPUT"),
        (("rows: sample.accepted, ", ""), "needs rows to train on"),
        (("rows: sample.accepted, ", "eval: sample.accepted, "), "needs rows to train on"),
        (("rows: sample.accepted, ", "one: sample.accepted, other: sample.accepted, "), "name them `train`"),
        (("rows: sample.accepted, ", "train: sample.accepted, other: sample.accepted, "), "reads no input 'other'"),
    ],
)
def test_a_stage_that_gives_too_little_is_one_error(change: tuple[str, str], output: str, tmp_path: Path) -> None:
    stage = YAML_STAGE.replace(*change)
    results = problems(spec_with(tmp_path, stage))
    assert any(output in f"{problem.message} {problem.hint}" and problem.line > 1 for problem in results), results


def test_a_file_that_is_neither_is_reported_where_it_lies(tmp_path: Path) -> None:
    (problem,) = problems(spec_with(tmp_path, text="lr: 1\n"))
    assert problem.path.endswith("sft.yaml") and "not a file of TRL or of Axolotl" in problem.message
    assert "TRL has model_name_or_path and dataset_name or datasets" in problem.hint
