"""A spec whose arms are conversations, with controls and a rule on kinds, and evidence of its treatment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reviews.evidence.evidence import ArmEvidence, Evidence
from specs.loading.loading import load_spec
from specs.session.session_spec import ResolvedSpec
from specs.stages.base.artifacts import Item
from specs.stages.evaluation.rows import ConversationRow, ConversationTurn
from specs.system.digests import digest_bytes, digest_file, digest_path, digest_value
from testing.factories.evidence_on_disk import evidence_of, exit_of, prompt_items, write_rows
from testing.factories.spec_files import CONSTITUTION, SPEC

KINDS = ("memory", "preference", "continuity", "update")
EACH = 10
"""Conversations of each kind."""
NAMES = ("Tom", "Ada", "Lena", "Ravi", "Mina", "Otto", "Iris", "Hugo", "Nora", "Emil")
TALKS = {
    "memory": ("My cat is called {name}.", "What is my cat called?", {"require_2": "{name}"}),
    "preference": ("Small letters only, says {name}.", "Say hello.", {"form_2": "lowercase"}),
    "continuity": ("Tell me about bees, {name} asks.", "What do they make?", {"require_2": "honey|wax"}),
    "update": ("Use nine words for {name}.", "Now use at most three.", {"most_words_2": 3}),
}
RIGHT = {"memory": "{name}.", "preference": "hello there, friend.", "continuity": "Honey.", "update": "Fine, then."}
WRONG = "I Cannot Say What That Would Be."
CONTROLS = "\n".join(
    f"  - name: {name}\n    kind: multi_turn\n    inputs: {{model: {model}, items: heldout}}\n"
    f"    parameters: {{max_new_tokens: 32, seed: 7, history: {history}}}"
    for name, model, history in (
        ("base_shuffled", "model", "shuffled"),
        ("tuned_shuffled", "train.checkpoint", "shuffled"),
    )
)
PRIMARY = "  primary_metric: conversation_pass_rate\n"
ANALYSIS = """\
  kinds: {primary: memory, kept: 3, margin: 0.3, false_discovery: 0.1}
  controls:
    - {before: base_shuffled, after: tuned_shuffled}
"""
Passed = Mapping[str, Sequence[bool]]
"""By kind, which of its conversations pass."""


def talks(talks_per_kind: int = EACH) -> tuple[Item, ...]:
    """Return conversations, the kinds in turn."""
    return tuple(
        Item(
            id=f"{kind}{number}",
            group=f"{kind}{number}",
            kind=kind,
            prompt=TALKS[kind][0].format(name=NAMES[number]),
            constraint={
                "turn_2": TALKS[kind][1],
                **{
                    key: value.format(name=NAMES[number]) if isinstance(value, str) else value
                    for key, value in TALKS[kind][2].items()
                },
            },
        )
        for number in range(talks_per_kind)
        for kind in KINDS
    )


def talk_spec(folder: Path, *changes: tuple[str, str], flag: bool = True) -> Path:
    """Write the small spec with conversations in the place of answers; each change replaces a text that is there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "constitution.yaml").write_text(CONSTITUTION, encoding="utf-8")
    for name, items in (("heldout", talks()), ("prompts", prompt_items())):
        write_rows(folder / f"{name}.jsonl", [item.model_dump(mode="json") for item in items])
    text = SPEC.replace("HELDOUT", digest_file(folder / "heldout.jsonl"))
    for old, new in (
        ("kind: evaluate", "kind: multi_turn"),
        ("metric: truncation_rate", "metric: turn_truncation_rate"),
        ("  n: 3\n", f"  n: {len(talks())}\n"),
        ("  minimum_effect: 0.1\n", "  minimum_effect: 0.3\n  power: 0.5\n"),
        ("  treatment: tuned\n", f"  treatment: tuned\n{PRIMARY}{ANALYSIS if flag else ''}"),
        ("  - name: tuned\n", f"{CONTROLS}\n  - name: tuned\n" if flag else "  - name: tuned\n"),
        *changes,
    ):
        assert old in text, old
        text = text.replace(old, new)
    path = folder / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def resolved(folder: Path, *changes: tuple[str, str], flag: bool = True) -> ResolvedSpec:
    """Return the spec as it is registered."""
    return load_spec(talk_spec(folder, *changes, flag=flag))


