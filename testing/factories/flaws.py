"""Evidence with one flaw in it, by name, and the check that has to find it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from reviews.evidence.evidence import ArmEvidence, Evidence
from specs.jobs.grant_and_claim import Claim
from specs.jobs.job_records import CodeState, HeldoutUse, ObservedRuntime, Segment
from specs.session.thresholds import Thresholds
from specs.system.digests import digest_bytes
from specs.system.resources import Resources
from testing.factories.evidence_on_disk import (
    TALES,
    N,
    answers,
    clean_code,
    evidence_of,
    examples,
    heldout_items,
    probes,
    prompt_items,
    replayed,
    samples,
    sketch,
    steps,
    trained_facts,
    weights,
    with_manifest,
    witnessed,
    write_rows,
)
from testing.factories.flaws_evaluation import EVALUATION_CASES, EVALUATION_FLAWS
from training.rules.tasks.instruction_following import constraint_of


def flawed(folder: Path, stage: str, flaw: str) -> Evidence:
    """Return evidence with one named flaw."""
    if flaw in ROW_FLAWS:
        return evidence_of(folder, stage, ROW_FLAWS[flaw]())
    return OTHER_FLAWS[flaw](evidence_of(folder, stage))


def piloted(evidence: Evidence, **moved: float) -> Evidence:
    """Return the evidence of a stage with a pilot that was accepted with other parameters."""
    arm = ArmEvidence(None, None, evidence.parameters | {"samples_per_prompt": 1} | moved)
    stage = evidence.stage.model_copy(update={"pilot": "tried"})
    return replace(evidence, stage=stage, arms={"tried": arm})


def witness_says(evidence: Evidence, **changes: Any) -> Evidence:
    """Return the evidence with another reading of its first row."""
    assert evidence.witness is not None and evidence.witness.rows is not None
    rows = witnessed(evidence.witness.challenge.rows)
    write_rows(evidence.witness.rows, [rows[0] | changes, *rows[1:]])
    return evidence


def _steps_again(evidence: Evidence, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Evidence:
    """Return the evidence with other steps of a witness; an empty one is left out."""
    assert evidence.witness is not None and evidence.witness.rows is not None
    write_rows(evidence.witness.rows, [row for value in replayed(steps()) if (row := change(value))])
    return evidence


def _witness_finds(evidence: Evidence, **facts: Any) -> Evidence:
    """Return the evidence of a witness that found something else, or nothing, in the saved weights."""
    assert evidence.witness is not None and evidence.witness.manifest is not None
    results = trained_facts(steps()) | facts if facts else {}
    manifest = evidence.witness.manifest.model_copy(update={"facts": results})
    return replace(evidence, witness=evidence.witness._replace(manifest=manifest))


def _ends_at(evidence: Evidence, apart: float | None) -> Evidence:
    """Return the evidence of a witness that trained the last steps again, this far from the saved weights."""
    matching_evidence = _witness_finds(evidence, end_apart=apart) if apart is not None else evidence
    assert matching_evidence.witness is not None
    last = Segment(after=0, until=len(steps()))
    challenge = matching_evidence.witness.challenge.model_copy(update={"segments": (last,)})
    return replace(matching_evidence, witness=matching_evidence.witness._replace(challenge=challenge))


def _steps(**changes: Any) -> list[dict[str, Any]]:
    return [row | changes for row in steps()]


def change_completions(*completions: str, **changes: Any) -> list[dict[str, Any]]:
    """Return the samples with other accepted completions, one for each prompt in turn."""
    rows = samples()
    for place, row in enumerate(row for row in rows if row["sample"] == 0):
        row |= {"completion": completions[place % len(completions)]} | changes
    return rows


def _rates(rate: Callable[[int], float]) -> list[dict[str, Any]]:
    return [row | {"learning_rate": rate(row["step"])} for row in steps()]


ROW_FLAWS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "samples of which none is accepted": lambda: change_completions("A Tale In Capitals."),
    "answers cut off": lambda: answers([True] * N, truncated=True),
    "answers empty": lambda: answers([True] * N, output=" "),
    "answers all alike": lambda: answers([True] * N, output="the same small answer again."),
    "answers of one pattern": lambda: [
        row | {"output": f"it sits in the quiet garden behind the old house by the river and waits for {place}."}
        for place, row in enumerate(answers([True] * N))
    ],
    "answers off topic": lambda: [
        row | {"output": f"a small answer that is fit for anything, and number {place} of many."}
        for place, row in enumerate(answers([True] * N))
    ],
    "prompts as answers": lambda: [
        row | {"output": f"{item.prompt.lower()} so it was said."}
        for item, row in zip(heldout_items(), answers([True] * N), strict=True)
    ],
    "a step missing": lambda: steps(9),
    "a dead gradient": lambda: [row | {"grad_norm": 0.0 if row["step"] == 3 else 1.0} for row in steps()],
    "a gradient spike": lambda: [row | {"grad_norm": 90.0 if row["step"] == 3 else 1.0} for row in steps()],
    "a rate that never rose": lambda: _steps(learning_rate=0.0),
    "a rate above the granted one": lambda: _steps(learning_rate=1e-3),
    "a rate that never decayed": lambda: _steps(learning_rate=1e-5),
    "no token with loss": lambda: _steps(tokens=0),
    "silent probes": lambda: [row | {"expected": [], "reloaded": []} for row in probes()],
    "other probes": lambda: [probes()[1], probes()[0]],
    "samples cut off": lambda: [row | {"truncated": True} for row in samples()],
    "answers of one word": lambda: answers([True] * N, output="B."),
    "delimiters in the samples": lambda: change_completions(*(f"{tale} ###" for tale in TALES)),
    "one beginning for all samples": lambda: change_completions(*(f"here is a tale: {tale}" for tale in TALES)),
    "samples that echo the prompt": lambda: change_completions(*(item.prompt.lower() for item in prompt_items())),
    "samples that repeat the worked example": lambda: change_completions(
        "bread is baked from flour, water and salt in a hot oven."
    ),
    "samples that refuse": lambda: change_completions("i am sorry, but i cannot tell you a tale."),
    "samples that nearly repeat": lambda: change_completions(
        *(f"once there was a very small house by the sea. {n}" for n in "abcde")
    ),
    "a runaway sample": lambda: [row | {"completion_tokens": 300 if row["item"] == "p0" else 10} for row in samples()],
    "a rate that falls to nothing early": lambda: _rates(lambda step: 1e-5 if step == 2 else 0.0),
    "a rate on another curve": lambda: _rates(lambda step: 0.0 if step == 1 else 1e-5 * (1 - (step - 2) / 9) ** 2),
    "a loss that rose": lambda: [row | {"loss": 1.0 + 0.1 * row["step"]} for row in steps()],
    "a loss that stayed": lambda: [row | {"loss": 1.5 - 0.0001 * row["step"]} for row in steps()],
    "a plateau that the schedule makes": lambda: [
        row
        | {"loss": 1.8 if row["step"] < 4 else (1.5, 1.52)[row["step"] % 2], "learning_rate": rate}
        | {"sketch": sketch(min(row["step"], 3))}
        for row, rate in zip(steps(), [0.0, 1e-5, 5e-6, *[0.0] * 7], strict=True)
    ],
    "a loss that rose again": lambda: [
        row | {"loss": 2.0 - 0.1 * row["step"] if row["step"] < 12 else 1.6} for row in steps(20)
    ],
    "a loss that only moves as batches do": lambda: [
        row | {"loss": (2.0, 1.5, 1.9, 1.6, 1.2)[row["step"] % 5]} for row in steps()
    ],
}


_LONG = "Write down how tall towers cast longer shadows before evening."
_REWORDED = "As the evening comes the shadow of a tall tower is cast longer: describe it."


def _examples_with(evidence: Evidence, **changes: Any) -> Evidence:
    path = write_rows(evidence.inputs["model"].parent / "other.jsonl", [row | changes for row in examples()])
    if evidence.stage.kind == "generate":
        return replace(evidence, outputs=evidence.outputs | {"accepted": path})
    return replace(evidence, inputs=evidence.inputs | {"examples": path})


def _named_topics(evidence: Evidence, count: int) -> Evidence:
    """Return evidence whose held-out groups are called as their topics, of which training prompts name some."""
    backlog_items = [
        backlog_item.model_copy(update={"group": backlog_item.prompt.split()[-1].strip(".")})
        for backlog_item in evidence.heldout
    ]
    rows = examples()
    for place in range(count):
        rows[place]["prompt"] += f" It is about the {backlog_items[place].group}."
    path = write_rows(evidence.inputs["model"].parent / "other.jsonl", rows)
    return replace(evidence, heldout=tuple(backlog_items), inputs=evidence.inputs | {"examples": path})


def _masks(evidence: Evidence, **changes: Any) -> Evidence:
    assert evidence.manifest is not None
    return with_manifest(evidence, facts={"mask": evidence.manifest.facts["mask"] | changes})


def _exit(evidence: Evidence, **changes: Any) -> Evidence:
    assert evidence.exit is not None
    return replace(evidence, exit=evidence.exit.model_copy(update=changes))


def _grant(evidence: Evidence, **changes: Any) -> Evidence:
    assert evidence.grant is not None
    return replace(evidence, grant=evidence.grant.model_copy(update=changes))


def _baseline(evidence: Evidence, **changes: Any) -> Evidence:
    assert evidence.baseline_manifest is not None
    return replace(evidence, baseline_manifest=evidence.baseline_manifest.model_copy(update=changes))


def _change_baseline_prompt(evidence: Evidence, digest: str | None) -> Evidence:
    """Have one of the baseline's rows state another prompt, or none."""
    path = evidence.baseline_rows
    assert path is not None
    first, *rest = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    write_rows(path, [first | {"prompt_digest": digest, "prompt_tokens": 57}, *rest])
    return evidence


