"""What a job does to files of other jobs, ended ones and those to come, and designs that show little.

Written last, when the checks were as they are: these are flaws that the product did not know.
"""

from __future__ import annotations

import time
from pathlib import Path

from bench.flaws.families.rows import read_lines
from bench.flaws.lying import shake
from bench.flaws.operator import AUDIT, Operator, Row
from specs.jobs.job_records import WITNESS, ExitRecord, Manifest
from specs.stages.base.witness import ROWS, WitnessRow
from specs.system.digests import digest_path
from testing.factories.evidence_on_disk import clean_code
from testing.fixtures.tiny_training import write_lines
from training.jobs.job import Job


def _prepare_witness(job: Job) -> None:
    """Invent what the package answers, and leave a witness that agrees where the true one is going to run."""
    path = job.out / "rows.jsonl"
    rows = [row | {"expected": [7, 8, 9], "reloaded": [7, 8, 9]} for row in read_lines(path)]
    write_lines(path, rows)
    folder = job.folder.with_name(job.folder.name + WITNESS)
    (folder / "claim").mkdir(parents=True)
    read = [
        WitnessRow(row=place, part=part, tokens=3, text=True, ending=True, gap=0.0).model_dump(mode="json")
        for place in range(len(rows))
        for part in ("expected", "reloaded")
    ]
    outputs = {ROWS: digest_path(write_lines(folder / "out" / f"{ROWS}.jsonl", read))}
    grant = job.order.grant
    manifest = Manifest(
        key=folder.name, kind=grant.kind, parameters=grant.parameters, inputs=grant.inputs, outputs=outputs,
        code=job.order.code, packages={}, device="cpu", device_name="cpu", dtype="float32", threads=1, seed=3,
        tokens=6 * len(rows), wall_s=1.0, effective={}, code_state=clean_code(job.order.code),
    )  # fmt: skip
    (folder / "manifest.json").write_bytes(manifest.canonical())
    (folder / "log.txt").write_text("done\n", encoding="utf-8")
    now, log = round(time.time(), 3), digest_path(folder / "log.txt")
    record = ExitRecord(key=folder.name, code=0, reason="exited", started=now, ended=now, host="here", log=log)
    (folder / "exit.json").write_bytes(record.canonical())


def _evaluated_later(job: Job) -> None:
    """Change the weights that were evaluated, where they lie, and pack the changed ones."""
    shake(job.inputs["model"] / "model.safetensors", 0.05)


def _base_rows(job: Job) -> None:
    """Spoil the answers of the base, which has long ended, where they lie."""
    path = job.run / "jobs" / "small.before.1" / "out" / "rows.jsonl"
    rows = read_lines(path)
    write_lines(path, [row | {"output": row["output"].upper()} for row in rows])


def _one_kind_kept(rows: list[Row], _: Path) -> None:
    """Keep each example of one kind twice, so that training sees it more often."""
    rows += [row for row in rows if row["completion"].startswith('"')]


OPERATORS = (
    Operator("prepared-witness", "packaging", "answers of the package are invented, and what its witness reads too",
             ("package.probes", "witness.answers"), stage="ship", spoil=_prepare_witness),
    Operator("evaluated-later", "packaging", "the evaluated weights are changed before they are packed",
             ("package.weights", "witness.answers", "jobs.granted", AUDIT), stage="ship", swap=_evaluated_later),
    Operator("base-rows-later", "records", "the last job spoils the base's answers where they lie",
             ("jobs.outputs", AUDIT), stage="after", later=_base_rows),
    Operator("kept-twice", "samples", "examples of one kind are kept twice", ("health.accepted",), stage="sample",
             lie=_one_kind_kept, output="accepted"),
    Operator("cut-in-both", "parity", "both arms may say six tokens", ("health.truncation", "parity.truncation"),
             spec=(("max_new_tokens: 48, batch_size: 16", "max_new_tokens: 6, batch_size: 16"),)),
    Operator("loose-level", "design", "two of five sessions without an effect would be accepted: alpha is 0.4",
             ("design.power",), spec=(("alpha: 0.05", "alpha: 0.4"),)),
)  # fmt: skip
