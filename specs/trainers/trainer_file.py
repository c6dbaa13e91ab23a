"""A TRL or Axolotl file as a script: recognised by its keys, settled key by key, and handed to a fixed runner.

What is registered, read by reviewers and run is the script; it holds the settled keys and says what was replaced.
"""

from __future__ import annotations

import ast
import pprint
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from specs.stages.explain import show
from specs.system.digests import digest_bytes
from specs.system.home import HOME
from specs.system.yaml.problems import LintProblem, Loc, closest
from specs.system.yaml.yaml_positions import PYYAML, read_document
from specs.trainers.known_keys import known_keys
from specs.trainers.trainer_keys import (
    AXOLOTL,
    DATASET_SETTINGS,
    EXAMPLE_KEYS,
    LOSS_SETTINGS,
    OWN_CODE,
    PREFERENCE_KEYS,
    RL,
    TRAINERS,
    TRL,
    Held,
    Trainer,
)

SUFFIXES = (".yaml", ".yml")
RUNNER = Path("training/jobs/recipes/trainer_script.py")
"""The script's body, below :data:`specs.system.home.HOME`: named as a stage kind names its job."""
_SETTINGS = "SETTINGS: dict[str, Any] = {}\n"
_EXCEPT = "Every key of the file counts, except:"
_PATH = re.compile(r"\w+://|[/~]|\.{1,2}/|[\w.-]+/[\w.-]+$")
"""Text that names a place: an address, a path, or ``owner/name`` of a hub."""


class TrainingInputs(NamedTuple):
    """What a stage gives to a training file: the names of its inputs, and what the trained rows are."""

    model: str
    train: str
    row_kind: Held
    eval: str | None = None
    gpu: bool = False


class AsScript(NamedTuple):
    """A training file as a script, and the distributions that it needs."""

    text: str
    needed: tuple[str, ...]


def is_trainer_file(path: str) -> bool:
    """Return whether a script's name is that of a training file."""
    return path.endswith(SUFFIXES)


def as_script(path: Path, raw: bytes, arguments: TrainingInputs) -> AsScript:
    """Return the script that a training file becomes.

    Raises:
        SpecError: the file is not a TRL or Axolotl file, or sets what it cannot; with every problem and its place.
    """
    document = read_document(path, raw, PYYAML)
    trainer = _recognise_trainer(document.data)
    if isinstance(trainer, LintProblem):
        raise document.error(path, [trainer])
    if problems := list(_problems(trainer, document.data, arguments)):
        raise document.error(path, problems)
    config, notes = _resolve_config(trainer, document.data, arguments)
    settings: dict[str, Any] = {
        "trainer": trainer.distribution,
        "command": "dpo" if arguments.row_kind == "preferences" else "sft",
        **arguments._asdict(),
        "config": config,
    }
    named = f"{path.name} ({digest_bytes(raw)})"
    head = [f"Trains with {trainer.name}, by {named}.", "", _EXCEPT, "", *(notes or ["nothing"])]
    runner = (HOME / RUNNER).read_text(encoding="utf-8")
    _, _, body = runner.partition('"""\n')
    assert body.count(_SETTINGS) == 1, f"{RUNNER} has no place for settings"
    message = "\n".join(head)
    written = pprint.pformat(settings, width=100, sort_dicts=False)
    text = f'"""{message}\n"""\n' + body.replace(_SETTINGS, f"SETTINGS: dict[str, Any] = {written}\n")
    return AsScript(text, (trainer.distribution,))


def notes_of(script: str) -> list[str]:
    """Return what a registered script says was replaced in its training file, a line a key; none for other scripts."""
    try:
        docstring = ast.get_docstring(ast.parse(script)) or ""
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    before, text, after = docstring.partition(f"\n{_EXCEPT}\n")
    return after.strip().splitlines() if text and before.startswith("Trains with ") else []


def _recognise_trainer(data: Mapping[str, Any]) -> Trainer | LintProblem:
    trainers = [trainer for trainer in TRAINERS if trainer.matches(set(data))]
    if len(trainers) == 1:
        return trainers[0]
    message = "the keys of both TRL and Axolotl are here" if trainers else "this is not a file of TRL or of Axolotl"
    text = "; ".join(f"{trainer.name} has {' and '.join(trainer.marks).replace('|', ' or ')}" for trainer in TRAINERS)
    return LintProblem((), message, text)


