"""An export is read by llama.cpp itself, in a process of its own: the same token ids, the same next tokens."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from reviews.checks.job_endings import ending_of
from specs.loading.loading import load_spec
from specs.stages.base.artifacts import Item
from specs.stages.packaging import parameters as packaging_parameters
from specs.stages.packaging.parameters import BARS, PACKAGE, ExportParameters, GgufFormat
from specs.stages.packaging.rows import ExportRow, ExportTextRow
from testing.factories.spec_files import write_spec
from testing.fixtures.command_sessions import called
from testing.fixtures.critic_jobs import lines
from testing.fixtures.small_text import small_model
from testing.fixtures.stage_jobs import stage_job
from testing.fixtures.tiny_qwen import tiny_qwen
from training.engines.gguf_file import write_gguf
from training.engines.gguf_weights import NoGguf
from training.jobs.job import Job
from training.jobs.packaging.export import FILE, export
from training.jobs.row_files import read_rows
from training.rules.packaging.checkpoint_folder import CheckpointFolder
from training.rules.packaging.gguf_header import read_header
from training.rules.packaging.gguf_rules import gguf as gguf_rules
from training.rules.packaging.gguf_values import values as gguf_values
from training.rules.packaging.tokenizer_texts import TEXTS

pytest.importorskip("gguf", reason="the package gguf is not installed (extra demo)")
READ = pytest.mark.skipif(find_spec(PACKAGE) is None, reason=f"{PACKAGE} is not installed (make -f more.mk test-gguf)")
ITEMS = [
    Item(id=f"i{n}", group=f"g{n}", kind="lowercase", prompt=text, constraint={})
    for n, text in enumerate(("tell a tale of 12 suns", "name 100 seas in 2024"))
]
MODELS = {"llama": partial(small_model, chat=True), "qwen2": tiny_qwen, "qwen3": partial(tiny_qwen, generation=3)}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: make(folder / name) for name, make in MODELS.items()}


def job_of(folder: Path, model: Path, **arguments: Any) -> Job[ExportParameters]:
    inputs = {"model": model, "items": lines(folder / "items.jsonl", ITEMS)}
    return stage_job(folder / "run", "export", inputs, "instruct", probe_items=2, max_new_tokens=6, **arguments)


@READ
@pytest.mark.parametrize("format", BARS)
@pytest.mark.parametrize("model", MODELS)
def test_llama_cpp_reads_the_same_text_and_continues_it_likewise(
    model: str, format: GgufFormat, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    job = job_of(tmp_path, checkpoints[model], format=format, verify="llama_cpp")
    done = export(job)
    texts = read_rows(job.out / "texts.jsonl", ExportTextRow)
    assert len(texts) == len(TEXTS) + 2 and [row.text for row in texts if row.expected != row.read] == []
    rows = read_rows(job.out / "rows.jsonl", ExportRow)
    assert [row.item for row in rows] == ["i0", "i1"] and any(row.expected for row in rows)
    assert max(row.largest or 0 for row in rows) < BARS[format].largest_distance
    if format == "f32":
        assert all(row.expected == row.read for row in rows)
        assert max(row.divergence or 0 for row in rows) < BARS[format].mean_divergence
    else:
        assert min(row.largest or 0 for row in rows) > 0
    assert set(done.facts["tensors"]) == {"f32", format} and "llama.cpp" in done.facts["read_by"]
    assert list(gguf_rules(CheckpointFolder(checkpoints[model]), job.out / "export" / FILE)) == []


@READ
def test_a_file_that_llama_cpp_refuses_ends_the_job_with_its_reason(
    checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def spoiled(folder: Path, target: Path, *_: Any, **__: Any) -> dict[str, int]:
        target.write_bytes(b"GGUF" + b"\0" * 60)
        return {}

    monkeypatch.setattr("training.jobs.packaging.export.write_gguf", spoiled)
    with pytest.raises(SystemExit, match=r"reads the export with .* ended with exit code"):
        export(job_of(tmp_path, checkpoints["llama"], verify="llama_cpp"))
    assert "gguf" in capfd.readouterr().err.lower()


@pytest.mark.parametrize(
    ("log", "ending"),
    [
        ("ModuleNotFoundError: No module named 'cyllama'", "package"),
        ("OSError: [Errno 28] No space left on device", "disk"),
        ("MemoryError", "memory"),
    ],
)
def test_a_reader_that_could_not_run_says_nothing_of_the_file(
    log: str, ending: str, checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "python"
    child.write_text(f'#!/bin/sh\necho "{log}"\nexit 1\n', encoding="utf-8")
    child.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(child))
    with pytest.raises(SystemExit) as raised:
        export(job_of(tmp_path, checkpoints["llama"], verify="llama_cpp"))
    message = str(raised.value)
    assert message.endswith(f"exit code 1: {log}") and "cannot" not in message
    assert ending_of("exited", message).name == ending


def test_without_a_reading_the_file_is_written_and_the_answers_are_there(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    job = job_of(tmp_path, checkpoints["llama"], format="q8_0", verify="no")
    done = export(job)
    rows = read_rows(job.out / "rows.jsonl", ExportRow)
    assert (job.out / "texts.jsonl").read_bytes() == b"" and all(row.expected for row in rows)
    assert {row.read for row in rows} == {None}
    assert "read_by" not in done.facts
    header = read_header(job.out / "export" / FILE)
    assert header.metadata["tokenizer.ggml.pre"] == "gpt-2" and header.metadata["tokenizer.chat_template"]
    assert {tensor.dtype for tensor in header.tensors.values()} == {"F32", "Q8_0"}


@pytest.mark.parametrize("format", BARS)
@pytest.mark.parametrize("model", MODELS)
def test_the_file_holds_the_numbers_of_the_checkpoint(
    model: str, format: GgufFormat, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    file = tmp_path / FILE
    write_gguf(checkpoints[model], file, format, vocabulary=True)
    folder = CheckpointFolder(checkpoints[model])
    assert not list(gguf_values(folder, file)) and not list(gguf_rules(folder, file))
    # One number of one tensor, by more than its type rounds it to.
    norms = ("blk.1.attn_q_norm.weight", "blk.0.attn_k_norm.weight") if model == "qwen3" else ()
    for name in ("token_embd.weight", "blk.0.attn_q.weight", "blk.1.ffn_down.weight", "output_norm.weight", *norms):
        spoilt = Path(shutil.copy(file, tmp_path / "spoilt.gguf"))
        tensor = read_header(spoilt).tensors[name]
        width = {"F32": 4, "F16": 2, "Q8_0": 1}[tensor.dtype]
        data = bytearray(spoilt.read_bytes())
        data[tensor.end - 1] ^= 0x40 if width == 1 else 0x80  # A sign; of 8 bits, half of the range.
        spoilt.write_bytes(data)
        (flaw,) = gguf_values(folder, spoilt)
        assert flaw.name == "values" and name in flaw.description and flaw.file == "spoilt.gguf" and flaw.fix, name


@pytest.mark.parametrize("format", BARS)
def test_another_models_numbers_and_rows_in_another_order_are_found(
    format: GgufFormat, checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = small_model(tmp_path / "other", chat=True, seed=3)
    write_gguf(other, tmp_path / FILE, format, vocabulary=True)
    flaws = list(gguf_values(CheckpointFolder(checkpoints["llama"]), tmp_path / FILE))
    assert len(flaws) == 5 and {flaw.name for flaw in flaws} == {"values"}

    def unturned(values: Any, _: int) -> Any:
        return values

    monkeypatch.setattr("training.engines.gguf_weights._interleave_heads", unturned)
    write_gguf(checkpoints["llama"], tmp_path / "rows.gguf", format, vocabulary=True)
    flaws = list(gguf_values(CheckpointFolder(checkpoints["llama"]), tmp_path / "rows.gguf"))
    assert flaws and all(".attn_q." in flaw.description or ".attn_k." in flaw.description for flaw in flaws)


BYTES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "architecture": (lambda data: data.replace(b"llama", b"Llama", 1), "architecture"),
    "truncated": (lambda data: data[: len(data) * 3 // 4], "unreadable"),
    "no end token": (lambda data: data.replace(b"ggml.eos_token_id", b"ggml.xxx_token_id"), "end_token"),
}
"""What is done to the bytes of a good file, and the rule that finds it."""


@pytest.mark.parametrize("name", BYTES)
def test_ship_check_names_layer_file_and_mend_of_a_spoilt_export(
    name: str, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(checkpoints["llama"], tmp_path / "model"))
    write_gguf(folder, folder / FILE, "f16", vocabulary=True)
    assert called("ship", "check", folder, "--files-only").returncode == 0
    change, rule = BYTES[name]
    data = (folder / FILE).read_bytes()
    assert change(data) != data
    (folder / FILE).write_bytes(change(data))
    done = called("ship", "check", folder, "--files-only", "--json")
    assert done.returncode == 3
    layers = {layer["layer"]: layer for layer in json.loads(done.stdout)["layers"]}
    assert {layer for layer, item in layers.items() if item["status"] == "FAIL"} == {"gguf"}
    flaw = layers["gguf"]["flaws"][0]
    assert (flaw["name"], flaw["file"]) == (rule, FILE) and flaw["fix"] == "export the checkpoint again"


def test_ship_check_finds_the_vocabulary_of_another_model(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(checkpoints["llama"], tmp_path / "model"))
    write_gguf(
        small_model(tmp_path / "other", chat=True, text="other words of another book"),
        folder / FILE,
        "f32",
        vocabulary=True,
    )
    done = called("ship", "check", folder, "--files-only", "--json")
    results = {flaw["name"] for layer in json.loads(done.stdout)["layers"] for flaw in layer["flaws"]}
    assert done.returncode == 3 and "vocabulary" in results, results


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"pre_tokenizer": {"type": "Whitespace"}}, "splits text by Whitespace"),
        ({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True}}, "with a space before"),
        ({"normalizer": {"type": "Lowercase"}}, "normalises text"),
    ],
)
def test_a_tokenizer_that_llama_cpp_would_read_otherwise_is_refused(
    change: dict[str, Any], why: str, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    model = Path(shutil.copytree(checkpoints["llama"], tmp_path / "model"))
    path = model / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | change), encoding="utf-8")
    with pytest.raises(SystemExit, match=why):
        export(job_of(tmp_path, model, verify="no"))


def test_values_beyond_16_bits_are_refused(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    from training.engines import gguf_file

    model = Path(shutil.copytree(checkpoints["llama"], tmp_path / "model"))
    from safetensors.torch import load_file, save_file

    record = load_file(model / "model.safetensors")
    record["model.layers.0.mlp.up_proj.weight"][0, 0] = 70_000
    save_file(record, model / "model.safetensors")
    gguf_file.write_gguf(model, tmp_path / "whole.gguf", "f32", vocabulary=True)
    with pytest.raises(NoGguf, match="values that f16 cannot"):
        gguf_file.write_gguf(model, tmp_path / "half.gguf", "f16", vocabulary=True)


SPOILT: dict[str, tuple[str, str]] = {
    "another architecture": ("architecture", "general.architecture"),
    "no pre-tokenizer": ("missing_key", "tokenizer.ggml.pre"),
    "another pre-tokenizer": ("pre_tokenizer", "gpt-2"),
    "no kind of tokenizer": ("missing_key", "tokenizer.ggml.model"),
    "no rope base": ("missing_key", "rope.freq_base"),
    "no head count of keys": ("missing_key", "head_count_kv"),
    "no vocabulary": ("no_vocabulary", "tokenizer.ggml.tokens"),
    "another end token": ("end_token", "eos_token_id"),
    "no chat template": ("template", "chat_template"),
    "one layer more": ("other_key", "block_count"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_what_llama_cpp_would_load_or_misread_is_found_in_the_file(
    name: str, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    """The header is written again with one key renamed or one value changed; lengths stay, so offsets do."""
    from training.engines.gguf_file import write_gguf

    path = tmp_path / "model.gguf"
    write_gguf(checkpoints["llama"], path, vocabulary=True)
    assert list(gguf_rules(CheckpointFolder(checkpoints["llama"]), path)) == []
    data, (rule, key) = path.read_bytes(), SPOILT[name]
    if name == "another architecture":
        data = data.replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0Llama", 1)
    elif name == "another pre-tokenizer":
        data = data.replace(b"\x05\0\0\0\0\0\0\0gpt-2", b"\x05\0\0\0\0\0\0\0qwen2", 1)
    elif name in ("another end token", "one layer more"):
        at = data.index(key.encode()) + len(key) + 4
        data = data[:at] + bytes([data[at] + 1]) + data[at + 1 :]
    else:
        data = data.replace(key.encode(), b"x" * len(key), 1)
    path.write_bytes(data)
    assert rule in {flaw.name for flaw in gguf_rules(CheckpointFolder(checkpoints["llama"]), path)}


@pytest.mark.parametrize(("installed", "registered"), [(True, "llama_cpp"), (False, "not_installed")])
def test_what_is_installed_is_registered(
    installed: bool, registered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packaging_parameters, "is_installed", lambda: installed)
    added = "        - {metric: identical_outputs, at_least: 1}\n"
    stage = "  - name: gguf\n    kind: export\n    inputs: {model: train.checkpoint, items: heldout}\n"
    stage += "    parameters: {seed: 7}\n"
    spec = load_spec(write_spec(tmp_path, (added, added + stage))).spec
    assert spec.stage("gguf").parameters.verify == registered
