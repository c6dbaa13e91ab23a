"""The tokenizer of a GGUF file without its weights, so that rows can be checked before a checkpoint is converted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from filelock import FileLock

from specs.system.digests import digest_value
from specs.system.new_folder import new_folder
from training.jobs.base_model import CONVERTERS, SourceError, gguf_tokenizer


def tokenizer_folder(gguf: Path, cache: Path) -> Path:
    """Return a folder with the tokenizer and the context of a model, made if needed.

    Raises:
        SourceError, ImportError: the tokenizer is unknown, or a library that reads it is missing.
        OSError, ValueError: the file cannot be read, or the cache cannot be written.
    """
    from importlib.metadata import PackageNotFoundError, version

    try:
        versions = [[name, version(name)] for name in CONVERTERS]
    except PackageNotFoundError as error:
        raise SourceError(f"the package {error.name} is not installed") from error
    status = gguf.stat()
    key = digest_value([str(gguf), status.st_size, str(status.st_mtime_ns), versions]).removeprefix("sha256:")[:16]
    target = cache / "tokenizers" / f"{gguf.stem}-{key}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(f".{target.name}.lock")):
        if not target.is_dir():
            with new_folder(target) as partial:
                gguf_tokenizer(gguf).save_pretrained(partial)
                (partial / "config.json").write_text(json.dumps({"max_position_embeddings": _context(gguf)}), "utf-8")
    return target


def _context(gguf: Path) -> int | None:
    """Return how many tokens a model reads."""
    from gguf import GGUFReader

    fields: dict[str, Any] = GGUFReader(gguf).fields
    lengths = [field.contents() for name, field in fields.items() if name.endswith(".context_length")]
    return int(lengths[0]) if lengths else None
