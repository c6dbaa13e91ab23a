"""A spec with a transfer split, and evidence of its treatment with the answers to that split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reviews.evidence.evidence import ArmEvidence, Evidence
from specs.session.evaluation_plan import Transfer
from specs.stages.base.artifacts import Item
from specs.system.digests import digest_bytes
from testing.factories.evidence_on_disk import answers, write_rows
from testing.factories.spec_files import items, write_spec

DATA = "  other: {path: other.jsonl}\n"
TRANSFER = "  transfer: {data: other, before: other_base, after: other_tuned, minimum_effect: 0.2}\n"
_STAGE = """\
  - name: NAME
    kind: evaluate
    inputs: {model: MODEL, items: data.other}
    parameters: {max_new_tokens: 32, seed: 7}
"""


def stage_text(name: str, model: str) -> str:
    """Return a stage that answers the transfer split."""
    return _STAGE.replace("NAME", name).replace("MODEL", model)


def transfer_spec(folder: Path, *changes: tuple[str, str]) -> Path:
    """Write the small spec with a transfer split; each change replaces one text."""
    (folder / "other.jsonl").write_text(items("t", 4).replace("Say", "Spell"), encoding="utf-8")
    both = stage_text("other_base", "model") + stage_text("other_tuned", "train.checkpoint")
    path = write_spec(
        folder,
        ("  prompts: {path: prompts.jsonl}\n", f"  prompts: {{path: prompts.jsonl}}\n{DATA}"),
        ("  treatment: tuned\n", f"  treatment: tuned\n{TRANSFER}"),
        ("  - name: tuned\n", f"{both}  - name: tuned\n"),
    )
    text = path.read_text(encoding="utf-8")
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the spec"
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    return path


def transfer_items(count: int = 12) -> tuple[Item, ...]:
    """Return items that ask for something else than the held-out ones."""
    return tuple(
        Item(id=f"t{n}", group=f"tg{n}", kind="lowercase", prompt=f"Greet guest number {n} politely.", constraint={})
        for n in range(count)
    )


def _answers(right: Sequence[bool]) -> list[dict[str, Any]]:
    rows = answers(list(right))
    return [row | {"item": item.id} for row, item in zip(rows, transfer_items(len(rows)), strict=True)]


def with_transfer(evidence: Evidence, before: Sequence[bool], after: Sequence[bool], least: float = 0.2) -> Evidence:
    """Return the treatment's evidence with a second split that both models answered."""
    assert evidence.manifest is not None and evidence.baseline_manifest is not None
    spec, items_digest = evidence.resolved.spec, digest_bytes(b"transfer items")
    transfer = Transfer(data="other", before="other_base", after="other_tuned", minimum_effect=least)
    own = spec.stage(evidence.stage.name)
    stages = tuple(
        own.model_copy(update={"name": name, "inputs": own.inputs | {"items": "data.other"}})
        for name in (transfer.before, transfer.after)
    )
    analysis = spec.analysis.model_copy(update={"transfer": transfer})
    spec = spec.model_copy(update={"analysis": analysis, "stages": (*stages, *spec.stages)})
    digests = evidence.resolved.data_digests | {"other": items_digest}
    arms = dict(evidence.arms)
    sides = ((transfer.before, evidence.baseline_manifest, before), (transfer.after, evidence.manifest, after))
    for name, arm, right in sides:
        path = write_rows(evidence.outputs["rows"].parent / f"{name}.jsonl", _answers(right))
        manifest = arm.model_copy(update={"inputs": arm.inputs | {"items": items_digest}})
        arms[name] = ArmEvidence(path, manifest, evidence.parameters)
    resolved = evidence.resolved.model_copy(update={"spec": spec, "data_digests": digests})
    return replace(evidence, resolved=resolved, arms=arms, data={**evidence.data, "other": transfer_items()})
