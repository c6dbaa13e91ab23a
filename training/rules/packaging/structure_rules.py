"""Is every file there, is each of them data and no code, and does the configuration name its model?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from specs.system.regular_files import open_regular
from training.rules.packaging.bounded_json import WrongFile, read_object
from training.rules.packaging.checkpoint_folder import (
    CONFIG,
    GENERATION,
    TOKENIZER,
    TOKENIZER_CONFIG,
    CheckpointFolder,
)
from training.rules.packaging.flaw import Flaw, NotRun
from training.rules.packaging.model_families import FAMILIES, REQUIRED, family_of, wrong_sizes
from training.rules.weight_files import INDEX, WEIGHTS, quote_name

_PICKLES = (
    *(".bin", ".pt", ".pth", ".pt2", ".ckpt", ".pkl", ".pickle", ".dill", ".joblib", ".npy", ".npz", ".msgpack"),
    *(".h5", ".hdf5", ".keras", ".mar", ".nemo", ".t7"),
)
_PROGRAMS = (
    *(".py", ".pyc", ".pyo", ".pyd", ".pyw", ".pyz", ".so", ".dll", ".dylib", ".exe", ".sh", ".bat", ".ps1"),
    *(".js", ".mjs", ".jar", ".whl", ".egg", ".ipynb", ".wasm"),
)


def runs_code(name: str) -> bool:
    """Return whether a file of this name is code, or of a format that can carry it."""
    suffixes = PurePath(name.lower()).suffixes
    # "libx.so.1" is a library too.
    return bool(suffixes) and (suffixes[-1] in (*_PICKLES, *_PROGRAMS) or ".so" in suffixes)


_PICKLED = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""How files of torch.save and pickle begin."""
_SAVE_AGAIN = "save the checkpoint again with `save_pretrained` of model and tokenizer"


def structure(folder: CheckpointFolder) -> Iterator[Flaw]:
    """Yield files that are missing, lead out of the folder, or could run code."""
    for path in sorted(folder.path.rglob("*")):
        name = path.relative_to(folder.path).as_posix()
        if path.is_symlink():
            yield Flaw("structure", "link", name, "is a symbolic link", "replace it by the file")
        elif runs_code(path.name) and path.is_file():
            fix = "delete it; weights belong in model.safetensors, which runs no code"
            yield Flaw("structure", "code", name, "can run code when it is loaded", fix)
    weights = sorted(folder.path.glob("*.safetensors"))
    if not weights:
        yield Flaw("structure", "no_weights", WEIGHTS, "is missing", _SAVE_AGAIN)
    if folder.is_adapter:
        fix = "merge it into its base (`merge_and_unload`, then `save_pretrained`), and check that folder"
        why = "is an adapter, and the weights of its base are not here"
        yield Flaw("structure", "adapter", weights[0].name, why, fix)
    for path in weights:
        if _is_pickle(path):
            yield Flaw(
                "structure", "pickle", path.name, "is a pickle under another name: it was not loaded", _SAVE_AGAIN
            )
    for name in (CONFIG, GENERATION, TOKENIZER_CONFIG):
        if not folder.has(name):
            yield Flaw("structure", "missing_file", name, "is missing", _SAVE_AGAIN)
    if not folder.has(TOKENIZER) and not any(folder.path.glob("*.model")):
        fix = "give the trainer its tokenizer (`processing_class`), or copy the tokenizer of the base"
        yield Flaw("structure", "missing_file", TOKENIZER, "is missing: nothing can encode text for these weights", fix)
    yield from _shards(folder)


def _is_pickle(path: Path) -> bool:
    try:
        with open_regular(path) as handle:
            return handle.read(4).startswith(_PICKLED)
    except OSError:
        return False


def _shards(folder: CheckpointFolder) -> Iterator[Flaw]:
    if not folder.has(INDEX):
        return
    try:
        placed: Any = read_object(folder.path / INDEX).get("weight_map")
    except WrongFile as error:
        yield Flaw("structure", "index", INDEX, error.why, _SAVE_AGAIN)
        return
    if not isinstance(placed, dict) or not all(isinstance(value, str) for value in placed.values()):
        yield Flaw("structure", "index", INDEX, "has no weight_map from tensors to files", _SAVE_AGAIN)
        return
    here, named = {path.name for path in folder.path.glob("*.safetensors")}, {*placed.values()}
    stray = here - named
    if WEIGHTS in stray and not here & named:
        why = f"names {len(named)} files that are not here, next to a whole {WEIGHTS}: it is left from an earlier save"
        yield Flaw("structure", "stale_index", INDEX, why, "delete it")
        return
    for name in sorted(named - here):
        yield Flaw("structure", "missing_shard", quote_name(name), f"is named by {INDEX} and missing", "copy the file")
    for name in sorted(stray):
        fix = "delete it, or write the index again"
        if name == WEIGHTS:
            fix = f"delete it if the files that {INDEX} names are newer, else delete those and the index"
        yield Flaw("structure", "stray_shard", name, f"is not named by {INDEX}", fix)


def config(folder: CheckpointFolder) -> Iterator[Flaw]:
    """Yield what config.json lacks or says of no model that is known; raises NotRun for another family."""
    try:
        matching_config = folder.config
    except WrongFile as error:
        yield Flaw("config", "unreadable", CONFIG, error.why, _SAVE_AGAIN)
        return
    if isinstance(quantized := matching_config.get("quantization_config"), dict):
        how = quote_name(str(quantized.get("quant_method", "no named method")))
        fix = "save the weights in 16 or 32 bits (`dequantize()`, then `save_pretrained`), and check that folder"
        yield Flaw("config", "quantized", CONFIG, f"says that the weights are quantized by {how}", fix)
    if "auto_map" in matching_config:
        yield Flaw("config", "remote_code", CONFIG, "has an auto_map, which loads code", "use a model of transformers")
    kind, family = matching_config.get("model_type"), family_of(matching_config)
    if kind is not None and family is None:
        raise NotRun(f"unknown model_type {quote_name(str(kind))}; known: {', '.join(FAMILIES)}")
    copy = "copy the value of the base's config.json"
    for name in REQUIRED:
        if matching_config.get(name) is None:
            yield Flaw("config", "missing_key", CONFIG, f"has no {name}: a loader would take its own default", copy)
    rope: Any = matching_config.get("rope_parameters")
    theta = rope.get("rope_theta") if isinstance(rope, dict) else matching_config.get("rope_theta")
    if not isinstance(theta, int | float) or not 0 < theta < float("inf"):
        why = "has no rope_theta: positions would be rotated differently than in training"
        yield Flaw("config", "rope", CONFIG, why, "copy rope_parameters of the base's config.json")
    for name in wrong_sizes(matching_config):
        if matching_config.get(name) is not None:
            yield Flaw(
                "config",
                "size",
                CONFIG,
                f"{name} is {quote_name(str(matching_config[name]))}, no positive number",
                copy,
            )
    named = matching_config.get("architectures")
    if family is not None and named is not None and named != [family.architecture]:
        why = f"architectures is {quote_name(str(named))}, {kind} is {family.architecture}"
        yield Flaw("config", "architecture", CONFIG, why, f'write ["{family.architecture}"]')
