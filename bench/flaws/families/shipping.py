"""Packages that do not hold what was evaluated."""

from __future__ import annotations

import pickle
from pathlib import Path

from bench.flaws.families.records import edit_record
from bench.flaws.families.rows import base_instead
from bench.flaws.lying import shake
from bench.flaws.operator import Operator, Row
from training.jobs.job import Job

WEIGHTS = ("package.weights",)
PROBES = ("package.probes", "witness.answers")


def _noise(job: Job) -> None:
    shake(job.out / "package" / "model.safetensors", 0.05)


def _template(job: Job) -> None:
    """Ship a chat template that adds words to every prompt."""
    path = job.out / "package" / "chat_template.jinja"
    path.write_text("Be brief. " + path.read_text(encoding="utf-8"), encoding="utf-8")


def _pickle(job: Job) -> None:
    """Put weights of another format next to the evaluated ones, which loaders may prefer."""
    (job.out / "package" / "pytorch_model.bin").write_bytes(pickle.dumps({"lm_head.weight": [0.0]}))


def _no_tokenizer(job: Job) -> None:
    (job.out / "package" / "tokenizer_config.json").unlink()


def _invent_figure(rows: list[Row], _: Path) -> None:
    for row in rows:
        row["expected"] = row["reloaded"] = [7, 8, 9]


OPERATORS = (
    Operator("package-of-noise", "packaging", "other weights than the evaluated ones are packed", WEIGHTS,
             stage="ship", spoil=_noise),
    Operator("package-from-base", "packaging", "the job packs the untrained model", WEIGHTS, stage="ship",
             swap=base_instead),
    Operator("package-of-base", "packaging", "the spec packs the untrained model, not the accepted one", WEIGHTS,
             spec=(("package\n    inputs: {model: train.checkpoint", "package\n    inputs: {model: model"),)),
    Operator("package-template", "packaging", "the packed chat template adds words", WEIGHTS, stage="ship",
             spoil=_template),
    Operator("package-config", "packaging", "the packed configuration computes otherwise", WEIGHTS, stage="ship",
             spoil=edit_record("out/package/config.json", lambda value: value.update(rms_norm_eps=0.1))),
    Operator("package-pickle", "packaging", "a second file of weights lies in the package", WEIGHTS, stage="ship",
             spoil=_pickle),
    Operator("package-without-tokenizer", "packaging", "a file of the tokenizer is missing", WEIGHTS, stage="ship",
             spoil=_no_tokenizer),
    Operator("invented-probes", "packaging", "answers of the package are invented", PROBES, stage="ship",
             lie=_invent_figure),
)  # fmt: skip