def _repacked(evidence: Evidence) -> Evidence:
    (evidence.outputs["package"] / "model.safetensors").write_bytes(b"other weights")
    return evidence


def _changed_and_packed(evidence: Evidence) -> Evidence:
    """What was evaluated was changed before it was packed: both agree."""
    for folder in (evidence.inputs["model"], evidence.outputs["package"]):
        (folder / "model.safetensors").write_bytes(weights("changed"))
    return evidence


def _repacked_file(evidence: Evidence, name: str, content: str) -> Evidence:
    """The package has another file next to its weights than the checkpoint."""
    (evidence.outputs["package"] / name).write_text(content, encoding="utf-8")
    return evidence


def _unfinished_package(evidence: Evidence) -> Evidence:
    (evidence.outputs["package"] / "tokenizer_config.json").unlink()
    return evidence


def _unusable(evidence: Evidence, name: str = "tokenizer.json") -> Evidence:
    """A file of the checkpoint is missing."""
    folder = evidence.outputs.get("checkpoint") or evidence.outputs["package"]
    (folder / name).unlink()
    return evidence


def _as_its_base(evidence: Evidence) -> Evidence:
    """A file is missing that the base does not have either."""
    for folder in (evidence.inputs["model"], evidence.outputs["checkpoint"]):
        (folder / "generation_config.json").unlink()
    return evidence


def _stage_reads(evidence: Evidence, name: str, model: str) -> Evidence:
    """A stage of the registered spec reads other weights."""
    spec = evidence.resolved.spec
    stages = [
        stage.model_copy(update={"inputs": stage.inputs | {"model": model}}) if stage.name == name else stage
        for stage in spec.stages
    ]
    resolved = evidence.resolved.model_copy(update={"spec": spec.model_copy(update={"stages": tuple(stages)})})
    return replace(evidence, resolved=resolved)


def _another_packed(evidence: Evidence) -> Evidence:
    """The stage packs the untrained model, and the treatment is the trained one."""
    untrained = evidence.stage.model_copy(update={"inputs": evidence.stage.inputs | {"model": "model"}})
    return replace(evidence, stage=untrained)


