"""A task of another library as a job: its code in a sandbox, the model here, and a socket between them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sessions.jobs.benchmarks.environment import Environment
from sessions.jobs.sandbox import sandbox
from sessions.jobs.sandbox.recipe_job import SCRIPT, STARTER, run_script
from specs.stages.base.artifacts import Item
from specs.stages.evaluation.parameters import BenchmarkParameters
from specs.stages.recipes.parameters import RecipeParameters
from specs.system.confinement import bubblewrap
from specs.system.digests import digest_bytes, digest_file
from training.engines.completion_server import CompletionLimits, CompletionServer
from training.engines.engine_factory import make_engine
from training.jobs.evaluation.benchmark_rows import encoder_of, rows_of
from training.jobs.job import Job, StageResult, refuse
from training.rules.evaluation.inspect_log import NAME, NotALog, read_log
from training.rules.prompt_encoding import form_of
from training.rules.tasks import load_items

PROCESSES = 256
"""Threads are counted too: a library starts up to one for each processor, and some for files."""


class Harness(NamedTuple):
    """How a library carries a task out."""

    name: str
    library: Environment
    host: bubblewrap.Host | None
    """Where its interpreter is mounted; None without bubblewrap."""
    driver: Path
    """What its interpreter runs in the sandbox."""
    write_items: Callable[[Sequence[Item], Path], None]
    """Writes the items as the library reads them; raises ValueError."""
    settings: dict[str, Any]
    script: Path | None
    """The task's script, where the library reads it as it is."""
    keep_log: Callable[[Path, Path, Sequence[Item]], None]
    """Makes the log of a folder's files, at a path; raises ValueError."""


def require_script(job: Job[Any]) -> Path | None:
    """Return the script of a job, None without one; ends the process if it is not the granted one."""
    script, code = job.folder / SCRIPT, job.parameters.code
    if code is not None and (not script.is_file() or digest_file(script) != code):
        refuse(f"{job.order.key}: the script is not the granted one")
    return script if code is not None else None


def serve(job: Job[Any], harness: Harness) -> StageResult:
    """Write ``rows`` and ``log``; ends the process if the task fails, breaks a limit, or left the items out."""
    parameters: BenchmarkParameters = job.parameters
    name, host = harness.name, harness.host
    if (why := sandbox.why_not(host)) or host is None:
        refuse(f"{job.order.key}: {why}")
    items, epochs = load_items(job.inputs["items"]), harness.settings.get("epochs", 1)
    counted = "items" if epochs == 1 else "answers"
    engine = make_engine(parameters.engine, job.inputs["model"], parameters.batch_size, scratch=job.folder, share=False)
    encode = encoder_of(job, engine.tokenizer)
    granted = CompletionLimits(
        parameters.max_new_tokens, parameters.temperature, parameters.seed, parameters.batch_size
    )
    # A socket's path has to be short.
    with tempfile.TemporaryDirectory(prefix="peergate-") as folder_name:
        folder = Path(folder_name)
        try:
            harness.write_items(items, folder / "items.jsonl")
        except ValueError as error:
            raise SystemExit(f"{name}: {error}") from None
        server = CompletionServer(
            engine,
            encode,
            granted,
            folder / "socket",
            # A task may ask several times for an item; how often is not known before.
            lambda answers: job.progress(min(answers, epochs * len(items)), epochs * len(items), counted),
        )
        settings = harness.settings | {"key": server.key, "at_once": parameters.batch_size, "seed": parameters.seed}
        (folder / "settings").write_text(json.dumps(settings), encoding="utf-8")
        with server:
            left_out = _run(job, host, folder, harness)
    log = job.out / "log" / NAME
    log.parent.mkdir()
    try:
        harness.keep_log(job.out / "files", log, items)
        rows = rows_of(read_log(log), items, server.calls, harness.settings["score"], epochs)
    except (NotALog, ValueError) as error:
        raise SystemExit(f"{name}: {error}") from None
    job.write_rows("rows", rows)
    template = engine.tokenizer.chat_template or ""
    opening = encode(
        [
            {"role": issued_verdict.role, "content": issued_verdict.content}
            for issued_verdict in rows[0].calls[0].messages
        ]
    )
    ran = {"name": name, "sandbox": bubblewrap.version(host), "log_bytes_left_out": left_out}
    return StageResult(
        engine.device,
        engine.dtype,
        sum(row.output_tokens for row in rows),
        parameters.model_dump(mode="json")
        | {
            "engine": engine.name,
            "decoding": "sampled" if parameters.temperature else "greedy",
            "form": form_of(job.order.model_kind),
        },
        engine.describe_for_manifest()
        | {"chat_template": digest_bytes(template.encode()), "first_prompt_ids": opening[:64]}
        | {"library": harness.library.describe_for_manifest() | ran},
    )


def _run(job: Job[Any], host: bubblewrap.Host, folder: Path, harness: Harness) -> int:
    """Run the task in a sandbox that reaches nothing but the socket; return the bytes of its log that were not kept."""
    parameters: BenchmarkParameters = job.parameters
    inputs = {name: folder / name for name in ("items.jsonl", "settings", "socket")}
    if harness.script is not None:
        inputs["task.py"] = harness.script
    limits = RecipeParameters(
        memory_mb=parameters.memory_mb, output_mb=parameters.output_mb, processes=PROCESSES, seed=parameters.seed
    )
    work = sandbox.RecipeFiles(harness.driver, STARTER, inputs)
    with bubblewrap.refused_calls() as refusing:
        ran = run_script(
            job,
            limits,
            {"code": sandbox.CODE, "out": sandbox.OUT},
            lambda message: sandbox.arguments(host, work, limits, [message], refusing),
            {},
            (refusing,),
        )
    return ran.log_left_out
