"""Evidence of one attempt as files, whole and healthy; each test breaks one thing of it."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reviews.evidence.evidence import Evidence, WitnessEvidence
from reviews.gate.design_checks import design_checks
from specs.jobs.grant_and_claim import Grant
from specs.jobs.job_records import Challenge, CodeState, ExitRecord, HeldoutUse, Manifest, ObservedRuntime, RowSelection
from specs.loading.loading import load_spec
from specs.session.session_spec import ResolvedSpec
from specs.stages.base.artifacts import Example, Item, Preference
from specs.stages.registry import STAGE_KINDS, Stage
from specs.system.digests import digest_bytes, digest_file, digest_path, digest_value
from specs.trail.verdict import CheckResult
from testing.factories.recipe_session import RECIPE
from testing.factories.spec_files import write_spec

N = 12
SCRIPT = "print('a script')"
RIGHT, WRONG = "this is a fine answer in small letters.", "This Is A Wrong Answer In Large Letters."
TALES = (
    "waves came up to the old house every night.",
    "one cloud asked the other where it was going.",
    "every morning it rose before the baker did.",
    "an owl read the paper to the mice.",
    "her hive moved to a shoe by the door.",
)


def training_facts() -> dict[str, Any]:
    """Return what the manifest of a healthy training states next to its settings."""
    return {
        "chat_template": digest_bytes(b"template"),
        "first_prompt_ids": [1, 2],
        "masked_tokens": 100,
        "batches": 10,
        "distinct_batches": 10,
        "cut": 0,
        "dropped": 0,
        "sequences": 10,
        "epochs_done": 2.0,
        "loss_difference": 0.0,
        "mask": {
            "rows": 10,
            "prompts": 5,
            "merged": 0,
            "violations": 0,
            "wrong": [],
            "sample": [{"ids": [1, 2, 3], "labels": [-100, 2, 3], "prompt_tokens": 1}],
        },
        "examples": 5,
        "examples_by_kind": {"lowercase": 5},
    }


def tokens_in(rows: Path | None) -> int:
    """Return the tokens that rows count, as a job states them."""
    results = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()] if rows else []
    names = ("tokens", "output_tokens", "completion_tokens")
    return sum(
        next((value[name] for name in names if name in value), 0) for value in results if isinstance(value, dict)
    )


def heldout_items() -> tuple[Item, ...]:
    return tuple(
        Item(id=f"h{n}", group=f"hg{n}", kind="lowercase", prompt=f"Write one line on {topic}.", constraint={})
        for n, topic in enumerate(["elm", "oak", "ash", "fir", "yew", "box", "bay", "fig", "nut", "pea", "rye", "hop"])
    )


def prompt_items() -> tuple[Item, ...]:
    return tuple(
        Item(id=f"p{n}", group=f"pg{n}", kind="lowercase", prompt=f"Tell a short tale of the {who}.", constraint={})
        for n, who in enumerate(["sea", "sky", "sun", "owl", "bee"])
    )


def clean_code(digest: str) -> CodeState:
    """Return the state of code that is exactly that of a commit."""
    return CodeState(digest=digest, version="0.1.0", commit="a" * 40, branch="main", changed=0)


def resolved_spec(folder: Path, *changes: tuple[str, str]) -> ResolvedSpec:
    """Load the shared small spec with real items of the task, two samples a prompt and batches of one example."""
    fitting = (
        ("  n: 3\n", f"  n: {N}\n"),
        ("samples_per_prompt: 4", "samples_per_prompt: 2"),
        ("epochs: 2, seed: 7", "epochs: 2, batch_size: 1, seed: 7"),
    )
    path = write_spec(folder, *fitting, *changes)
    before = digest_file(folder / "heldout.jsonl")
    for name, items in (("heldout", heldout_items()), ("prompts", prompt_items())):
        (folder / f"{name}.jsonl").write_text(
            "".join(f"{item.model_dump_json()}\n" for item in items), encoding="utf-8"
        )
    text = path.read_text(encoding="utf-8").replace(before, digest_file(folder / "heldout.jsonl"))
    path.write_text(text, encoding="utf-8")
    return load_spec(path)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def answers(right: list[bool], **changes: Any) -> list[dict[str, Any]]:
    """Return evaluation rows that are right or wrong as ordered."""
    return [
        {
            "item": item.id,
            "prompt_digest": digest_bytes(item.prompt.encode()),
            "prompt_tokens": 9,
            "output": f"{RIGHT if is_right else WRONG} {item.id} {item.prompt.split()[-1]}",
            "output_tokens": 9,
            "truncated": False,
        }
        | changes
        for item, is_right in zip(heldout_items(), right, strict=True)
    ]


def samples() -> list[dict[str, Any]]:
    """Return two samples a prompt, the first accepted, the second not."""
    return [
        {
            "item": item.id,
            "group": item.group,
            "kind": item.kind,
            "sample": sample,
            "prompt": item.prompt,
            "completion": TALES[place] if sample == 0 else "A Tale In Capitals.",
            "completion_tokens": 10,
            "truncated": False,
        }
        for place, item in enumerate(prompt_items())
        for sample in range(2)
    ]


def examples(rows: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """Return what the verifier keeps of samples: whole, in small letters, each once."""
    remaining: dict[tuple[str, str], dict[str, Any]] = {}
    for row in samples() if rows is None else rows:
        if row["completion"].islower() and not row["truncated"]:
            remaining.setdefault((row["prompt"], row["completion"].strip()), row)
    names = ("item", "group", "kind", "sample", "prompt")
    return [{name: row[name] for name in names} | {"completion": text} for (_, text), row in remaining.items()]


def sketch(step: int) -> list[float]:
    """Return a few numbers for the weights after a step."""
    return [10.0, *(0.1 * place + 1e-6 * step for place in range(4))]


def replayed(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what a witness writes of steps that come out the same."""
    names = ("step", "loss", "learning_rate", "grad_norm", "tokens", "batches", "sketch")
    return [{name: row.get(name, []) for name in names} | {"before": sketch(row["step"] - 1)} for row in rows]