def _same_weights(evidence: Evidence) -> Evidence:
    assert evidence.manifest is not None
    digests = evidence.output_digests | {"checkpoint": evidence.manifest.inputs["model"]}
    return with_manifest(replace(evidence, output_digests=digests), outputs=digests)


def _trained_on(evidence: Evidence, step: int, **changes: Any) -> Evidence:
    """Have the rows from a step on state weights that went on in between, or something else."""
    path = evidence.outputs["rows"]
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row in rows[step:]:
        row["sketch"] = [row["sketch"][0], *(value + 1e-3 for value in row["sketch"][1:])]
        row |= changes
    write_rows(path, rows)
    return evidence


def _saved_again(evidence: Evidence) -> Evidence:
    """The checkpoint holds the weights training began from, written by another library."""
    base, folder = evidence.inputs["model"], evidence.outputs["checkpoint"]
    weights = (base / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "README.md").write_text("written again", encoding="utf-8")
    return evidence


def _nudged(evidence: Evidence) -> Evidence:
    """One weight of a hundred moved, by less than a hundredth of a step."""
    _saved_again(evidence)
    path = evidence.outputs["checkpoint"] / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-4] ^= 1
    path.write_bytes(data)
    return evidence


def _cut_gain(evidence: Evidence) -> Evidence:
    """The baseline fails only where it was cut off."""
    assert evidence.baseline_rows is not None
    write_rows(evidence.baseline_rows, answers([False] * N, truncated=True))
    return evidence


def _left(evidence: Evidence, name: str, text: str) -> Evidence:
    """Have a recipe leave another text, in its rows or in a file."""
    place = evidence.outputs[name]
    (place / "notes" if place.is_dir() else place).write_text(text, encoding="utf-8")
    return evidence


def _change_parameters(evidence: Evidence, **parameters: Any) -> Evidence:
    """Return the evidence of a stage that was granted something else."""
    return replace(evidence, parameters=evidence.parameters | parameters)


def tokenizer(folder: Path, **changes: Any) -> Path:
    """Write the files of a tokenizer of three tokens."""
    words: dict[str, Any] = {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]} | changes
    end = words.pop("eos_token", "<end>")
    template = words.pop("chat_template", "{{ messages }}")
    added = [{"id": 3, "content": end, "special": True}]
    (folder / "tokenizer.json").write_text(json.dumps({"model": words, "added_tokens": added}), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": end}), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder


def _tokenizers(evidence: Evidence, **changes: Any) -> Evidence:
    tokenizer(evidence.inputs["model"])
    tokenizer(evidence.outputs["checkpoint"], **changes)
    return evidence


def _bare_row(evidence: Evidence) -> Evidence:
    return _left(evidence, "rows", "[1]\n")


def _base_model(evidence: Evidence) -> Evidence:
    spec = evidence.resolved.spec
    declared = spec.model_copy(update={"model": spec.model.model_copy(update={"kind": "base"})})
    return replace(evidence, resolved=evidence.resolved.model_copy(update={"spec": declared}))


def _only_accepted_rows(evidence: Evidence) -> Evidence:
    write_rows(evidence.outputs["rows"], [row for row in samples() if row["sample"] == 0])
    return evidence


def _drop_example(evidence: Evidence) -> Evidence:
    write_rows(evidence.outputs["accepted"], examples()[1:])
    return evidence


def _perfect_baseline(evidence: Evidence) -> Evidence:
    write_rows(evidence.outputs["rows"], answers([True] * N))
    return evidence


OTHER = digest_bytes(b"something else")


def with_spec(evidence: Evidence, **changes: Any) -> Evidence:
    """Return the evidence under a spec with other fields."""
    spec = evidence.resolved.spec.model_copy(update=changes)
    return replace(evidence, resolved=evidence.resolved.model_copy(update={"spec": spec}))


def with_thresholds(evidence: Evidence, **changes: Any) -> Evidence:
    """Return the evidence under a spec that registers other thresholds."""
    return with_spec(evidence, thresholds=Thresholds(**changes))


def _state(evidence: Evidence, **changes: Any) -> CodeState:
    assert evidence.manifest is not None
    return clean_code(evidence.manifest.code).model_copy(update=changes)


def _pinned(evidence: Evidence) -> Evidence:
    return with_spec(evidence, model=evidence.resolved.spec.model.model_copy(update={"digest": OTHER}))


def _without_a_row(evidence: Evidence) -> Evidence:
    path = evidence.outputs["rows"]
    path.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[1:]), encoding="utf-8")
    return evidence


def _copied(evidence: Evidence) -> Evidence:
    write_rows(evidence.outputs["rows"], change_completions("one answer for every prompt there is."))
    return with_thresholds(evidence, copies=4)


