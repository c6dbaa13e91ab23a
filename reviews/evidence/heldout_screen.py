"""Which texts of a design reach a model, and which instructions that a model wrote are held-out prompts.

The latter are taken out before any later stage reads them. The job that writes them sees no held-out item, nor digests,
from which words can be guessed. So this runs between that job and the next one; it is pure, and gate, session and audit
get the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from reviews.evidence.gather import load_items
from reviews.evidence.text_overlap import Overlap, find_overlaps
from reviews.trail.chain.store import Store
from specs.session.design import Design, ResolvedDesign
from specs.stages.base.artifacts import Item
from specs.stages.registry import Stage, kind_of, outputs_of
from specs.system.errors import EvidenceMissing

_LABELLED = re.compile(r"[^:\n]{1,40}:\s*(\S.*)")
"""A line such as "Question: what is rain?": what comes after its label."""
REMEMBERED = 8
"""Screened files that are kept: plan, order and audit ask for the same one."""


def list_prompted_texts(resolved: ResolvedDesign) -> list[tuple[str, str]]:
    """Return every text of a design that a model is prompted with or works after, each with its place.

    These are the objective, all texts among the parameters of the stages, whatever they are called, and scripts. Worked
    examples in them are asked line by line, so each line is a text too.
    """
    spec = resolved.spec
    texts = [("objective", spec.objective)]
    for stage in spec.stages:
        texts += iterate_texts({"parameters": stage.parameters, "choices": stage.choices}, f"stages.{stage.name}")
    texts += [(f"scripts.{digest}", text) for digest, text in sorted(resolved.scripts.items())]
    lines = [(place, line.strip()) for place, text in texts for line in text.splitlines()]
    parts = [(place, match[1]) for place, line in lines if (match := _LABELLED.fullmatch(line))]
    return list(dict.fromkeys((place, text) for place, text in (*texts, *lines, *parts) if text))


def iterate_texts(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield every text in a value, however deep, each with its place."""
    match value:
        case str():
            yield place, value
        case BaseModel():
            for name, member in value:
                yield from iterate_texts(member, f"{place}.{name}")
        case Mapping():
            for name, member in cast(Mapping[Any, Any], value).items():
                yield from iterate_texts(member, f"{place}.{name}")
        case tuple() | list():
            for number, member in enumerate(cast(Sequence[Any], value)):
                yield from iterate_texts(member, f"{place}.{number}")
        case _:
            pass


def held_out_among(
    written: Sequence[str], heldout: Sequence[Item], similarity: float, contained: int
) -> dict[int, Overlap]:
    """Return the texts that are held-out prompts, by place, each with an overlap."""
    numbered = [(str(place), text) for place, text in enumerate(written)]
    overlaps: dict[int, Overlap] = {}
    pairs = [(item.id, item.prompt) for item in heldout]
    for overlap in find_overlaps(numbered, pairs, threshold=similarity, contained=contained):
        overlaps.setdefault(int(overlap.train), overlap)
    return overlaps


def is_screened(stage: Stage, output: str) -> bool:
    """Return whether an output of a stage is handed on without the held-out prompts in it."""
    return kind_of(stage).screened == output


def screen_items(store: Store, resolved: ResolvedDesign, digest: str) -> bytes | None:
    """Return the lines of a kept file of items that are not held-out prompts; None when all are handed on.

    Raises:
        EvidenceMissing: the file is not in the store, or a line of it is not an item.
        AuditDamage: it has other bytes than its name.
    """
    splits, thresholds = resolved.list_splits(), resolved.spec.thresholds
    return _screen_stored_items(store.root, digest, splits, thresholds.prompt_similarity, thresholds.contained_words)


@lru_cache(maxsize=REMEMBERED)
def _screen_stored_items(
    root: Path, digest: str, splits: tuple[str, ...], similarity: float, contained: int
) -> bytes | None:
    store = Store(root)
    lines = [line for line in store.get(digest).splitlines(keepends=True) if line.strip()]
    try:
        written = [Item.model_validate_json(line).prompt for line in lines]
    except ValidationError as error:
        raise EvidenceMissing(
            f"a line is not an item: {error.errors()[0]['msg']}", where="written instructions"
        ) from error
    heldout = [item for split in splits for item in load_items(store, split)]
    overlaps = held_out_among(written, heldout, similarity, contained)
    return b"".join(line for place, line in enumerate(lines) if place not in overlaps) if overlaps else None


def sees_heldout(spec: Design, stage: Stage) -> bool:
    """Return whether a stage takes held-out items, or rows of a stage that does; a checkpoint carries none."""
    if spec.reads_split(stage) or kind_of(stage).reads_heldout:
        return True
    for reference in stage.inputs.values():
        owner, _, output = reference.partition(".")
        source = next(
            (
                current_stage
                for current_stage in spec.stages
                if current_stage.name == owner and current_stage.name != stage.name
            ),
            None,
        )
        if source is None or outputs_of(source.kind, source.parameters).get(output) == "checkpoint":
            continue
        # A stage reads of earlier ones only, so this ends.
        if spec.stages.index(source) < spec.stages.index(stage) and sees_heldout(spec, source):
            return True
    return False
