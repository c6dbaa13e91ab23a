"""The body of a script that a TRL or Axolotl file becomes (``specs/trainers/trainer_file.py``). Runs in a sandbox.

It lays out the stage's rows as the tool reads them, runs the tool's own training with the settled keys, shows its
progress, keeps its log as rows, and keeps of what it saved the weights. Nothing of Peergate can be imported here.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import runpy
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SETTINGS: dict[str, Any] = {}
INPUTS, OUT = Path(os.environ["INPUTS"]), Path(os.environ["OUT"])
BASE = INPUTS / str(SETTINGS.get("model"))
SAVED = OUT / "checkpoint"
LOGGED_NUMBERS = ("loss", "eval_loss", "learning_rate", "grad_norm")
WHEN = ("eval_strategy", "eval_steps", "evals_per_epoch")
"""Keys that say when rows to evaluate on are read; without one both tools never read them."""
SECONDS = 0.5
"""Between two lines of progress."""


def main() -> None:
    """Train, and leave weights and rows."""
    work = Path(tempfile.mkdtemp())
    _show_progress()
    chat = _has_template()
    splits = {name: _write_rows(work, name, chat) for name in ("train", "eval") if SETTINGS[name]}
    config = dict(SETTINGS["config"])
    config |= {"output_dir": str(SAVED), "seed": int(os.environ["SEED"]), "save_strategy": "no"}
    if "eval" in splits and config.keys().isdisjoint(WHEN):
        config["eval_strategy"] = "epoch"
    if SETTINGS["trainer"] == "trl":
        _trl(config, work, splits)
    else:
        _axolotl(config, work, splits, chat)
    _keep_weights()


def _trl(config: dict[str, Any], work: Path, splits: dict[str, Path]) -> None:
    """Run what ``trl sft --config FILE`` runs, in this process; unlike there, a key that TRL does not know fails."""
    config |= {"model_name_or_path": str(BASE), "dataset_name": str(work / "data"), "report_to": "none"}
    config |= {"dataset_test_split": "test", "use_cpu": not SETTINGS["gpu"]}
    folder = work / "data"
    folder.mkdir()
    for name, path in splits.items():
        path.rename(folder / ("train.jsonl" if name == "train" else "test.jsonl"))
    script = importlib.import_module(f"trl.scripts.{SETTINGS['command']}")
    parser = script.make_parser()
    script.main(*parser.parse_args_and_config(["--config", _file(work, config)], fail_with_unknown_args=True))


def _axolotl(config: dict[str, Any], work: Path, splits: dict[str, Path], chat: bool) -> None:
    """Run what ``axolotl train FILE`` runs, in this process."""
    config |= {"base_model": str(BASE), "dataset_prepared_path": str(work / "prepared"), "save_safetensors": True}
    if not SETTINGS["gpu"]:
        _for_a_processor(config)
    if chat:
        config["chat_template"] = "tokenizer_default"
    sets = {name: [_axolotl_set(path, chat)] for name, path in splits.items()}
    config["datasets"] = sets["train"]
    if "eval" in sets:
        config |= {"test_datasets": sets["eval"], "val_set_size": 0}
    sys.argv = ["axolotl.cli.train", _file(work, config)]
    runpy.run_module("axolotl.cli.train", run_name="__main__", alter_sys=True)


def _for_a_processor(config: dict[str, Any]) -> None:
    """Leave out Axolotl's defaults that need a GPU: float16, and kernels for adapters."""
    if config.get("bf16", "auto") == "auto":
        config["bf16"] = False
    if config.get("adapter"):
        for part in ("mlp", "qkv", "o", "embedding"):
            config.setdefault(f"lora_{part}_kernel", False)


def _axolotl_set(path: Path, chat: bool) -> dict[str, Any]:
    results: dict[str, Any] = {"path": str(path), "ds_type": "json", "split": "train"}
    if SETTINGS["row_kind"] == "texts":
        return results | {"type": "completion", "field": "text"}
    if SETTINGS["row_kind"] == "preferences":
        return results | {"type": "chat_template.default", "field_messages": "messages"}
    if chat:
        # Else every turn of the assistant would be learned, those before the prompt too.
        learned = {"roles_to_train": [], "message_field_training": "train"}
        return results | {"type": "chat_template", "field_messages": "messages", **learned}
    plain = {"field_instruction": "prompt", "field_output": "completion"}
    return results | {"type": {**plain, "format": "{instruction}", "no_input_format": "{instruction}"}}


def _write_rows(work: Path, name: str, chat: bool) -> Path:
    """Write the rows of an input as the tool reads them; return the file."""
    with (INPUTS / SETTINGS[name]).open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file if line.strip()]
    path = work / f"{name}.jsonl"
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(_row(row, chat), ensure_ascii=False) + "\n" for row in rows)
    return path


def _row(row: dict[str, Any], chat: bool) -> dict[str, Any]:
    if SETTINGS["row_kind"] == "texts":
        return {"text": row["prompt"]}
    sides = ("chosen", "rejected") if SETTINGS["row_kind"] == "preferences" else ("completion",)
    if not chat:
        return {"prompt": row["prompt"], **{side: row[side] for side in sides}}
    requests = [*row.get("before", ()), {"role": "user", "content": row["prompt"]}]
    statements = {side: {"role": "assistant", "content": row[side]} for side in sides}
    if SETTINGS["trainer"] == "trl":
        return {"prompt": requests, **{side: [turn] for side, turn in statements.items()}}
    if len(statements) == 2:
        return {"messages": requests, **statements}
    return {"messages": [{**turn, "train": False} for turn in requests] + [{**statements["completion"], "train": True}]}


def _has_template() -> bool:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(BASE)
    return bool(tokenizer.chat_template)


def _file(work: Path, config: dict[str, Any]) -> str:
    import yaml

    path = work / "config.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return str(path)


def _show_progress() -> None:
    """Have every trainer of transformers, which both tools build on, print its progress and write its log as rows."""
    from transformers import TrainerCallback, trainer

    class Progress(TrainerCallback):
        shown_at = 0.0
        note = ""

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if time.monotonic() - self.shown_at > SECONDS or state.global_step == state.max_steps:
                self.shown_at = time.monotonic()
                # A bar that others draw may not have ended its line.
                print(f"\nprogress {state.global_step}/{state.max_steps}{self.note}", flush=True)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            numbers = {name: float(value) for name, value in (logs or {}).items() if _is_number(value)}
            self.note = "".join(f" {name}={numbers[name]:.6g}" for name in LOGGED_NUMBERS if name in numbers)
            with (OUT / "rows.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": state.global_step, **numbers}) + "\n")

    callbacks: list[Any] = trainer.DEFAULT_CALLBACKS  # pyright: ignore[reportAssignmentType]
    callbacks.append(Progress)


def _is_number(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def _keep_weights() -> None:
    """Leave the weights alone of what was saved; an adapter is merged into its base first."""
    if (SAVED / "adapter_config.json").is_file():
        from peft import PeftModel
        from transformers import AutoModelForCausalLM

        model: Any = AutoModelForCausalLM.from_pretrained(BASE, dtype="auto")
        PeftModel.from_pretrained(model, str(SAVED)).merge_and_unload().save_pretrained(SAVED)
    for path in sorted(SAVED.iterdir()):
        if path.is_dir():
            shutil.rmtree(path)
        elif not path.name.startswith("model") or path.suffix not in (".safetensors", ".json"):
            path.unlink()


if __name__ == "__main__":
    main()