def trained_facts(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what a witness finds in saved weights that are those of the last step."""
    return {"saved": rows[-1].get("sketch", []), "read_loss": rows[-1]["loss"], "read": 16, "files": []}


def steps(count: int = 10) -> list[dict[str, Any]]:
    """Return optimizer steps with a warm-up of one step, then a rate that falls in a straight line."""
    return [
        {
            "step": n,
            "epoch": n / count,
            "loss": 2.0 - 0.1 * n,
            "learning_rate": 0.0 if n == 1 else 1e-5 * (count + 1 - n) / (count - 1),
            "grad_norm": 1.0 + 0.01 * n,
            "tokens": 50,
            "batches": [f"batch {n}"],
            "sketch": sketch(n),
        }
        for n in range(1, count + 1)
    ]


def probes() -> list[dict[str, Any]]:
    return [{"item": item.id, "expected": [1, 2, 3], "reloaded": [1, 2, 3]} for item in heldout_items()[:2]]


def weights(content: str, parameters: int = 100, moved: float = 0.0) -> bytes:
    """Return a weight file of one tensor with this many parameters; ``content`` or ``moved`` makes it differ."""
    tensor = {"dtype": "F32", "shape": [parameters], "data_offsets": [0, 4 * parameters]}
    header = json.dumps({"__metadata__": {"content": content}, "tensor": tensor}).encode()
    seed = digest_bytes(content.encode())[7:]
    values = [int(seed[place % 64], 16) / 16 + moved for place in range(parameters)]
    return len(header).to_bytes(8, "little") + header + struct.pack(f"<{parameters}f", *values)


TEMPLATE = (
    "{% for turn in messages %}{{ turn.role }}: {{ turn.content }}<end>{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def describe(folder: Path) -> None:
    """Write what lies next to the weights of a checkpoint, of a family whose tensors no one knows."""
    files = {
        "config.json": {"model_type": "small", "vocab_size": 4, "eos_token_id": 0},
        "generation_config.json": {"eos_token_id": 0},
        "tokenizer_config.json": {"eos_token": "<end>", "chat_template": TEMPLATE},
        "tokenizer.json": {"model": {"vocab": {"<end>": 0}}, "added_tokens": []},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")


def exit_of(key: str) -> ExitRecord:
    """Return how a healthy job ended."""
    return ExitRecord(key=key, code=0, reason="exited", started=1.0, ended=2.0, host="here", log=digest_bytes(b""))


def witnessed(rows: Sequence[int]) -> list[dict[str, Any]]:
    """Return what a witness reads of greedy answers that the granted weights wrote."""
    return [{"row": row, "tokens": 9, "text": True, "ending": True, "gap": 0.0} for row in rows]


def scored(output: str, rows: Sequence[int]) -> list[dict[str, Any]]:
    """Return what a witness reads of scores that the granted weights gave."""
    value = {"stated": -1.5, "read": -1.5, "tokens": 1}
    return [{"output": output, "row": row, "differs": [], "scores": {"text": value}} for row in rows]


def witness_of(folder: Path, stage: Stage, outputs: Mapping[str, Path], manifest: Manifest) -> WitnessEvidence | None:
    """Return a witness that read every row it could and found nothing; None of a stage that has none."""
    kind = STAGE_KINDS[stage.kind]
    names = kind.scores_of(stage.parameters)
    flag = kind.answers_count(stage.parameters)
    if not (flag or names or kind.replay_job):
        return None
    counts = {name: len(outputs[name].read_bytes().splitlines()) for name in {"rows", *names} if name in outputs}
    every = {name: RowSelection(of=count, rows=tuple(range(count))) for name, count in counts.items()}
    first = every.pop("rows")
    challenge = Challenge(ended=digest_bytes(b"end"), of=first.of, rows=first.rows, others=every or None)
    lines = witnessed(first.rows) if flag else []
    if kind.replay_job:
        trained = [json.loads(line) for line in outputs["rows"].read_text(encoding="utf-8").splitlines()]
        lines += replayed(trained)
        manifest = manifest.model_copy(update={"facts": trained_facts(trained)})
    lines += [line for name in names for line in scored(name, challenge.select_rows(name).rows)]
    return WitnessEvidence(challenge, write_rows(folder / "witness.jsonl", lines), manifest, "")


def evidence_of(
    folder: Path,
    stage_name: str,
    rows: list[dict[str, Any]] | None = None,
    *,
    recipe: tuple[tuple[str, str], ...] = RECIPE,
    spec: tuple[tuple[str, str], ...] = (),
    **changes: Any,
) -> Evidence:
    """Return the healthy evidence of a stage's first attempt; ``spec`` and ``changes`` replace its texts and fields."""
    resolved = resolved_spec(folder, *(recipe if stage_name == "look" else ()), *spec)
    stage = resolved.spec.stage(stage_name)
    parameters = stage.parameters.model_dump(mode="json")
    if stage.kind == "recipe":
        parameters["code"] = digest_bytes(SCRIPT.encode())
    out = folder / stage_name
    healthy = {
        "evaluate": answers([True] * 10 + [False] * 2),
        "generate": samples(),
        "sft": steps(),
        "package": probes(),
        "recipe": [{"claim": "half of the rows are short", "value": 0.5}],
    }
    outputs = {"rows": write_rows(out / "rows.jsonl", healthy[stage.kind] if rows is None else rows)}
    model = folder / "model"
    for place in (model, out / "weights"):
        place.mkdir(parents=True, exist_ok=True)
        moved = 1e-5 if place != model and stage.kind != "package" else 0.0
        (place / "model.safetensors").write_bytes(weights("same", moved=moved))
        describe(place)
    if stage.kind == "generate":
        outputs["accepted"] = write_rows(out / "accepted.jsonl", examples(rows))
    for name, kind in STAGE_KINDS[stage.kind].outputs.items():
        if kind == "checkpoint":
            outputs[name] = out / "weights"
        elif kind == "files":
            outputs[name] = out / "files"
            write_rows(out / "files" / "lengths.jsonl", [{"length": 4}])
    inputs: dict[str, Path] = {"model": model}
    if "items" in stage.inputs:
        inputs["items"] = folder / "heldout.jsonl"
    if "prompts" in stage.inputs:
        inputs["prompts"] = folder / "prompts.jsonl"
    if "examples" in stage.inputs:
        inputs["examples"] = write_rows(folder / "examples.jsonl", examples())
    input_digests = {role: digest_path(path) for role, path in inputs.items()}
    output_digests = {name: digest_path(path) for name, path in outputs.items()}
    grant = Grant(
        session="small",
        stage=stage_name,
        attempt=1,
        kind=stage.kind,
        task=resolved.spec.task,
        max_seconds=stage.max_minutes * 60,
        registration=resolved.registration(),
        parameters=digest_value(parameters),
        inputs=input_digests,
        model=input_digests["model"],
        price_cap_usd=0.1,
        decision=digest_bytes(b"decision"),
        issued=1.0,
        expires=2.0,
    )
    manifest = Manifest(
        key=grant.key(),
        kind=stage.kind,
        parameters=grant.parameters,
        inputs=input_digests,
        outputs=output_digests,
        code=digest_bytes(b"code"),
        packages={"torch": "2.13.0"},
        device="cpu",
        device_name="cpu",
        dtype="float32",
        threads=2,
        seed=parameters["seed"],
        tokens=tokens_in(outputs.get("rows")),
        wall_s=1.0,
        effective=parameters | {"steps": 10, "planned_steps": 10, "trained_share": 1.0},
        code_state=clean_code(digest_bytes(b"code")),
        facts=training_facts() | {"sandbox": "bubblewrap 0.8.0", "left_out": 0, "log_bytes_left_out": 0, "files": 2},
    )
    extra: dict[str, Any] = {}
    if stage_name == resolved.spec.analysis.treatment:
        before = write_rows(folder / "before.jsonl", answers([False] * N))
        other = manifest.inputs | {"model": digest_bytes(b"the untouched model")}
        extra = {
            "baseline_rows": before,
            "baseline_manifest": manifest.model_copy(update={"inputs": other}),
            "baseline_parameters": parameters,
        }
    whole = Evidence(
        resolved=resolved,
        registered=resolved.registration(),
        stage=stage,
        attempt=1,
        grant=grant,
        parameters=parameters,
        heldout=heldout_items(),
        heldout_digest=digest_file(folder / "heldout.jsonl"),
        data={"prompts": prompt_items()},
        manifest=manifest,
        exit=exit_of(grant.key()),
        observed=ObservedRuntime(at_least_s=0.5, at_most_s=3.0),
        launched=0.5,
        ended=3.5,
        outputs=outputs,
        output_digests=output_digests,
        inputs=inputs,
        log_left=digest_bytes(b""),
        log_tail="loading\ntraining\ndone",
        ordered_code=digest_bytes(b"code"),
        code=SCRIPT if stage.kind == "recipe" else "",
        attempts=({"attempt": 1, "changes": {}, "outcome": None},),
        evaluations_of_heldout=1,
        heldout_elsewhere=HeldoutUse(sessions=0, evaluations=0, unread=1) if stage.reads_heldout else None,
        witness=witness_of(out, stage, outputs, manifest),
        **extra,
    )
    return replace(whole, **changes)


def with_manifest(evidence: Evidence, **changes: Any) -> Evidence:
    """Return the evidence with fields of the job's manifest changed; ``effective`` and ``facts`` are merged."""
    assert evidence.manifest is not None
    for name in ("effective", "facts"):
        if name in changes:
            changes[name] = getattr(evidence.manifest, name) | changes[name]
    return replace(evidence, manifest=evidence.manifest.model_copy(update=changes))


def design_results(
    resolved: ResolvedSpec,
    heldout: tuple[Item, ...],
    data: Mapping[str, tuple[Item, ...]],
    brought: Mapping[str, Sequence[Example | Preference]] | None = None,
) -> tuple[CheckResult, ...]:
    """Return what the design checks find, with the costs that follow from the spec."""
    return design_checks(resolved, heldout, data, resolved.attempt_costs(), brought)
