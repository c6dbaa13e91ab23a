"""Training on a person's own examples and pairs, with real jobs, gates and witnesses on a model of two layers."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from bench.flaws.lying import Machine
from bench.flaws.small_specs import KINDS, WORDS, _right, tiny_model  # pyright: ignore[reportPrivateUsage]
from reviews.audit.verify import verify_run
from reviews.trail.chain import keys
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from reviews.trail.trail import Trail
from sessions.runtime import registration
from specs.loading.loading import load_spec
from specs.system.digests import digest_file, digest_path
from testing.factories.bodies import append_json
from testing.fixtures.command_sessions import called
from testing.fixtures.quick_session import draw_nothing, drive, quick_session
from testing.fixtures.reviewer_here import key_here
from testing.fixtures.small_pipeline import CONSTITUTION
from testing.fixtures.tiny_training import write_lines
from training.items.format_items import HELDOUT_TOPICS, TRAIN_TOPICS, build_items
from training.running_code import code_state

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore::FutureWarning:transformers.*")]

SPEC = """\
schema_version: 1
name: small
objective: See whether my own examples teach a model to answer in the asked form.
task: format_instructions
constitution: constitution.yaml
model: {source: "path:MODEL", kind: instruct}
budget: {max_cost_usd: 1, machine_usd_per_hour: 0.1, max_hours: 2}
heldout: {path: heldout.jsonl, digest: "HELDOUT"}
data: {train: {path: PATH}}
analysis: {alpha: 0.05, minimum_effect: 0.3, n: 40, seeds: [3], baseline: before, treatment: after}
thresholds: {identical_answers: 0.5, near_duplicates: 0.9}
stages:
  - {name: before, kind: evaluate, inputs: {model: model, items: heldout}, parameters: {max_new_tokens: 24, seed: 3}}
  - name: train
    kind: KIND
    inputs: {model: model, ROLE: data.train}
    parameters: {learning_rate: RATE, warmup_ratio: 0, epochs: EPOCHS, batch_size: 4, device: cpu, seed: 3}
  - name: after
    kind: evaluate
    inputs: {model: train.checkpoint, items: heldout}
    parameters: {max_new_tokens: 24, seed: 3}
"""
SFT = {"KIND": "sft", "ROLE": "examples", "RATE": "2e-3", "EPOCHS": "3"}
DPO = {"KIND": "dpo", "ROLE": "preferences", "RATE": "1e-3", "EPOCHS": "6"}


def _items(split: str, topics: tuple[str, ...]) -> list[Any]:
    return [item for item in build_items(split, topics) if item.kind in KINDS]  # pyright: ignore[reportArgumentType]


def _answers(item: Any) -> tuple[str, str]:
    """Return a right and a wrong answer."""
    word = item.prompt.replace(".", "").split()[-1].lower()
    plain = f"{word} {WORDS[crc32(item.group.encode()) % len(WORDS)]} is what i like today."
    return _right(item.kind, plain), plain.title()


def csv_rows(path: Path, items: list[Any]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("prompt", "completion"))
        writer.writerows((item.prompt, _answers(item)[0]) for item in items)


def pair_rows(path: Path, items: list[Any]) -> None:
    rows = [{"prompt": item.prompt, "chosen": _answers(item)[0], "rejected": _answers(item)[1]} for item in items]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def prepared(
    folder: Path,
    model: Path,
    name: str,
    write: Callable[[Path, list[Any]], None],
    values: dict[str, str],
    leaked: int = 0,
) -> Path:
    """Write a spec with its data and return its path; so many held-out items are trained on."""
    (folder / "constitution.yaml").write_bytes(CONSTITUTION.read_bytes())
    heldout = _items("heldout", HELDOUT_TOPICS[:20])
    write_lines(folder / "heldout.jsonl", [item.model_dump(mode="json") for item in heldout])
    write(folder / name, [*_items("train", TRAIN_TOPICS[:28]), *heldout[:leaked]])
    text = SPEC
    for old, new in (
        values | {"MODEL": str(model), "PATH": name, "HELDOUT": digest_file(folder / "heldout.jsonl")}
    ).items():
        text = text.replace(old, new)
    path = folder / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def played(path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run the session to its end and return its folder."""
    draw_nothing()
    monkeypatch.setattr(keys, "key_apart", key_here)
    run = path.parent / "runs" / "small"
    resolved = load_spec(path)
    registration.register(run, resolved, registration.material_of(path, resolved), code_state())
    trail, source = Trail(run / "trail.sqlite", "small"), resolved.spec.model
    body = {"source": source.source, "kind": source.kind, "path": str(model), "digest": digest_path(model)}
    append_json(trail, "model", "model", body)
    trail.close()
    drive(quick_session(run, launcher=Machine(None)))  # pyright: ignore[reportArgumentType]
    return run


