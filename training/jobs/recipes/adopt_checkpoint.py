"""Adopts a checkpoint that a builder's script left, file by file, without trusting it.

Only the numbers of its tensors are kept, in one weight file; what describes them is copied from the base, and every
other file must be what the base or the libraries would have written. How the numbers were made, this does not show.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from specs.system.new_folder import new_folder
from specs.system.regular_files import open_regular, read_regular
from specs.system.text import plain
from training.engines.checkpoint import UNSTABLE
from training.rules import weight_files
from training.rules.packaging.structure_rules import runs_code
from training.rules.weight_files import INDEX, WEIGHTS, CheckpointChange, WrongWeights, describing, quote_name

_PART = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors")

_NAMES = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "tokenizer.model", "spiece.model"),
    *("chat_template.jinja", "chat_template.json"),
)

_CODE = ("auto_map", "custom_pipelines", "custom_generate", "trust_remote_code")
"""Entries with which a configuration names its own code."""

_HARMLESS = (*UNSTABLE, "dtype", "torch_dtype", "use_cache")
"""May differ in a configuration: who wrote it, how training loaded it. What is kept is the base's in any case."""

_MOST_BYTES = 128 << 20
"""The limit of a describing file, which is compared byte for byte."""

_MOST_CONFIGURATION = 4 << 20
"""The limit for a file that is parsed: as objects it takes fifty times as much memory."""

_HEADER_ROOM = 1 << 20

_MOST_LISTED = 5


class NotTaken(Exception):
    """The checkpoint is refused, with one sentence that says why."""


def take_checkpoint(source: Path, base: Path, target: Path) -> CheckpointChange:
    """Adopt a checkpoint; return what differs from the base it was trained from.

    ``source`` came out of the sandbox (regular files under checked names); ``target`` must not exist, and is written
    whole or not at all. Raises NotTaken with the first fault, OSError if a file cannot be read or written.
    """
    if not source.is_dir():
        raise NotTaken(f"it left no folder '{source.name}' with weights in it")
    files = sorted(source.rglob("*"))
    for path in files:
        _require_name(path.relative_to(source).as_posix(), path)
    described = [path for path in files if path.name in _NAMES]
    for path in described:
        most = _MOST_CONFIGURATION if path.name.endswith("config.json") else _MOST_BYTES
        if (size := path.stat().st_size) > most:
            raise NotTaken(f"{path.name} has {size} bytes, the limit is {most}")
    _require_own(described, base)
    try:
        _require_headers(source, base)
        change = weight_files.compare(base, source)
    except WrongWeights as error:
        raise NotTaken(str(error)) from error
    if not change.changed:
        raise NotTaken(f"all {change.tensors} tensors are those of the base: nothing was trained")
    with new_folder(target) as partial:
        _write(source, base, partial)
    return change


def _require_name(name: str, path: Path) -> None:
    if path.is_dir() or "/" in name:
        raise NotTaken(f"it left {quote_name(name)}: a checkpoint is one folder of files")
    if runs_code(name):
        raise NotTaken(f"it left {quote_name(name)}, which can run code: weights must be safetensors")
    if not (_PART.fullmatch(name) or name == INDEX or name in _NAMES):
        raise NotTaken(f"it left {quote_name(name)}, which is not a file of a checkpoint")


def _require_own(files: list[Path], base: Path) -> None:
    """Refuse a describing file that neither the base has nor the libraries write when they save the base."""
    for path in files:
        if path.name.endswith("config.json"):
            data = _configuration(path)
            if named := [name for name in _CODE if _holds(data, name)]:
                raise NotTaken(f"{path.name} names its own code ({', '.join(named)})")
    others = [path for path in files if not _same(path, base / path.name)]
    if not others:
        return
    with tempfile.TemporaryDirectory(prefix="peergate-base-") as name:
        again = Path(name)
        _save_again(base, again)
        for path in others:
            if not _same(path, again / path.name):
                raise NotTaken(f"{path.name} is not that of the base{_differing(path, base / path.name)}")


