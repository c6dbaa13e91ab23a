"""Rows that do not fit their model are reported before anything runs: length, template, tokens of the template."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from specs.loading.loading import load_spec
from specs.system.home import HOME
from testing.fixtures.command_sessions import called
from testing.fixtures.real_model import smollm2_checkpoint
from testing.fixtures.tiny_training import tiny_checkpoint
from training.planning.data_fit import DataFitFault, TokenizerUnavailable, data_faults

ROWS = [{"prompt": f"What is {n} + {n}?", "completion": str(2 * n)} for n in range(60)]
ITEMS = [{"prompt": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(60, 100)]
SPEC = """\
schema_version: 1
name: fits
seed: 7
objective: See whether rows fit the model.
task: exact_answer
model: {source: "path:model", kind: instruct}
heldout: {path: heldout.jsonl}
data: {train: {path: train.jsonl}}
analysis: {minimum_effect: 0.35}
thresholds: {items_per_kind: 1}
stages:
  - {name: before, kind: evaluate, inputs: {model: model, items: heldout}, parameters: {max_new_tokens: 32}}
  - {name: train, kind: sft, inputs: {model: model, examples: data.train}, parameters: {max_length: 80}}
  - {name: after, kind: evaluate, inputs: {model: train.checkpoint, items: heldout}, parameters: {max_new_tokens: 32}}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("fit") / "model")


def experiment(
    folder: Path, model: Path | None, train: list[dict[str, Any]] = ROWS, heldout: list[dict[str, Any]] = ITEMS
) -> Path:
    for name, rows in (("train", train), ("heldout", heldout)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "spec.yaml").write_text(SPEC, encoding="utf-8")
    if model is not None:
        (folder / "model").symlink_to(model)
    return folder / "spec.yaml"


def faults(spec: Path, model: Path | None) -> list[DataFitFault]:
    resolved = load_spec(spec)
    return list(data_faults(resolved.spec, resolved.read_data(), lambda: model))


def test_rows_that_fit_load_nothing(tmp_path: Path) -> None:
    assert faults(experiment(tmp_path, None), None) == []


def test_a_row_that_is_cut_is_a_warning_with_the_length_that_would_do(tmp_path: Path, model: Path) -> None:
    rows = [*ROWS, {"prompt": "Say a.", "completion": "a" * 66}]
    (fault,) = faults(experiment(tmp_path, model, rows), model)
    assert not fault.closing and fault.message == "1 of 61 rows are longer than 80 tokens and lose their end"
    assert fault.loc == ("stages", 1, "parameters", "max_length")
    # Exactly so many, and one fewer is too few.
    number = int(fault.hint.split()[1])
    for most, expected in ((number, 0), (number - 1, 1)):
        spec = tmp_path / "spec.yaml"
        spec.write_text(SPEC.replace("max_length: 80", f"max_length: {most}"), encoding="utf-8")
        assert len(faults(spec, model)) == expected


def test_pairs_that_are_equal_once_cut_close(tmp_path: Path, model: Path) -> None:
    same = "word " * 40
    pairs = [{"prompt": f"Say {n}.", "chosen": f"{same}good", "rejected": f"{same}bad"} for n in range(20)]
    rows = [*pairs, {"prompt": "Say b.", "chosen": "a", "rejected": "b"}]
    spec = experiment(tmp_path, model, rows)
    text = SPEC.replace("kind: sft", "kind: dpo").replace("examples: data.train", "preferences: data.train")
    spec.write_text(text, encoding="utf-8")
    (fault,) = faults(spec, model)
    assert fault.closing and "20 of 21 pairs are equal once cut to 80 tokens" in fault.message
    process = called("spec", "check", spec)
    assert process.returncode == 2 and "equal once cut" in process.stderr, process
    # With the length that is named, they are not.
    spec.write_text(text.replace("max_length: 80", f"max_length: {fault.hint.split()[1]}"), encoding="utf-8")
    assert faults(spec, model) == []


def test_a_prompt_that_fills_the_length_alone_closes(tmp_path: Path, model: Path) -> None:
    spec = experiment(tmp_path, model, [*ROWS, {"prompt": "b" * 90, "completion": "a"}])
    (fault,) = faults(spec, model)
    assert fault.closing and "1 of 61 prompts alone fill 80 tokens" in fault.message
    process = called("spec", "check", spec)
    assert process.returncode == 2 and "spec.yaml:13:" in process.stderr and "alone fill 80 tokens" in process.stderr
    assert called("start", spec, "--runs", tmp_path / "runs").returncode == 2 and not (tmp_path / "runs").exists()


