"""The keys that the installed TRL takes, read from its source: importing it would take seconds and load torch."""

from __future__ import annotations

import ast
import sys
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Literal

from specs.stages.recipes.script_file import packages
from specs.system.errors import BlockedError

Command = Literal["sft", "dpo"]
_CLASSES: dict[str, tuple[str, str]] = {
    "SFTConfig": ("trl", "trainer/sft_config.py"),
    "DPOConfig": ("trl", "trainer/dpo_config.py"),
    "_BaseConfig": ("trl", "trainer/base_config.py"),
    "ModelConfig": ("trl", "trainer/model_config.py"),
    "ScriptArguments": ("trl", "scripts/utils.py"),
    "DatasetMixtureConfig": ("trl", "scripts/utils.py"),
    "TrainingArguments": ("transformers", "training_args.py"),
}
"""Where the classes are whose fields a command takes."""
_READ: dict[Command, tuple[str, ...]] = {
    "sft": ("ScriptArguments", "SFTConfig", "ModelConfig", "DatasetMixtureConfig"),
    "dpo": ("ScriptArguments", "DPOConfig", "ModelConfig", "DatasetMixtureConfig"),
}


def known_keys(command: Command) -> frozenset[str] | None:
    """Return the keys of a file for ``trl sft`` or ``trl dpo``; None where TRL is not installed or is laid out anew."""
    try:
        folder = packages()
    except BlockedError:
        return None
    return _keys(command, (*([str(folder)] if folder else []), *sys.path))


@lru_cache
def _keys(command: Command, path: tuple[str, ...]) -> frozenset[str] | None:
    fields: set[str] = set()
    waiting = list(_READ[command])
    while waiting:
        name = waiting.pop()
        tree = _class(name, path)
        if tree is None:
            return None
        declared = [node.target for node in tree.body if isinstance(node, ast.AnnAssign)]
        fields |= {target.id for target in declared if isinstance(target, ast.Name)}
        waiting += [base.id for base in tree.bases if isinstance(base, ast.Name)]
    return frozenset(fields)


def _class(name: str, path: tuple[str, ...]) -> ast.ClassDef | None:
    if name not in _CLASSES:
        return None
    package, file = _CLASSES[name]
    spec = PathFinder.find_spec(package, path)
    folders = spec.submodule_search_locations if spec is not None else None
    if not folders:
        return None
    try:
        tree = ast.parse((Path(next(iter(folders))) / file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None
    return next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name), None)
