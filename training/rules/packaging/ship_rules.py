"""All rules on the files of a checkpoint, by layer, and what each said."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from specs.system.digests import digest_file, list_tree
from training.rules.packaging import structure_rules, tokenizer_rules, weight_rules
from training.rules.packaging.checkpoint_folder import CheckpointFolder
from training.rules.packaging.flaw import Flaw, Layer, NotApplicable, NotRun
from training.rules.packaging.gguf_rules import gguf
from training.rules.packaging.gguf_values import values
from training.rules.weight_files import quote_name

Rule = Callable[[], Iterator[Flaw]]


class LayerOutcome(NamedTuple):
    """What the rules of a layer said."""

    layer: Layer
    status: Literal["PASS", "FAIL", "NOT_RUN"]
    flaws: tuple[Flaw, ...] = ()
    why: str = ""
    """Why a rule was not run."""
    applies: bool = True
    """Whether there was something that the layer could be applied to."""


def apply(layer: Layer, *rules: Rule) -> LayerOutcome:
    """Return what the rules of one layer say; what one found counts, whether or not another could not be run."""
    flaws: list[Flaw] = []
    why, applies = "", False
    for rule in rules:
        try:
            flaws += rule()
        except NotRun as error:
            if error.applies or not applies:
                why = str(error)
            applies = applies or error.applies
        else:
            applies = True
    status = "FAIL" if flaws else "NOT_RUN" if why else "PASS"
    return LayerOutcome(layer, status, tuple(flaws), why, applies)


def check_files(
    path: Path, base: Path | None = None, listed: Mapping[str, str] | None = None, *, trained: bool = True
) -> tuple[LayerOutcome, ...]:
    """Return what every rule says of the files in a folder, layer by layer.

    ``base`` is the model that it was trained from, ``listed`` the recorded digest of each file; without them lineage
    and digests are not run. Without ``trained`` the weights are not compared with those of the base.
    """
    folder = CheckpointFolder(path)
    files = sorted(path.rglob("*.gguf"))
    return (
        apply("structure", lambda: structure_rules.structure(folder)),
        apply("config", lambda: structure_rules.config(folder)),
        apply("weights", lambda: weight_rules.layout(folder), lambda: weight_rules.numbers(folder)),
        apply("tokenizer", lambda: tokenizer_rules.tokenizer(folder)),
        apply("template", lambda: tokenizer_rules.template(folder, CheckpointFolder(base) if base else None)),
        apply("generation", lambda: tokenizer_rules.generation(folder)),
        apply("training", lambda: weight_rules.training_log(folder)),
        apply("lineage", *_lineage(folder, base, trained=trained)),
        apply("digests", lambda: _digests(path, listed)),
        apply("gguf", *(rule for file in files for rule in _of_file(folder, file))) if files else _without_gguf(),
    )


def _of_file(folder: CheckpointFolder, file: Path) -> tuple[Rule, Rule]:
    return lambda: gguf(folder, file), lambda: values(folder, file)


def _without_gguf() -> LayerOutcome:
    return LayerOutcome("gguf", "NOT_RUN", why="no GGUF file", applies=False)


def _lineage(folder: CheckpointFolder, path: Path | None, *, trained: bool) -> Iterator[Rule]:
    if path is None:
        yield _no_base
        return
    base = CheckpointFolder(path)
    yield lambda: weight_rules.find_description_flaws(folder, base)
    if trained:
        yield lambda: weight_rules.find_weight_flaws(folder, base)


def _no_base() -> Iterator[Flaw]:
    raise NotApplicable("no base is given")


def _digests(path: Path, listed: Mapping[str, str] | None) -> Iterator[Flaw]:
    if listed is None:
        raise NotApplicable("no recorded digests are given")
    try:
        here = {current_path.relative_to(path).as_posix(): current_path for current_path in list_tree(path)}
    except ValueError as error:
        yield Flaw("digests", "link", path.name, str(error), "replace it by the file")
        return
    for name in sorted(listed.keys() | here.keys()):
        if name not in here:
            yield Flaw("digests", "missing", quote_name(name), "is recorded and missing", "copy it again")
        elif name not in listed:
            yield Flaw("digests", "unlisted", quote_name(name), "is not recorded", "remove it")
        elif (text := digest_file(here[name])) != listed[name]:
            yield Flaw(
                "digests", "changed", quote_name(name), f"is {text}, recorded as {listed[name]}", "copy it again"
            )