def test_a_row_longer_than_the_context_is_reported_to_be_shortened(tmp_path: Path, model: Path) -> None:
    (fault,) = faults(experiment(tmp_path, model, [*ROWS, {"prompt": "b" * 600, "completion": "a"}]), model)
    assert fault.closing and fault.hint == "shorten them: the model reads 512 tokens"


def test_an_item_that_leaves_no_room_for_its_answer_closes(tmp_path: Path, model: Path) -> None:
    (fault,) = faults(experiment(tmp_path, model, heldout=[*ITEMS[:-1], {"prompt": "b" * 480, "answer": "a"}]), model)
    assert fault.loc == ("stages", 0, "inputs", "items") and "the model's context has 512" in fault.message


def test_tokens_of_the_template_in_a_text_are_a_warning(tmp_path: Path, model: Path) -> None:
    spec = experiment(tmp_path, model, [*ROWS, {"prompt": "Say <|end|> now <b>", "completion": "x"}])
    (fault,) = faults(spec, model)
    assert not fault.closing and "1 rows hold tokens of the chat template, such as <|end|>" in fault.message
    process = called("spec", "check", spec)
    assert "1 rows hold tokens of the chat template" in process.stdout, process


def test_a_template_that_refuses_a_turn_closes(tmp_path: Path, model: Path) -> None:
    system = {"role": "system", "content": "Be brief."}
    row = {"messages": [system, {"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]}
    spec = experiment(tmp_path, model, [row] * 3)
    assert faults(spec, model) == []
    refusing = tiny_checkpoint(tmp_path / "refusing")
    template = refusing / "chat_template.jinja"
    assert template.is_file()
    check = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system here') }}{% endif %}"
    template.write_text(check + template.read_text(encoding="utf-8"), encoding="utf-8")
    (fault,) = faults(spec, refusing)
    assert fault.closing and "refuses turns of system, user, assistant: no system here" in fault.message


def test_an_instruct_model_without_a_template_closes(tmp_path: Path, model: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(model, bare)
    (bare / "chat_template.jinja").unlink()
    (fault,) = faults(experiment(tmp_path, bare), bare)
    assert fault.closing and fault.loc == ("model", "kind") and "has no chat template" in fault.message
    process = called("spec", "check", tmp_path / "spec.yaml")
    assert process.returncode == 2 and "spec.yaml:6:37: model.kind: the model is declared instruct" in process.stderr
    (tmp_path / "spec.yaml").write_text(SPEC.replace("kind: instruct", "kind: base"), encoding="utf-8")
    assert faults(tmp_path / "spec.yaml", bare) == []


def test_without_the_model_it_is_said_that_nothing_was_checked(tmp_path: Path) -> None:
    spec = experiment(tmp_path, None, [*ROWS, {"prompt": "b" * 90, "completion": "a"}])
    with pytest.raises(TokenizerUnavailable, match="path:model"):
        faults(spec, None)


def test_text_in_brackets_loads_no_tokenizer_unless_it_is_a_token(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(_: Path) -> None:
        raise ValueError("the library is loaded")

    monkeypatch.setattr("training.engines.checkpoint.tokenizer_in", never)
    for name, text in (("free", "Say <b>now</b> [INST]"), ("token", "Say <|end|>")):
        (tmp_path / name).mkdir()
        spec = experiment(tmp_path / name, model, [*ROWS, {"prompt": text, "completion": "x"}])
        if name == "free":
            assert faults(spec, model) == []
        else:
            with pytest.raises(TokenizerUnavailable):
                faults(spec, model)


@pytest.mark.parametrize("config", [None, b"{", b"[]", b"\xff", b'{"max_position_embeddings": "long"}'])
def test_a_model_without_a_readable_configuration_ends_in_no_traceback(
    tmp_path: Path, model: Path, config: bytes | None
) -> None:
    """Whether rows fit is not known then; the file itself is named where it is malformed."""
    own = Path(shutil.copytree(model, tmp_path / "own"))
    (own / "config.json").unlink()
    if config is not None:
        (own / "config.json").write_bytes(config)
    assert {fault.loc for fault in faults(experiment(tmp_path, own), own)} <= {("model", "source")}
    done = called("spec", "check", tmp_path / "spec.yaml")
    assert "Traceback" not in done.stderr and "Error:" not in done.stderr, done.stderr


@pytest.mark.parametrize("spec", ["demo", "cai_demo"])
def test_the_check_of_a_shipped_spec_imports_no_torch(spec: str) -> None:
    """Not for items in several turns either, of a model that is here."""
    smollm2_checkpoint()
    code = (
        f"import sys\nsys.argv = ['peergate', 'spec', 'check', '{spec}']\nfrom sessions.commands.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print([name for name in ('torch', 'transformers', 'datasets') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=HOME, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "design gate: approve" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