def _problems(trainer: Trainer, data: Mapping[str, Any], arguments: TrainingInputs) -> Iterator[LintProblem]:
    keys = known_keys("dpo" if arguments.row_kind == "preferences" else "sft") if trainer is TRL else None
    others = EXAMPLE_KEYS if arguments.row_kind == "preferences" else PREFERENCE_KEYS
    settled = {*trainer.replacements, *trainer.off, *trainer.refused, *others}
    for key, value in data.items():
        if keys is not None and key not in keys and key not in settled:
            command = "dpo" if arguments.row_kind == "preferences" else "sft"
            yield LintProblem(
                (key,), f"is not a key of `trl {command}` as it is installed", _likely(key, command, keys)
            )
        elif key in trainer.refused and value not in (None, False, "", [], {}):
            yield LintProblem((key,), f"cannot be set here: {trainer.refused[key]}", "remove the line")
        elif key not in trainer.replacements and key not in trainer.off and key not in trainer.harmless:
            yield from _outside((key,), value)
    if trainer is TRL:
        for key, value in data.items():
            same, why = LOSS_SETTINGS.get((arguments.row_kind, key), ((value,), ""))
            if value is not None and value not in same:
                yield LintProblem((key,), f"is {show(value)}, which is not honoured: {why}", "remove it")
        for key in sorted(set(data) & others):
            pending = "examples" if arguments.row_kind == "preferences" else "preferences"
            message = f"belongs to training on {pending}, and '{arguments.train}' holds {arguments.row_kind}"
            yield LintProblem((key,), message, "give the stage the rows that the file is for")
    if trainer is AXOLOTL:
        yield from _axolotl_problems(data, arguments)


def _likely(key: str, command: str, keys: Collection[str]) -> str:
    """Return the intended key: a suffix of the key (``torch_dtype``), else a key that is spelt alike."""
    match = next((known for known in keys if key.endswith(f"_{known}")), None) or closest(key, keys)
    return f"did you mean '{match}'?" if match else f"`trl {command} --help` lists them"


def _axolotl_problems(data: Mapping[str, Any], arguments: TrainingInputs) -> Iterator[LintProblem]:
    rl = data.get("rl")
    if arguments.row_kind == "preferences" and rl not in RL:
        yield LintProblem(
            ("rl",), f"'{arguments.train}' holds preferences: rl is one of {', '.join(RL)}", "add the line"
        )
    elif arguments.row_kind != "preferences" and rl:
        yield LintProblem(
            ("rl",), f"trains on pairs, and '{arguments.train}' holds {arguments.row_kind}", "remove the line"
        )
    for key in ("datasets", "test_datasets", "pretraining_dataset"):
        sets: Any = data.get(key)
        for place, settings in enumerate(cast(list[Any], sets) if isinstance(sets, list) else ()):
            for name in DATASET_SETTINGS if isinstance(settings, Mapping) else ():
                value: Any = settings.get(name)
                same, why = DATASET_SETTINGS[name]
                if value is not None and value not in same:
                    message = f"is {show(value)}, which is not honoured: {why}"
                    yield LintProblem((key, place, name), message, "remove it")
    plugins = data.get("plugins")
    for place, plugin in enumerate(plugins if isinstance(plugins, list) else ()):
        if not str(plugin).startswith("axolotl."):
            yield LintProblem(("plugins", place), f"is not one of Axolotl's own: {OWN_CODE}", "remove the line")


def _outside(loc: Loc, value: Any) -> Iterator[LintProblem]:
    """Yield a problem for each text that names a place outside, and for code that would be loaded."""
    if isinstance(value, Mapping):
        for key, element in value.items():
            if key == "trust_remote_code" and element:
                yield LintProblem((*loc, key), f"cannot be set here: {OWN_CODE}", "remove the line")
            else:
                yield from _outside((*loc, key), element)
    elif isinstance(value, list):
        for place, element in enumerate(value):
            yield from _outside((*loc, place), element)
    elif isinstance(value, str) and _PATH.match(value):
        yield LintProblem(loc, "names a place outside the sandbox, which nothing in it can reach", "remove the line")


def _resolve_config(
    trainer: Trainer, data: Mapping[str, Any], arguments: TrainingInputs
) -> tuple[dict[str, Any], list[str]]:
    """Return the keys that are handed on, and a line for each that is not as in the file."""
    config: dict[str, Any] = {}
    notes: list[str] = []
    for key, value in data.items():
        if key in trainer.replacements:
            sets = [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []
            names = f" ({', '.join(dict.fromkeys(name for entry in sets for name in entry))})" if sets else ""
            notes.append(f"{key}: replaced by {trainer.replacements[key]}{names}")
        elif key in trainer.off:
            amounts, why = trainer.off[key]
            if value not in (amounts, None, "", False) or (value is False and amounts):
                notes.append(f"{key}: switched off: {why}")
        elif key == "eval_strategy" and arguments.eval is None:
            if value not in ("no", None):
                notes.append("eval_strategy: switched off: the stage has no input 'eval'")
        elif key not in trainer.refused:
            config[key] = _plain(value)
    return config, notes


def _plain(value: Any) -> Any:
    """Return a value without the places of its keys."""
    if isinstance(value, Mapping):
        return {key: _plain(element) for key, element in value.items()}
    return [_plain(element) for element in value] if isinstance(value, list) else value
