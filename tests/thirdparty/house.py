"""An environment of a test's own in which other distributions are installed, and the small session that uses them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from hatchling.builders.wheel import WheelBuilder

from specs.system.digests import digest_file
from testing.fixtures.small_text import small_model

HERE = Path(__file__).parent
KEYS = ("alpha beta", "red blue", "north south", "bread salt", "left right", "day night", "sun moon", "owl bee")

DECODING = {"max_new_tokens": 24, "batch_size": 16, "stops": ["e"], "seed": 3}
"""A random model ends by no token; some of its answers end by a letter."""
SPEC: dict[str, Any] = {
    "schema_version": 1,
    "name": "third",
    "objective": "Run a session whose task, training kind and launcher other distributions bring.",
    "task": "json_keys",
    "constitution": "constitution.yaml",
    "model": {"source": "path:model", "kind": "instruct"},
    "budget": {"max_cost_usd": 1.0, "machine_usd_per_hour": 0.1, "max_hours": 2},
    "data": {"pairs": {"path": "pairs.jsonl"}},
    "thresholds": {
        "truncated_answers": 0.99,
        "label_answers": 1.0,
        "identical_answers": 0.95,
        "empty_answers": 0.5,
        "items_per_kind": 1,
    },
    "analysis": {
        "alpha": 0.05,
        "minimum_effect": 0.4,
        "expected_lost": 0.01,
        "power": 0.5,
        "n": 16,
        "seeds": [3],
        "baseline": "before",
        "treatment": "after",
    },
    "stages": [
        {
            "name": "before",
            "kind": "evaluate",
            "inputs": {"model": "model", "items": "heldout"},
            "parameters": DECODING,
        },
        {
            "name": "rewards",
            "kind": "reward_model",
            "inputs": {"model": "model", "pairs": "data.pairs"},
            "parameters": {"learning_rate": 0.01, "seed": 3},
            "gate": {"criteria": [{"metric": "reward_loss", "at_most": 5}]},
        },
        {
            "name": "after",
            "kind": "evaluate",
            "inputs": {"model": "rewards.checkpoint", "items": "heldout"},
            "parameters": DECODING,
        },
    ],
}


def environment(folder: Path, *distributions: str) -> Path:
    """Make an environment that has what this one has and these distributions; returns its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    here = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    brought = folder / "brought"
    brought.mkdir()
    ours = sysconfig.get_path("purelib")
    (here / "ours.pth").write_text(f"{brought}\nimport site; site.addsitedir({ours!r})\n", encoding="utf-8")
    install(folder, *(HERE / name for name in distributions))
    return folder / "bin" / "python"


def install(folder: Path, *sources: Path) -> None:
    """Build distributions and install them into an environment, without the network."""
    wheels: list[str] = []
    for source in sources:
        copy = folder / "sources" / source.name
        shutil.copytree(source, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        # As `pip install` has it done by the distribution's build backend, in a process of its own.
        wheels += WheelBuilder(str(copy)).build(directory=str(folder / "wheels"), versions=["standard"])
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-compile"]
    command += ["--disable-pip-version-check", "--target", str(folder / "brought"), *wheels]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def peergate(python: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command line in an environment."""
    command = [str(python), "-m", "sessions.commands.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=dict(os.environ))


@contextmanager
def changed(file: Path, text: str) -> Generator[None]:
    """Have another text in a file for the time of the context, each with a time of its own: bytecode is kept by it."""
    before = file.read_text(encoding="utf-8")
    try:
        _write_anew(file, text)
        yield
    finally:
        _write_anew(file, before)


def _write_anew(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    os.utime(file, (moment := next(_MOMENTS), moment))


_MOMENTS = count(1_700_000_000)


def write_session(folder: Path, **changes: Any) -> Path:
    """Write the spec with its data and a random model; returns the spec."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(HERE.parents[1] / "constitution.yaml", folder / "constitution.yaml")
    if not (folder / "model").exists():
        small_model(folder / "model", chat=True)
    requests = [(f"Answer {n} in JSON with the keys {key}, please.", {"keys": key}) for n, key in enumerate(KEYS * 2)]
    _write(folder / "heldout.jsonl", [_item(n, prompt, keys) for n, (prompt, keys) in enumerate(requests)])
    pairs = [(f"Say {n} things about {key}.", {"better": '{"a": 1}', "worse": "no"}) for n, key in enumerate(KEYS)]
    _write(folder / "pairs.jsonl", [_item(100 + n, prompt, answers) for n, (prompt, answers) in enumerate(pairs)])
    heldout = {"path": "heldout.jsonl", "digest": digest_file(folder / "heldout.jsonl")}
    path = folder / "third.yaml"
    path.write_text(json.dumps(SPEC | {"heldout": heldout} | changes), encoding="utf-8")
    return path


def _item(number: int, prompt: str, constraint: dict[str, str]) -> dict[str, Any]:
    return {"id": f"i{number}", "group": f"g{number}", "kind": "keys", "prompt": prompt, "constraint": constraint}


def _write(path: Path, items: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
