"""Files that decide what weights compute and read, numbers next to the curve, and work that was never granted.

Written after the other families, when the checks were as they are: these are flaws that the product did not know.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.flaws.families.records import edit_record
from bench.flaws.families.rows import read_lines
from bench.flaws.lying import other_parameters
from bench.flaws.operator import Operator, Row
from testing.fixtures.tiny_training import write_lines
from training.jobs.job import Job

SAVED = ("witness.weights", "health.template", "parity.settings")
PACKED = ("package.weights",)
CURVE = ("witness.training", "training.loss", "training.steps", "training.objective", "training.data")


def _template(job: Job) -> None:
    path = job.out / "checkpoint" / "chat_template.jinja"
    path.write_text("Use small letters. " + path.read_text(encoding="utf-8"), encoding="utf-8")


def _code(job: Job) -> None:
    """Put code next to the weights that a loader runs, and name it."""
    (job.out / "package" / "modeling_own.py").write_text("class Own: ...\n", encoding="utf-8")
    edit_record("out/package/config.json", lambda value: value.update(auto_map={"AutoModel": "modeling_own.Own"}))(job)


def _swapped_vocabulary(tokenizer: dict[str, Any]) -> None:
    """Give two words of the vocabulary each other's place."""
    words: dict[str, int] = tokenizer["model"]["vocab"]
    text, other = sorted(words, key=lambda word: words[word])[50:52]
    words[text], words[other] = words[other], words[text]


def _larger(rows: list[Row], _: Path) -> None:
    for row in rows:
        row["tokens"] = 10 * row["tokens"] if "tokens" in row else 0


def _flat_rate(rows: list[Row], _: Path) -> None:
    for row in rows:
        row["learning_rate"] = rows[0]["learning_rate"]


def _twice_as_long(job: Job) -> None:
    other_parameters(job, epochs=2 * job.parameters.epochs)


def _every_second(rows: list[Row], _: Path) -> None:
    kept_rows = rows[::2]
    rows[:] = [row | {"step": place} for place, row in enumerate(kept_rows, 1)]


def _other_beta(job: Job) -> None:
    other_parameters(job, beta=10 * job.parameters.beta)


def _turn_weights(job: Job) -> None:
    """Train a quarter of the pairs the wrong way round."""
    rows = read_lines(job.inputs["preferences"])
    for row in rows[::4]:
        row["chosen"], row["rejected"] = row["rejected"], row["chosen"]
    job.inputs["preferences"] = write_lines(job.folder / "turned.jsonl", rows)


def _better_pairs(rows: list[Row], _: Path) -> None:
    for row in rows:
        row["chosen_after"], row["rejected_after"] = row["chosen_before"] / 2, row["rejected_before"] * 2


def _no_memory(manifest: dict[str, Any]) -> None:
    manifest["peak_rss_mb"] = 1.0


def _other_inputs(manifest: dict[str, Any]) -> None:
    manifest["inputs"] = dict.fromkeys(manifest["inputs"], f"sha256:{'1' * 64}")


def _log(job: Job) -> None:
    (job.folder / "log.txt").write_text("All is well.\n", encoding="utf-8")


def _extra(job: Job) -> None:
    (job.out / "notes.jsonl").write_text('{"answer": "another"}\n', encoding="utf-8")


OPERATORS = (
    Operator("checkpoint-template", "weights", "training leaves a chat template that adds words", SAVED,
             stage="train", spoil=_template),
    Operator("checkpoint-config", "weights", "training leaves a configuration that computes otherwise", SAVED,
             stage="train", spoil=edit_record("out/checkpoint/config.json",
                               lambda value: value.update(rms_norm_eps=0.1))),
    Operator("checkpoint-generation", "weights", "training leaves a generation configuration that bans words", SAVED,
             stage="train",
             spoil=edit_record("out/checkpoint/generation_config.json",
                               lambda keys: keys.update(suppress_tokens=[40, 41]))),
    Operator("checkpoint-vocabulary", "weights", "training leaves a tokenizer with two words swapped", SAVED,
             stage="train", spoil=edit_record("out/checkpoint/tokenizer.json", _swapped_vocabulary)),
    Operator("package-special-tokens", "packaging", "the package names other special tokens", PACKED, stage="ship",
             spoil=edit_record("out/package/special_tokens_map.json", lambda value: value.update(eos_token="the"))),
    Operator("package-code", "packaging", "the package brings code that loaders run", PACKED, stage="ship",
             spoil=_code),
    Operator("package-generation", "packaging", "the package brings another generation configuration", PACKED,
             stage="ship",
             spoil=edit_record("out/package/generation_config.json",
                               lambda value: value.update(repetition_penalty=1.5))),
    Operator("package-second-template", "packaging", "the tokenizer's configuration holds a chat template", PACKED,
             stage="ship",
             spoil=edit_record("out/package/tokenizer_config.json",
                               lambda value: value.update(chat_template="{{ 1 }}"))),
    Operator("longer-training", "curve", "trained for twice the epochs, every second step is shown", CURVE,
             stage="train", swap=_twice_as_long, lie=_every_second),
    Operator("flat-rate", "curve", "the learning rate is stated as constant", (*CURVE, "training.schedule"),
             stage="train", lie=_flat_rate),
    Operator("said-step-tokens", "curve", "each step states ten times its tokens", (*CURVE, "jobs.measured"),
             stage="train", lie=_larger),
    Operator("other-beta", "curve", "pairs are trained on with another beta", CURVE, session="dpo", stage="train",
             swap=_other_beta),
    Operator("turned-pairs", "curve", "a quarter of the pairs is trained on the wrong way round", CURVE,
             session="dpo", stage="train", swap=_turn_weights),
    Operator("invented-pairs", "scores", "scores of the pairs that were kept out are invented",
             ("witness.weights", "witness.training", "witness.scores"), session="dpo", stage="train",
             output="pairs", lie=_better_pairs),
    Operator("said-memory", "records", "the training says that it took 1 MB", ("jobs.measured",),
             stage="train", later=edit_record("manifest.json", _no_memory)),
    Operator("said-inputs", "records", "the manifest names other inputs", ("jobs.granted",), stage="train",
             later=edit_record("manifest.json", _other_inputs)),
    Operator("log-later", "records", "the log is edited when the job has ended", ("jobs.outputs", "jobs.exit"),
             stage="train", later=_log),
    Operator("extra-output", "records", "the job leaves a file that no one asked for", ("jobs.outputs",),
             stage="train", spoil=_extra),
)  # fmt: skip