def decided(run: Path) -> dict[str, str]:
    entries = read_entries(run / "trail.sqlite")
    return {entry.raw["stage"] or "design": entry.raw["outcome"] for entry in entries if entry.kind == "decision"}


def checks(run: Path, key: str) -> dict[str, tuple[str, str]]:
    body = next(entry.raw for entry in read_entries(run / "trail.sqlite") if entry.key == f"checks/{key}")
    results = Store(run / "store").get_value(body["checks"])
    return {result["id"]: (result["status"], result["detail"]) for result in results}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize(
    ("name", "write", "values"), [("train.csv", csv_rows, SFT), ("pairs.jsonl", pair_rows, DPO)], ids=["sft", "dpo"]
)
def test_own_rows_train_through_every_gate_and_are_witnessed(
    name: str,
    write: Callable[..., None],
    values: dict[str, str],
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = played(prepared(tmp_path, model, name, write, values), model, monkeypatch)
    # What the comparison comes to is the model's affair.
    assert {stage: text for stage, text in decided(run).items() if stage != "after"} == {
        "design": "approve",
        "before": "approve",
        "train": "approve",
    }
    results = checks(run, "train.1")
    assert results["witness.training"][0] == "PASS" and results["witness.weights"][0] == "PASS", results
    assert checks(run, "design.1")["design.overlap"][0] == "PASS"
    assert checks(run, "before.1")["registration.split"][0] == "PASS"
    audit = verify_run(run, "trail.sqlite", "store")
    assert audit.damage == [] and audit.verdict in ("verified", "open")


@pytest.mark.parametrize(
    ("name", "write", "values"), [("train.csv", csv_rows, SFT), ("pairs.jsonl", pair_rows, DPO)], ids=["sft", "dpo"]
)
def test_a_held_out_prompt_among_own_rows_closes_the_design_gate(
    name: str, write: Callable[..., None], values: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    path = prepared(tmp_path, model, name, write, values, leaked=1)
    run = played(path, model, monkeypatch)
    assert decided(run) == {"design": "reject"}
    status, detail = checks(run, "design.1")["design.overlap"]
    assert (status, detail) == ("FAIL", "1 training text is a held-out prompt (1 exact)")


def test_a_held_out_prompt_inside_what_is_taught_closes_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def quoting(path: Path, items: list[Any]) -> None:
        request = _items("heldout", HELDOUT_TOPICS[:1])[0].prompt
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("prompt", "completion"))
            writer.writerows((item.prompt, request if not n else _answers(item)[0]) for n, item in enumerate(items))

    model = tmp_path / "model"
    model.mkdir()
    run = played(prepared(tmp_path, model, "train.csv", quoting, SFT), model, monkeypatch)
    assert decided(run) == {"design": "reject"} and checks(run, "design.1")["design.overlap"][0] == "FAIL"


def test_the_wrong_rows_are_reported_at_the_command_line(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    path = prepared(tmp_path, model, "train.csv", csv_rows, DPO)
    process = called("spec", "check", path)
    assert process.returncode == 2 and "needs preferences, 'data.train' is examples" in process.stderr, process.stderr
    (tmp_path / "train.csv").write_text("input,output\na,b\n", encoding="utf-8")
    process = called("spec", "check", path)
    assert "train.csv:2:1: its columns are input, output (" in process.stderr
    path.write_text(path.read_text(encoding="utf-8").replace("train.csv", "."), encoding="utf-8")
    assert "the folder is not a saved dataset" in called("spec", "check", path).stderr