def two_kinds(evidence: Evidence, before: str, after: str, groups: str = "", first: int = N // 2) -> Evidence:
    """Return a comparison on lowercase items, six unless said, and uppercase ones, 12 in all; "1" is a right answer.

    ``groups`` gives every item a group by one letter.
    """
    assert evidence.baseline_rows is not None
    items = [
        item.model_copy(update={"kind": "lowercase" if place < first else "uppercase"})
        for place, item in enumerate(heldout_items())
    ]
    if groups:
        items = [item.model_copy(update={"group": group}) for item, group in zip(items, groups, strict=True)]
    for path, marks in ((evidence.baseline_rows, before), (evidence.outputs["rows"], after)):
        texts = [f"a fine answer to all of {item.id}" for item in items]
        capitals = [(item.kind == "uppercase") == (mark == "1") for item, mark in zip(items, marks, strict=True)]
        texts = [text.upper() if loud else text for text, loud in zip(texts, capitals, strict=True)]
        rows = answers([True] * N)
        write_rows(path, [row | {"output": text} for row, text in zip(rows, texts, strict=True)])
    return replace(evidence, heldout=tuple(items))


def two_instructions(evidence: Evidence, before: str, after: str) -> Evidence:
    """Return a comparison on items that ask for small letters and for no comma, answered alike in both arms."""
    assert evidence.baseline_rows is not None
    constraint = constraint_of([("change_case:english_lowercase", {}), ("punctuation:no_comma", {})])
    items = [item.model_copy(update={"constraint": constraint}) for item in heldout_items()]
    for path, text in ((evidence.baseline_rows, before), (evidence.outputs["rows"], after)):
        write_rows(path, [row | {"output": text} for row in answers([True] * N)])
    return with_spec(replace(evidence, heldout=tuple(items)), task="instruction_following")


def enlarged_kind(evidence: Evidence) -> Evidence:
    """Return a comparison in which 8 of the 11 items of one kind gain, and the one item of the other is lost."""
    return two_kinds(evidence, "000000000001", "111111110000", first=11)


def _claims(evidence: Evidence, value: float, metric: str = "truncation_rate", tolerance: float = 0.0) -> Evidence:
    return replace(evidence, claims=(Claim(stage="base", metric=metric, value=value, tolerance=tolerance),))


NONE, ALL = "000000", "111111"
NO_COMMA = """\
schema_version: 1
title: Form
totals: {principles: 1, by_category: {form: 1}}
principles: [{id: plain, category: form, text: Write without commas., instructions: ["punctuation:no_comma"]}]
"""
OTHER_FLAWS: dict[str, Callable[[Evidence], Evidence]] = {
    **EVALUATION_FLAWS,
    "an answer of other weights": lambda evidence: witness_says(evidence, gap=0.7),
    "steps that come out otherwise": lambda evidence: _steps_again(
        evidence, lambda row: row | {"loss": row["loss"] + 0.01}
    ),
    "steps on other batches": lambda evidence: _steps_again(evidence, lambda row: row | {"batches": ["another batch"]}),
    "a step that no one trained again": lambda evidence: _steps_again(
        evidence, lambda row: row if row["step"] > 1 else {}
    ),
    "a configuration that training does not leave": lambda evidence: _witness_finds(evidence, files=["config.json"]),
    "a checkpoint of another step": lambda evidence: _witness_finds(evidence, saved=sketch(4)),
    "a checkpoint that the last steps do not lead to": lambda evidence: _ends_at(evidence, 0.3),
    "a checkpoint that no one compared with the last steps": lambda evidence: _ends_at(evidence, None),
    "a curve far below what the weights read": lambda evidence: _witness_finds(evidence, read_loss=2.5),
    "a witness that did not look at the weights": lambda evidence: _witness_finds(evidence),
    "a witness that left nothing": lambda evidence: replace(
        evidence, witness=evidence.witness and evidence.witness._replace(rows=None)
    ),
    "another registration": lambda evidence: replace(evidence, registered=OTHER),
    "a grant for another spec": lambda evidence: _grant(evidence, registration=OTHER),
    "another split": lambda evidence: replace(evidence, heldout_digest=OTHER),
    "a third evaluation": lambda evidence: replace(evidence, evaluations_of_heldout=3),
    "a split that other sessions have used": lambda evidence: replace(
        evidence, heldout_elsewhere=HeldoutUse(sessions=2, evaluations=5, unread=0)
    ),
    "an attempt left out": lambda evidence: replace(evidence, attempts=({"attempt": 2},)),
    "a crash": lambda evidence: _exit(evidence, code=1),
    "a time limit": lambda evidence: _exit(evidence, code=-15, reason="timeout"),
    "other parameters": lambda evidence: with_manifest(evidence, parameters=OTHER),
    "other inputs": lambda evidence: with_manifest(evidence, inputs={"model": OTHER}),
    "a log that was edited": lambda evidence: replace(evidence, log_left=OTHER),
    "a file next to the outputs": lambda evidence: replace(evidence, beside=("notes.jsonl",)),
    "edited outputs": lambda evidence: with_manifest(evidence, outputs={"rows": OTHER}),
    "a lower learning rate": lambda evidence: with_manifest(evidence, effective={"learning_rate": 9e-6}),
    "another seed": lambda evidence: with_manifest(evidence, seed=99),
    "a setting not read back": lambda evidence: with_manifest(evidence, effective={"max_length": None}),
    "half precision": lambda evidence: with_manifest(evidence, dtype="float16"),
    "another device than the baseline": lambda evidence: with_manifest(evidence, device="cuda:0"),
    "another card than the baseline": lambda evidence: with_manifest(evidence, device_name="another card"),
    "a held-out prompt in training": lambda evidence: _examples_with(evidence, prompt=heldout_items()[0].prompt),
    "a shouted held-out prompt": lambda evidence: _examples_with(evidence, prompt=heldout_items()[0].prompt.upper()),
    "a held-out prompt in a coded completion": lambda evidence: _examples_with(
        evidence, completion=base64.b64encode(heldout_items()[0].prompt.encode()).decode()
    ),
    "the words of a held-out prompt in another order": lambda evidence: _examples_with(
        replace(evidence, heldout=(evidence.heldout[0].model_copy(update={"prompt": _LONG}), *evidence.heldout[1:])),
        prompt=" ".join((*_LONG.split()[1:], _LONG.split()[0])),
    ),
    "the words of a held-out prompt in the order of the alphabet": lambda evidence: _examples_with(
        replace(evidence, heldout=(evidence.heldout[0].model_copy(update={"prompt": _LONG}), *evidence.heldout[1:])),
        prompt=" ".join(sorted(_LONG.split())),
    ),
    "a held-out topic in training": lambda evidence: _examples_with(evidence, group="hg3"),
    "prompts that name held-out topics": lambda evidence: _named_topics(evidence, 3),
    "a prompt that names a held-out topic": lambda evidence: _named_topics(evidence, 1),
    "two prompts that name held-out topics": lambda evidence: _named_topics(evidence, 2),
    "a held-out prompt in other words": lambda evidence: _examples_with(
        replace(evidence, heldout=(evidence.heldout[0].model_copy(update={"prompt": _LONG}), *evidence.heldout[1:])),
        prompt=_REWORDED,
    ),
    "repeated training rows": lambda evidence: _examples_with(evidence, prompt="Once.", completion="the same."),
    "edited examples": lambda evidence: _examples_with(evidence, completion="BAD EXAMPLE IN CAPITALS."),
    "other items in the baseline": lambda evidence: _baseline(evidence, inputs={"model": OTHER, "items": OTHER}),
    "other code in the baseline": lambda evidence: _baseline(evidence, code=OTHER),
    "other threads in the baseline": lambda evidence: _baseline(evidence, threads=1),
    "another chat template in the baseline": lambda evidence: _baseline(
        evidence, facts={"chat_template": OTHER, "first_prompt_ids": [1, 2]}
    ),
    "another prompt in the baseline": lambda evidence: _change_baseline_prompt(evidence, OTHER),
    "a baseline that does not state a prompt": lambda evidence: _change_baseline_prompt(evidence, None),
    "the same weights in both arms": lambda evidence: _baseline(
        evidence, inputs=evidence.manifest.inputs if evidence.manifest else {}
    ),
    "a gain from the length limit": _cut_gain,
    "a perfect baseline": _perfect_baseline,
    "no chat template": lambda evidence: with_manifest(evidence, facts={"chat_template": digest_bytes(b"")}),
    "a base model with a chat template": lambda evidence: _base_model(evidence),
    "rejected samples left out": lambda evidence: _only_accepted_rows(evidence),
    "a pilot that had another temperature": lambda evidence: piloted(evidence, temperature=0.5),
    "an example left out": lambda evidence: _drop_example(evidence),
    "loss on the prompt": lambda evidence: with_manifest(evidence, facts={"masked_tokens": 0}),
    "a prompt token with loss": lambda evidence: _masks(evidence, violations=1, wrong=[{"step": 3}]),
    "a sample with loss on its prompt": lambda evidence: _masks(
        evidence, sample=[{"ids": [1, 2, 3], "labels": [1, 2, 3], "prompt_tokens": 1}]
    ),
    "no sample of masks": lambda evidence: _masks(evidence, sample=[]),
    "a prompt that melts into the response": lambda evidence: _masks(evidence, merged=1),
    "data begun again": lambda evidence: with_manifest(evidence, facts={"epochs_done": 10.0, "sequences": 50}),
    "examples cut off": lambda evidence: with_manifest(evidence, facts={"cut": 1}),
    "examples left out for their length": lambda evidence: with_manifest(evidence, facts={"dropped": 1}),
    "a loss that is not the granted one": lambda evidence: with_manifest(
        evidence, effective={"precision": "float32"}, facts={"loss_difference": 0.01}
    ),
    "one batch again and again": lambda evidence: with_manifest(evidence, facts={"distinct_batches": 1}),
    "half of the data": lambda evidence: with_manifest(evidence, facts={"examples_by_kind": {"lowercase": 3}}),
    "only adapters trained": lambda evidence: with_manifest(evidence, effective={"trained_share": 0.01}),
    "weights that did not move": _same_weights,
    "hidden steps between two rows": lambda evidence: _trained_on(evidence, 5),
    "rows that state no weights": lambda evidence: _trained_on(evidence, 5, sketch=[]),
    "a warm-up as long as the training": lambda evidence: _change_parameters(evidence, warmup_steps=10),
    "a warm-up of most of the training": lambda evidence: _change_parameters(evidence, warmup_steps=6),
    "a rate that is not meant to decay": lambda evidence: _change_parameters(evidence, scheduler="constant"),
    "a granted GPU that was not used": lambda evidence: _grant(evidence, resources=Resources(gpus=1)),
    "attention that fell back": lambda evidence: with_manifest(
        evidence, facts={"attention": {"used": "eager", "fused": True}}
    ),
    "steps that take far too long": lambda evidence: with_manifest(
        evidence, effective={"trained_parameters": 100}, facts={"step_seconds": [30.0] * 10}
    ),
    "another chat template in the checkpoint": lambda evidence: _tokenizers(evidence, chat_template="{{ prompt }}"),
    "other weights than the pinned ones": _pinned,
    "another version of the measuring code": lambda evidence: replace(evidence, measured_by=OTHER),
    "code whose state is not declared": lambda evidence: with_manifest(evidence, code_state=None),
    "code that changed while the job ran": lambda evidence: with_manifest(evidence, code=OTHER),
    "code other than that of the session": lambda evidence: replace(evidence, ordered_code=digest_bytes(b"other")),
    "code with changes that no commit holds": lambda evidence: with_manifest(
        evidence, code_state=_state(evidence, changed=2)
    ),
    "code of an unknown commit": lambda evidence: with_manifest(
        evidence,
        code_state=_state(evidence, commit=None, branch=None, changed=None, unknown="not a git checkout of Peergate"),
    ),
    "code with changes where clean code is required": lambda evidence: with_spec(
        with_manifest(evidence, code_state=_state(evidence, changed=2)), clean_code="required"
    ),
    "a time limit that did not hold": lambda evidence: replace(
        _exit(evidence, ended=3600.0), observed=ObservedRuntime(at_least_s=3500.0, at_most_s=3700.0)
    ),
    "another precision than the granted one": lambda evidence: with_manifest(evidence, dtype="bfloat16"),
    "the same weights in other files": _saved_again,
    "weights that hardly moved": _nudged,
    "rows that no one can read": lambda evidence: replace(
        evidence, outputs=evidence.outputs | {"rows": write_rows(evidence.outputs["rows"], [{"item": "h0"}])}
    ),
    "a clock that runs backwards": lambda evidence: _exit(evidence, ended=-1e9),
    "a clock that runs ahead": lambda evidence: _exit(evidence, ended=1e9),
    "less time than its process was seen alive": lambda evidence: replace(
        evidence, observed=ObservedRuntime(at_least_s=600.0, at_most_s=700.0)
    ),
    "an exit record of another day": lambda evidence: _exit(evidence, started=1.0 - 86400, ended=2.0 - 86400),
    "an end in the future": lambda evidence: _exit(evidence, started=86400.0, ended=86401.0),
    "an item without a row": _without_a_row,
    "more tokens stated than its rows hold": lambda evidence: with_manifest(evidence, tokens=10_000),
    "the hours of another machine": lambda evidence: replace(
        _exit(evidence, started=86400.0, ended=86401.0), observed=ObservedRuntime(at_least_s=0.0, at_most_s=3.0)
    ),
    "hours before the launch by the clock that both read": lambda evidence: replace(
        _exit(evidence, started=1.0 - 7200, ended=2.0 - 7200),
        observed=ObservedRuntime(at_least_s=0.0, at_most_s=3.0, clock_set_s=-3600.0),
    ),
    "a clock that was set while the job ran": lambda evidence: replace(
        _exit(evidence, started=1.0 - 7200, ended=2.0 - 7200),
        observed=ObservedRuntime(at_least_s=600.0, at_most_s=700.0, clock_set_s=-7200.0),
    ),
    "more work than its process had time for": lambda evidence: with_manifest(evidence, wall_s=3600.0),
    "one completion for every prompt": _copied,
    "a gain from a kind with most of the items": enlarged_kind,
    "an instruction followed less often": lambda evidence: two_instructions(
        evidence, "Tea is A drink of leaves", "tea is a drink, of leaves"
    ),
    "a principle kept less often": lambda evidence: replace(
        two_instructions(evidence, "Tea is A drink of leaves", "tea is a drink, of leaves"), constitution=NO_COMMA
    ),
    "a kind that got worse": lambda evidence: two_kinds(evidence, NONE + ALL, ALL + NONE),
    "a gain from one group": lambda evidence: two_kinds(evidence, NONE + NONE, ALL + NONE, groups="aaaaaabbbbbb"),
    "fewer steps than the data imply": lambda evidence: with_manifest(
        replace(evidence, outputs=evidence.outputs | {"rows": write_rows(evidence.outputs["rows"], steps(7))}),
        effective={"steps": 7, "planned_steps": 7},
    ),
    "more passes than are of use": lambda evidence: with_thresholds(evidence, passes=1),
    "too few tokens": lambda evidence: with_thresholds(evidence, parameters_per_token=0.1),
    "other weights in the package": _repacked,
    "evaluated weights that were changed and packed": _changed_and_packed,
    "a treatment trained from other weights than the baseline": lambda evidence: _stage_reads(
        evidence, "train", "control"
    ),
    "a package that was trained on after its evaluation": lambda evidence: _stage_reads(evidence, "tuned", "model"),
    "a package with weights of another format": lambda evidence: _repacked_file(
        evidence, "pytorch_model.bin", "weights"
    ),
    "a package with another configuration": lambda evidence: _repacked_file(
        evidence, "config.json", '{"rms_norm_eps": 0.1}'
    ),
    "a package with special tokens of its own": lambda evidence: _repacked_file(
        evidence, "special_tokens_map.json", "{}"
    ),
    "a package that samples": lambda evidence: _repacked_file(
        evidence, "generation_config.json", '{"do_sample": true, "temperature": 1.0, "repetition_penalty": 1.3}'
    ),
    "a package without its tokenizer": _unfinished_package,
    "a package of the untrained model": _another_packed,
    "a checkpoint without its tokenizer": _unusable,
    "a checkpoint without a file that its base lacks too": _as_its_base,
    "a script outside of a sandbox": lambda evidence: with_manifest(evidence, facts={"sandbox": "none"}),
    "a script that left links": lambda evidence: with_manifest(evidence, facts={"left_out": 2}),
    "a log that was cut": lambda evidence: with_manifest(evidence, facts={"log_bytes_left_out": 9}),
    "rows that are not objects": _bare_row,
    "a held-out prompt in a row": lambda evidence: _left(
        evidence, "rows", f'{{"a": "{heldout_items()[2].prompt.upper()}"}}'
    ),
    "a held-out prompt in a file": lambda evidence: _left(evidence, "files", f"\x00 {heldout_items()[2].prompt}"),
    "a held-out prompt in the log": lambda evidence: replace(evidence, log_tail=heldout_items()[2].prompt),
    "another script than the granted one": lambda evidence: with_manifest(evidence, effective={"code": OTHER}),
    "a claim the rows contradict": lambda evidence: _claims(evidence, 0.999),
    "a claim with room for anything": lambda evidence: _claims(evidence, 0.999, tolerance=0.9),
    "a claim in the wrong cell": lambda evidence: _claims(evidence, 0.5, metric="acceptance_rate"),
    "no claims after three that were sent back": lambda evidence: replace(evidence, claims=(), sent_back=3),
}

IRREPARABLE = {
    "registration.unchanged",
    "registration.model",
    "registration.split",
    "registration.attempts",
    "jobs.granted",
    "jobs.outputs",
    "leakage.overlap",
    "leakage.groups",
    "parity.items",
    "parity.models",
    "parity.prompts",
    "arms.alike",
    "transfer.alike",
    "training.path",
    "power.headroom",
    "strata.groups",
    "jobs.measured",
    "health.template",
    "package.weights",
    "checkpoint.files",
    "recipe.sandbox",
    "recipe.heldout",
    "scorer.admitted",
    "gap.before_training",
    "witness.answers",
    "witness.training",
    "witness.weights",
}
"""What no parameter can fix: the data, the design or the record itself is wrong."""

CASES = [
    ("base", "an answer of other weights", "witness.answers", "FAIL"),
    ("train", "steps that come out otherwise", "witness.training", "FAIL"),
    ("train", "steps on other batches", "witness.training", "FAIL"),
    ("train", "a step that no one trained again", "witness.training", "BLOCKED"),
    ("train", "a configuration that training does not leave", "witness.weights", "FAIL"),
    ("train", "a checkpoint of another step", "witness.weights", "FAIL"),
    ("train", "a checkpoint that the last steps do not lead to", "witness.weights", "FAIL"),
    ("train", "a checkpoint that no one compared with the last steps", "witness.weights", "BLOCKED"),
    ("train", "a curve far below what the weights read", "witness.weights", "FAIL"),
    ("train", "a witness that did not look at the weights", "witness.weights", "BLOCKED"),
    ("sample", "a witness that left nothing", "witness.answers", "BLOCKED"),
    ("base", "another registration", "registration.unchanged", "FAIL"),
    ("train", "a grant for another spec", "registration.unchanged", "FAIL"),
    ("base", "other weights than the pinned ones", "registration.model", "FAIL"),
    ("base", "another version of the measuring code", "registration.code", "FAIL"),
    ("base", "code that changed while the job ran", "provenance.code", "FAIL"),
    ("base", "code other than that of the session", "provenance.code", "FAIL"),
    ("base", "code with changes that no commit holds", "provenance.code", "WARN"),
    ("base", "code of an unknown commit", "provenance.code", "WARN"),
    ("base", "code with changes where clean code is required", "provenance.code", "FAIL"),
    ("base", "another split", "registration.split", "FAIL"),
    ("base", "a claim the rows contradict", "claims.as_measured", "FAIL"),
    ("base", "a claim with room for anything", "claims.as_measured", "WARN"),
    ("base", "a claim in the wrong cell", "claims.as_measured", "WARN"),
    ("base", "no claims after three that were sent back", "claims.as_measured", "WARN"),
    ("tuned", "a third evaluation", "registration.evaluations", "WARN"),
    ("base", "a split that other sessions have used", "registration.workspace", "WARN"),
    ("train", "an attempt left out", "registration.attempts", "FAIL"),
    ("train", "a crash", "jobs.exit", "FAIL"),
    ("train", "a time limit", "jobs.exit", "FAIL"),
    ("train", "other parameters", "jobs.granted", "FAIL"),
    ("sample", "other inputs", "jobs.granted", "FAIL"),
    ("train", "a log that was edited", "jobs.exit", "FAIL"),
    ("sample", "edited outputs", "jobs.outputs", "FAIL"),
    ("sample", "a file next to the outputs", "jobs.outputs", "FAIL"),
    ("train", "a lower learning rate", "jobs.effective", "FAIL"),
    ("train", "another seed", "jobs.effective", "FAIL"),
    ("train", "a setting not read back", "jobs.effective", "FAIL"),
    ("base", "half precision", "jobs.device", "WARN"),
    ("train", "another precision than the granted one", "jobs.device", "FAIL"),
    ("tuned", "another device than the baseline", "jobs.device", "FAIL"),
    ("tuned", "another card than the baseline", "jobs.device", "WARN"),
    ("ship", "a time limit that did not hold", "jobs.cost", "FAIL"),
    ("ship", "a clock that runs backwards", "jobs.clock", "FAIL"),
    ("train", "a clock that runs ahead", "jobs.clock", "FAIL"),
    ("base", "less time than its process was seen alive", "jobs.clock", "FAIL"),
    ("train", "an exit record of another day", "jobs.times", "FAIL"),
    ("base", "an end in the future", "jobs.times", "FAIL"),
    ("base", "the hours of another machine", "jobs.times", "WARN"),
    ("base", "hours before the launch by the clock that both read", "jobs.times", "FAIL"),
    ("base", "a clock that was set while the job ran", "jobs.times", "WARN"),
    ("base", "an item without a row", "health.complete", "FAIL"),
    ("base", "more tokens stated than its rows hold", "jobs.measured", "FAIL"),
    ("train", "more tokens stated than its rows hold", "jobs.measured", "FAIL"),
    ("ship", "more work than its process had time for", "jobs.times", "FAIL"),
    ("train", "a held-out prompt in training", "leakage.overlap", "FAIL"),
    ("sample", "a shouted held-out prompt", "leakage.overlap", "FAIL"),
    ("train", "a held-out prompt in a coded completion", "leakage.overlap", "FAIL"),
    ("train", "the words of a held-out prompt in another order", "leakage.overlap", "WARN"),
    ("train", "the words of a held-out prompt in the order of the alphabet", "leakage.overlap", "FAIL"),
    ("train", "a held-out topic in training", "leakage.groups", "FAIL"),
    ("train", "prompts that name held-out topics", "leakage.groups", "FAIL"),
    ("train", "a prompt that names a held-out topic", "leakage.groups", "WARN"),
    ("train", "two prompts that name held-out topics", "leakage.groups", "WARN"),
    ("train", "a held-out prompt in other words", "leakage.nearest", "WARN"),
    ("train", "repeated training rows", "leakage.duplicates", "WARN"),
    ("sample", "edited examples", "health.accepted", "FAIL"),
    ("tuned", "other items in the baseline", "parity.items", "FAIL"),
    ("tuned", "other code in the baseline", "parity.settings", "FAIL"),
    ("tuned", "other threads in the baseline", "parity.settings", "FAIL"),
    ("tuned", "another chat template in the baseline", "parity.settings", "FAIL"),
    ("tuned", "another prompt in the baseline", "parity.prompts", "FAIL"),
    ("tuned", "a baseline that does not state a prompt", "parity.prompts", "BLOCKED"),
    ("sample", "a pilot that had another temperature", "pilot.followed", "FAIL"),
    *EVALUATION_CASES,
    ("tuned", "the same weights in both arms", "parity.models", "FAIL"),
    ("tuned", "a treatment trained from other weights than the baseline", "parity.models", "FAIL"),
    ("tuned", "a gain from the length limit", "parity.truncation", "FAIL"),
    ("tuned", "a gain from a kind with most of the items", "strata.sensitivity", "FAIL"),
    ("tuned", "a kind that got worse", "strata.kinds", "WARN"),
    ("tuned", "an instruction followed less often", "strata.instructions", "WARN"),
    ("tuned", "a principle kept less often", "strata.principles", "WARN"),
    ("tuned", "a gain from one group", "strata.groups", "FAIL"),
    ("base", "a perfect baseline", "power.headroom", "FAIL"),
    ("base", "no chat template", "health.template", "FAIL"),
    ("base", "a base model with a chat template", "health.template", "WARN"),
    ("sample", "rejected samples left out", "health.complete", "FAIL"),
    ("sample", "an example left out", "health.accepted", "FAIL"),
    ("base", "answers cut off", "health.truncation", "FAIL"),
    ("base", "answers empty", "health.empty", "FAIL"),
    ("base", "answers of one word", "health.labels", "FAIL"),
    ("base", "answers all alike", "health.collapse", "FAIL"),
    ("base", "answers of one pattern", "health.near", "WARN"),
    ("base", "answers off topic", "health.topic", "WARN"),
    ("base", "prompts as answers", "health.topic", "WARN"),
    ("sample", "samples cut off", "health.samples", "WARN"),
    ("sample", "samples of which none is accepted", "health.kept", "FAIL"),
    ("sample", "delimiters in the samples", "residue.delimiters", "FAIL"),
    ("sample", "one beginning for all samples", "residue.edges", "WARN"),
    ("sample", "samples that echo the prompt", "residue.copies", "FAIL"),
    ("sample", "samples that repeat the worked example", "residue.copies", "FAIL"),
    ("sample", "samples that refuse", "residue.refusals", "FAIL"),
    ("sample", "one completion for every prompt", "variety.copies", "FAIL"),
    ("sample", "samples that nearly repeat", "variety.near", "FAIL"),
    ("sample", "a runaway sample", "variety.lengths", "WARN"),
    ("train", "a step missing", "training.steps", "FAIL"),
    ("train", "fewer steps than the data imply", "training.steps", "FAIL"),
    ("train", "a dead gradient", "training.gradient", "FAIL"),
    ("train", "a gradient spike", "training.gradient", "WARN"),
    ("train", "a rate that never rose", "training.schedule", "FAIL"),
    ("train", "a rate above the granted one", "training.schedule", "FAIL"),
    ("train", "a rate that never decayed", "training.schedule", "FAIL"),
    ("train", "a rate that falls to nothing early", "training.schedule", "FAIL"),
    ("train", "a rate on another curve", "training.schedule", "FAIL"),
    ("train", "a loss that rose", "training.loss", "WARN"),
    ("train", "a loss that stayed", "training.loss", "WARN"),
    ("train", "a loss that only moves as batches do", "training.loss", "FAIL"),
    ("train", "the same weights in other files", "training.moved", "FAIL"),
    ("train", "weights that hardly moved", "training.moved", "FAIL"),
    ("train", "a warm-up as long as the training", "training.decay", "WARN"),
    ("train", "a warm-up of most of the training", "training.decay", "WARN"),
    ("train", "a rate that is not meant to decay", "training.decay", "WARN"),
    ("train", "a plateau that the schedule makes", "training.plateau", "WARN"),
    ("train", "a loss that rose again", "training.rise", "WARN"),
    ("train", "a granted GPU that was not used", "training.device", "FAIL"),
    ("train", "attention that fell back", "training.device", "WARN"),
    ("train", "steps that take far too long", "training.speed", "WARN"),
    ("train", "another chat template in the checkpoint", "training.tokenizer", "FAIL"),
    ("base", "rows that no one can read", "jobs.measured", "BLOCKED"),
    ("train", "more passes than are of use", "training.starvation", "WARN"),
    ("train", "too few tokens", "training.starvation", "WARN"),
    ("train", "a prompt token with loss", "training.mask", "FAIL"),
    ("train", "a sample with loss on its prompt", "training.mask", "FAIL"),
    ("train", "no sample of masks", "training.mask", "BLOCKED"),
    ("train", "a prompt that melts into the response", "training.mask", "WARN"),
    ("train", "data begun again", "training.steps", "FAIL"),
    ("train", "examples cut off", "training.length", "WARN"),
    ("train", "examples left out for their length", "training.length", "FAIL"),
    ("train", "a loss that is not the granted one", "training.objective", "FAIL"),
    ("train", "loss on the prompt", "training.mask", "FAIL"),
    ("train", "no token with loss", "training.mask", "FAIL"),
    ("train", "one batch again and again", "training.batches", "FAIL"),
    ("train", "half of the data", "training.data", "FAIL"),
    ("train", "only adapters trained", "training.moved", "FAIL"),
    ("train", "weights that did not move", "training.moved", "FAIL"),
    ("train", "hidden steps between two rows", "training.path", "FAIL"),
    ("train", "rows that state no weights", "training.path", "BLOCKED"),
    ("ship", "other weights in the package", "package.weights", "FAIL"),
    ("ship", "evaluated weights that were changed and packed", "package.weights", "FAIL"),
    ("ship", "a package with weights of another format", "package.weights", "FAIL"),
    ("ship", "a package with another configuration", "package.weights", "FAIL"),
    ("ship", "a package that samples", "package.decoding", "WARN"),
    ("ship", "a package with special tokens of its own", "package.weights", "FAIL"),
    ("ship", "a package without its tokenizer", "package.weights", "FAIL"),
    ("ship", "a package of the untrained model", "package.weights", "FAIL"),
    ("ship", "a package that was trained on after its evaluation", "package.weights", "WARN"),
    ("train", "a checkpoint without its tokenizer", "checkpoint.files", "FAIL"),
    ("train", "a checkpoint without a file that its base lacks too", "checkpoint.files", "WARN"),
    ("ship", "a checkpoint without its tokenizer", "checkpoint.files", "FAIL"),
    ("ship", "silent probes", "package.probes", "FAIL"),
    ("ship", "other probes", "package.probes", "FAIL"),
    ("look", "a script outside of a sandbox", "recipe.sandbox", "FAIL"),
    ("look", "a script that left links", "recipe.kept", "WARN"),
    ("look", "a log that was cut", "recipe.kept", "WARN"),
    ("look", "rows that are not objects", "recipe.rows", "BLOCKED"),
    ("look", "a held-out prompt in a row", "recipe.heldout", "FAIL"),
    ("look", "a held-out prompt in a file", "recipe.heldout", "FAIL"),
    ("look", "a held-out prompt in the log", "recipe.heldout", "FAIL"),
    ("look", "another script than the granted one", "jobs.effective", "FAIL"),
]