def _same(path: Path, other: Path) -> bool:
    if not other.is_file():
        return False
    if read_regular(path) == read_regular(other):
        return True
    return path.name.endswith("config.json") and not _differences(path, other)


def _differences(path: Path, other: Path) -> list[str]:
    ours, theirs = _configuration(path), _configuration(other)
    absent = object()
    names = sorted({*ours, *theirs} - set(_HARMLESS))
    return [name for name in names if ours.get(name, absent) != theirs.get(name, absent)]


def _differing(path: Path, other: Path) -> str:
    """Return in words how a file differs."""
    if not path.name.endswith("config.json"):
        return "; omit it, the base model's is used"
    names = _differences(path, other) if other.is_file() else []
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    what = f": {', '.join(map(quote_name, names[:_MOST_LISTED]))}{more}" if names else ""
    return f"{what}; omit it, the base model's is used"


def _configuration(path: Path) -> dict[str, Any]:
    try:
        data: Any = json.loads(read_regular(path))
    except (ValueError, RecursionError) as error:
        raise NotTaken(f"{path.name} is not JSON") from error
    if not isinstance(data, dict):
        raise NotTaken(f"{path.name} is not a JSON object")
    return data


def _holds(data: Any, name: str) -> bool:
    """Return whether a configuration has an entry of this name, at any depth."""
    waiting: list[Any] = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict) and name in value:
            return True
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return False


def _save_again(base: Path, folder: Path) -> None:
    """Write what the libraries write when they save the base, except what they cannot read."""
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    with suppress(OSError, ValueError, KeyError):
        config: Any = AutoConfig.from_pretrained(base, local_files_only=True)
        config.save_pretrained(folder)
        generation: Any = GenerationConfig.from_model_config(config)
        if (base / "generation_config.json").is_file():
            generation = GenerationConfig.from_pretrained(base, local_files_only=True)
        generation.save_pretrained(folder)
    with suppress(OSError, ValueError, KeyError):
        tokenizer: Any = AutoTokenizer.from_pretrained(base, local_files_only=True)
        tokenizer.save_pretrained(folder)


def _require_headers(source: Path, base: Path) -> None:
    """Compare the length of each header with the base's, then have the format's library read it."""
    from safetensors import SafetensorError, safe_open

    most = 2 * sum(_header_bytes(path) for path in base.glob("*.safetensors")) + _HEADER_ROOM
    for path in sorted(source.glob("*.safetensors")):
        if (length := _header_bytes(path)) > most:
            raise NotTaken(f"the header of {path.name} has {length} bytes, the limit is {most}")
        try:
            with safe_open(path, framework="np") as opened:
                opened.keys()
        except (SafetensorError, OSError) as error:
            text = " ".join(plain(str(error), 200).split())
            raise NotTaken(f"{path.name} is not a weight file: {text}") from error


def _header_bytes(path: Path) -> int:
    with open_regular(path) as handle:
        return int.from_bytes(handle.read(8), "little")


def _write(source: Path, base: Path, folder: Path) -> None:
    """Write the weights like the libraries do, in one file; copy everything else from the base."""
    for name, path in describing(base).items():
        shutil.copyfile(path, folder / name)
    from safetensors import TensorSpec, serialize_file

    known = weight_files.tensors_of(base)
    mapped = [
        (name, tensor, weight_files.raw(tensor))
        for name, tensor in weight_files.tensors_of(source).items()
        if name in known
    ]
    specs = {
        name: TensorSpec(
            dtype=_DTYPES[tensor.dtype], shape=list(tensor.shape), data_ptr=data.ctypes.data, data_len=tensor.size
        )
        for name, tensor, data in mapped
    }
    serialize_file(specs, str(folder / WEIGHTS), {"format": "pt"})


_DTYPES = {
    **{"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "U8": "uint8", "BOOL": "bool"},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
}
