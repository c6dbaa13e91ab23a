"""Records of jobs that are false, and files changed after the fact."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.flaws.operator import AUDIT, Operator
from training.jobs.job import Job


def edit_record(name: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Job], None]:
    """Return what changes a JSON file of a job's folder, or makes it."""

    def edit(job: Job) -> None:
        path = job.folder / name
        result = json.loads(path.read_bytes()) if path.exists() else {}
        change(result)
        path.write_text(json.dumps(result, sort_keys=True, separators=(",", ":")), encoding="utf-8")

    return edit


def _older_torch(manifest: dict[str, Any]) -> None:
    manifest["packages"]["torch"] = "1.13.1"


def _gpu(manifest: dict[str, Any]) -> None:
    manifest["device"] = "cuda:0"
    manifest["device_name"] = "NVIDIA H100 80GB HBM3"


def _other_code(manifest: dict[str, Any]) -> None:
    manifest["code"] = f"sha256:{'0' * 64}"


def _other_seed(manifest: dict[str, Any]) -> None:
    manifest["seed"] = 4


def _long_work(manifest: dict[str, Any]) -> None:
    manifest["wall_s"] = 5000.0


def _backwards(record: dict[str, Any]) -> None:
    record["ended"] = record["started"] - 500


def _earlier(record: dict[str, Any]) -> None:
    record["started"] -= 7200
    record["ended"] -= 7200


def _rows_later(job: Job) -> None:
    _replace(job.out / "rows.jsonl", b'"output":"', b'"output":"x')


def _replace(path: Path, before: bytes, after: bytes) -> None:
    data = path.read_bytes()
    if before not in data:
        raise AssertionError(f"{before!r} is not in {path.name}")
    path.write_bytes(data.replace(before, after, 1))


def _rows_after_close(run: Path) -> None:
    _replace(run / "jobs" / "small.after.1" / "out" / "rows.jsonl", b'"output":"', b'"output":"x')


def _report_after_close(run: Path) -> None:
    _replace(run / "report" / "report.md", b"accepted", b"ACCEPTED")


def _weights_after_close(run: Path) -> None:
    path = run / "jobs" / "small.train.1" / "out" / "checkpoint" / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


OPERATORS = (
    Operator("said-dtype", "records", "the training says another precision",
             ("jobs.effective", "jobs.device", "witness.training"), stage="train", manifest={"dtype": "bfloat16"}),
    Operator("said-device", "records", "the training says that it had a GPU", ("jobs.device",), stage="train",
             later=edit_record("manifest.json", _gpu)),
    Operator("said-tokens", "records", "the treatment says ten tokens", ("jobs.measured",), stage="after",
             manifest={"tokens": 10}),
    Operator("said-threads", "records", "the treatment says 64 threads", ("parity.settings",), stage="after",
             manifest={"threads": 64}),
    Operator("said-packages", "records", "the treatment says an older torch", ("parity.settings",), stage="after",
             later=edit_record("manifest.json", _older_torch)),
    Operator("said-code", "records", "the training says another code", ("provenance.code",), stage="train",
             later=edit_record("manifest.json", _other_code)),
    Operator("said-seed", "records", "the training says another seed", ("jobs.effective",), stage="train",
             later=edit_record("manifest.json", _other_seed)),
    Operator("said-work", "records", "the manifest states more work than its process lived", ("jobs.times",),
             stage="train", later=edit_record("manifest.json", _long_work)),
    Operator("time-backwards", "records", "the job ended before it began, and cost nothing", ("jobs.clock",),
             stage="train", later=edit_record("exit.json", _backwards)),
    Operator("other-hours", "records", "the exit record is of two hours before the launch", ("jobs.times",),
             stage="train", later=edit_record("exit.json", _earlier)),
    Operator("rows-after-manifest", "records", "an answer is edited when the job has ended", ("jobs.outputs",),
             stage="after", later=_rows_later),
    Operator("rows-after-close", "records", "an answer is edited when the session has closed", (AUDIT,),
             tamper=_rows_after_close),
    Operator("report-after-close", "records", "the report is edited when the session has closed", (AUDIT,),
             tamper=_report_after_close),
    Operator("weights-after-close", "records", "weights are edited when the session has closed", (AUDIT,),
             tamper=_weights_after_close),
)  # fmt: skip
