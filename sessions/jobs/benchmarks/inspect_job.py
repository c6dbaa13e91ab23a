"""A task of inspect_ai as a job: the task in a sandbox, the model here, and a socket between them."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from sessions.jobs.benchmarks import environment
from sessions.jobs.sandbox import sandbox
from sessions.jobs.sandbox.recipe_job import SCRIPT, STARTER, run_script
from specs.confinement import bubblewrap
from specs.digests import digest_bytes, digest_file
from specs.errors import Blocked
from specs.stages.evaluation.parameters import InspectParameters
from specs.stages.recipes.parameters import RecipeParameters
from training.engines.completion_server import CompletionServer, Granted
from training.engines.engine_factory import make_engine
from training.jobs.evaluation.inspect_rows import rows_of, write_items
from training.jobs.job import Done, Job, refuse
from training.rules.evaluation.inspect_log import NAME, NotALog, read_log
from training.rules.prompt_encoding import dialogue_ids, form_of
from training.rules.tasks import load_items

PROCESSES = 256
"""Threads are counted too: the library starts up to one for each processor, and some for files."""
_DRIVER = Path(__file__).with_name("inspect_interpreter.py")


def inspect(job: Job[InspectParameters]) -> Done:
    """Write ``rows`` and ``log``; ends the process if the task fails, breaks a limit, or left the items out."""
    given = job.parameters
    script = job.folder / SCRIPT
    if given.code is not None and (not script.is_file() or digest_file(script) != given.code):
        refuse(f"{job.order.key}: the script is not the granted one")
    try:
        library = environment.find()
    except Blocked as error:
        refuse(f"{job.order.key}: {error}")
    host = bubblewrap.this_host(library.python, library.prefixes)
    if (why := sandbox.why_not(host)) or host is None:
        refuse(f"{job.order.key}: {why}")
    items, form = load_items(job.inputs["items"]), form_of(job.order.declared())
    engine = make_engine(given.engine, job.inputs["model"], given.batch_size, scratch=job.folder, share=False)
    granted = Granted(given.max_new_tokens, given.temperature, given.seed, given.batch_size)
    # A socket's path has to be short.
    with tempfile.TemporaryDirectory(prefix="peergate-") as name:
        folder = Path(name)
        try:
            write_items(items, folder / "items.jsonl")
        except ValueError as error:
            raise SystemExit(f"inspect: {error}") from None
        server = CompletionServer(
            engine,
            lambda messages: dialogue_ids(engine.tokenizer, messages, form).ids,
            granted,
            folder / "socket",
            # A task may ask several times for an item; how often is not known before.
            lambda answers: job.progress(min(answers, len(items)), len(items), "items"),
        )
        settings: dict[str, Any] = {
            "task": given.task,
            "args": given.args,
            "key": server.key,
            "at_once": given.batch_size,
        }
        (folder / "settings").write_text(json.dumps(settings), encoding="utf-8")
        with server:
            left_out = _run(job, host, folder, script if given.code else None)
    log = _keep_log(job)
    try:
        rows = rows_of(read_log(log), items, server.calls, given.score)
    except (NotALog, ValueError) as error:
        raise SystemExit(f"inspect: {error}") from None
    job.write_rows("rows", rows)
    template = engine.tokenizer.chat_template or ""
    opening = dialogue_ids(engine.tokenizer, _said(rows[0].calls[0]), form).ids
    return Done(
        engine.device,
        engine.dtype,
        sum(row.output_tokens for row in rows),
        given.model_dump(mode="json")
        | {"engine": engine.name, "decoding": "sampled" if given.temperature else "greedy", "form": form},
        engine.stated()
        | {"chat_template": digest_bytes(template.encode()), "first_prompt_ids": opening[:64]}
        | {"inspect": library.stated() | {"sandbox": bubblewrap.version(host), "log_bytes_left_out": left_out}},
    )


def _said(call: Any) -> list[dict[str, str]]:
    return [{"role": one.role, "content": one.content} for one in call.messages]


def _run(job: Job[InspectParameters], host: bubblewrap.Host, folder: Path, script: Path | None) -> int:
    """Run the task in a sandbox that reaches nothing but the socket; return the bytes of its log that were not kept."""
    given = job.parameters
    inputs = {name: folder / name for name in ("items.jsonl", "settings", "socket")}
    if script is not None:
        inputs["task.py"] = script
    limits = RecipeParameters(
        memory_mb=given.memory_mb, output_mb=given.output_mb, processes=PROCESSES, seed=given.seed
    )
    work = sandbox.Work(_DRIVER, STARTER, inputs)
    with bubblewrap.refused_calls() as refusing:
        ran = run_script(
            job,
            limits,
            {"code": sandbox.CODE, "out": sandbox.OUT},
            lambda told: sandbox.arguments(host, work, limits, [told], refusing),
            {},
            (refusing,),
        )
    return ran.log_left_out


def _keep_log(job: Job[InspectParameters]) -> Path:
    """Keep the log of all that the sandbox left, and return where it is."""
    left, kept = job.out / "files", job.out / "log"
    kept.mkdir()
    found = left / NAME
    if not found.is_file():
        raise SystemExit("inspect: the task left no log")
    found.rename(kept / NAME)
    shutil.rmtree(left)
    return kept / NAME