def all_of(passed: bool = True, **kinds: Sequence[bool]) -> Passed:
    """Return the same outcome for every conversation, but for the kinds that are given."""
    return {kind: kinds.get(kind, [passed] * EACH) for kind in KINDS}


def first(count: int) -> list[bool]:
    """Return that the first so many of a kind pass."""
    return [number < count for number in range(EACH)]


def rows_of(passed: Passed, *, longer: int = 0, cut: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return conversations that pass as told; those named in ``cut`` hit the limit, and answers may be longer."""
    results: list[dict[str, Any]] = []
    for place, item in enumerate(talks()):
        number = place // len(KINDS)
        text = RIGHT[item.kind].format(name=NAMES[number]) if passed[item.kind][number] else WRONG
        turns = tuple(
            ConversationTurn(
                user=user,
                output=f"{output}{' and so on' * longer if first_turn else ''}",
                prompt_tokens=9,
                prompt_digest=digest_bytes(user.encode()),
                output_tokens=4,
                truncated=item.id in cut and not first_turn,
            )
            for user, output, first_turn in (
                (item.prompt, f"Yes, {item.id}.", True),
                (str(item.constraint["turn_2"]), text, False),
            )
        )
        results.append(ConversationRow(item=item.id, turns=turns).model_dump(mode="json"))
    return results


def compared(
    folder: Path,
    before: Passed,
    after: Passed,
    *changes: tuple[str, str],
    control: tuple[Passed, Passed] | None = None,
    flag: bool = True,
) -> Evidence:
    """Return the evidence of the treatment, with the baseline and both sides of a control as they passed.

    Args:
        folder: where files go.
        before: the baseline's conversations.
        after: the treatment's.
        changes: of the text of the spec.
        control: the same models without their history; nothing passes there where it is not given.
        flag: whether the spec has its rule on kinds and its controls.
    """
    spec = resolved(folder / "spec", *changes, flag=flag)
    stage = spec.spec.stage("tuned")
    parameters = stage.parameters.model_dump(mode="json")
    whole = evidence_of(folder, "tuned")
    assert whole.manifest is not None and whole.baseline_manifest is not None and whole.grant is not None
    paths = {"tuned": write_rows(folder / "after.jsonl", rows_of(after))}
    paths["base"] = write_rows(folder / "before.jsonl", rows_of(before))
    items = {"items": digest_path(folder / "spec" / "heldout.jsonl")}
    settings = parameters | {"form": "chat"}
    grant = whole.grant.model_copy(
        update={
            "kind": "multi_turn",
            "registration": spec.registration(),
            "parameters": digest_value(parameters),
            "inputs": whole.grant.inputs | items,
        }
    )
    manifest = whole.manifest.model_copy(
        update={
            "kind": "multi_turn",
            "effective": settings,
            "parameters": grant.parameters,
            "inputs": whole.manifest.inputs | items,
            "outputs": {"rows": digest_path(paths["tuned"])},
        }
    )
    other = manifest.inputs | {"model": digest_bytes(b"the untouched model")}
    baseline = manifest.model_copy(update={"inputs": other, "outputs": {"rows": digest_path(paths["base"])}})
    shuffled = {"history": "shuffled"}
    arms: dict[str, ArmEvidence] = {}
    sides = control or (all_of(False), all_of(False))
    for name, passed, like in (("base_shuffled", sides[0], baseline), ("tuned_shuffled", sides[1], manifest)):
        path = write_rows(folder / f"{name}.jsonl", rows_of(passed))
        seen_manifest = like.model_copy(
            update={"effective": settings | shuffled, "outputs": {"rows": digest_path(path)}}
        )
        arms[name] = ArmEvidence(path, seen_manifest, parameters | shuffled)
    return replace(
        whole,
        resolved=spec,
        registered=spec.registration(),
        stage=stage,
        grant=grant,
        exit=exit_of(grant.key()),
        parameters=parameters,
        heldout=talks(),
        heldout_digest=items["items"],
        manifest=manifest,
        outputs={"rows": paths["tuned"]},
        output_digests={"rows": digest_path(paths["tuned"])},
        inputs={"model": whole.inputs["model"], "items": folder / "spec" / "heldout.jsonl"},
        baseline_rows=paths["base"],
        baseline_manifest=baseline,
        baseline_parameters=parameters,
        arms=arms if flag else {},
        evaluations_of_heldout=4,
    )
