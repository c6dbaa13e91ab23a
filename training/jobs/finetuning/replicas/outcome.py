"""What the replicas come to: one checkpoint, one row per step, and a row per replica and synchronisation."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import Any

from training.jobs.finetuning.adapter_merge import finished
from training.jobs.finetuning.replicas.coordinator import Coordinator, environment, require_torchft
from training.jobs.finetuning.replicas.courses import COURSES, Course
from training.jobs.finetuning.replicas.outer_weights import trained_parameters
from training.jobs.finetuning.replicas.replica_files import FOLDERS, Round, folder_of, of_replica, sha256_of
from training.jobs.job import Done, Job, refuse
from training.jobs.saved_steps import SNAPSHOTS, keep
from training.rules.finetuning.replica_rounds import Merging, Share, merged_step
from training.rules.finetuning.schedules import steps_of


def train(job: Job[Any]) -> Done:
    """Write ``rows``, ``replicas``, ``checkpoint`` and ``snapshots``; exits where the replicas are not one model."""
    require_torchft()
    given = job.parameters.distributed
    course = COURSES[job.order.kind](job)
    if len(course.shared) < given.replicas:
        refuse(f"there are {len(course.shared)} {course.what} for {given.replicas} replicas: each needs one at least")
    used = course.used()
    steps = steps_of(course.each * len(used), job.parameters.model_dump())
    coordinator = Coordinator(job, steps)
    coordinator.run()
    rounds = [one for some in coordinator.rounds.values() for one in some]
    lines = merged_rows(rounds, steps, course.merging)
    job.write_rows("rows", [course.row(line) for line in lines])
    rows = sorted((one.row for one in rounds), key=lambda row: (row.sync, row.replica))
    job.write_rows("replicas", rows)
    _keep_snapshots(job)
    ends = _ends(job, rows[-1].after)
    facts = _facts(rounds, lines, [end["facts"] for end in ends.values()]) | course.facts(used)
    facts |= {
        "trained_rows": course.each * len(used),
        "starts": coordinator.starts,
        "ended": sorted(ends),
        "sequences_due": course.sequences * len(used) * job.parameters.epochs,
        "left_out": len(course.shared) - len(used),
    }
    first = next(iter(ends.values()))
    effective = first["effective"] | {"distributed": _read_back(job, first["synchronised"])}
    done = _saved(job, course, ends, lines, effective, facts)
    shutil.rmtree(job.folder / FOLDERS, ignore_errors=True)
    return replace(done, threads=int(environment(given.replicas)["OMP_NUM_THREADS"]))


def merged_rows(rounds: list[Round], steps: int, how: Merging) -> list[dict[str, Any]]:
    """Return one row for each step, of the replicas whose steps are in the model; exits if a step is in no round."""
    by_step: dict[int, list[dict[str, Any]]] = {}
    for one in sorted(rounds, key=lambda one: one.row.replica):
        for line in one.steps if one.row.counts else ():
            by_step.setdefault(line["step"], []).append(line)
    if missing := sorted(set(range(1, steps + 1)) - by_step.keys()):
        raise SystemExit(f"no replica whose steps count has step {missing[0]}")
    return [merged_step(by_step[step], how) for step in sorted(by_step)]


def _ends(job: Job[Any], last: str) -> dict[int, dict[str, Any]]:
    """Return what the replicas that came to the end say; exits if their weights are not those last synchronised."""
    found: dict[int, dict[str, Any]] = {}
    for number in range(job.parameters.distributed.replicas):
        path = folder_of(job.folder, number) / "end.json"
        if path.is_file():
            found[number] = json.loads(path.read_text(encoding="utf-8"))
    if {end["weights"] for end in found.values()} != {last}:
        raise SystemExit("the replicas are not one model: they ended with other weights than they last synchronised")
    return found


def _facts(rounds: list[Round], lines: list[dict[str, Any]], ends: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the facts that a training in one process states, over all replicas whose steps count."""
    counted = [line for one in rounds if one.row.counts for line in one.steps]
    batches = [digest for line in lines for digest in line["batches"]]
    # Of each process the masks it saw last hold those before.
    last = {(one.row.replica, one.row.process): one.mask for one in sorted(rounds, key=lambda one: one.row.sync)}
    masks = list(last.values())
    summed = {name: sum(one[name] for one in masks) for name in ("rows", "violations")}
    references: dict[str, Any] = {}
    if "reference_difference" in ends[0]:
        references = {
            "reference_difference": max(one["reference_difference"] for one in ends),
            "reference_responses": sum(one["reference_responses"] for one in ends),
        }
    return references | {
        "batches": len(batches),
        "distinct_batches": len(set(batches)),
        "masked_tokens": sum(line["masked"] for line in counted),
        "sequences": sum(line["sequences"] for line in counted),
        "epochs_done": ends[0]["epochs_done"],
        "resumed_from": 0,
        "loss_difference": max(
            (one["loss_difference"] for one in ends if one["loss_difference"] is not None), default=None
        ),
        "batches_computed_again": sum(one["batches_computed_again"] for one in ends),
        "mask": masks[0]
        | summed
        | {"merged": max(one["merged"] for one in masks), "wrong": [w for m in masks for w in m["wrong"]]},
        "step_seconds": ends[0]["step_seconds"],
        "attention": ends[0]["attention"],
        "cut": sum(one["cut"] for one in ends),
        "dropped": sum(one["dropped"] for one in ends),
    }


def _read_back(job: Job[Any], told: dict[str, Any]) -> dict[str, Any]:
    """Return ``distributed`` as it was read back, in the form in which it was granted."""
    granted = job.order.parameters["distributed"]
    least = {"min_replicas": told["quorum"]} if "min_replicas" in granted else {}
    replicas = len(list((job.folder / FOLDERS).iterdir()))
    found = granted | {"replicas": replicas, "sync_every": told["sync_every"], "outer": told["outer"]} | least
    if told["quorum"] != job.parameters.distributed.quorum:
        raise SystemExit(
            f"{told['quorum']} replicas could synchronise, granted were {job.parameters.distributed.quorum}"
        )
    return found


def _keep_snapshots(job: Job[Any]) -> None:
    """Keep the saved synchronisations of all replicas as one output."""
    for number in range(job.parameters.distributed.replicas):
        own = folder_of(job.folder, number) / "out" / SNAPSHOTS
        for saved in sorted(own.glob("checkpoint-*")) if own.is_dir() else ():
            target = job.out / SNAPSHOTS / saved.name
            target.mkdir(parents=True, exist_ok=True)
            keep(saved, target)
            (target / saved.name).rename(target / f"replica-{number}")
    (job.out / SNAPSHOTS).mkdir(parents=True, exist_ok=True)


def _saved(
    job: Job[Any],
    course: Course[Any],
    ends: dict[int, dict[str, Any]],
    lines: list[dict[str, Any]],
    effective: dict[str, Any],
    facts: dict[str, Any],
) -> Done:
    """Put the common weights into a model like the replicas' and save it."""
    import torch
    from safetensors.torch import load_file

    torch.manual_seed(job.parameters.seed)
    number = next(iter(ends))
    folder = folder_of(job.folder, number)
    built = course.build(of_replica(job, folder), Share(number, job.parameters.distributed.replicas, most=1))
    weights, end = trained_parameters(built.trainer.model), load_file(folder / "end.safetensors")
    with torch.no_grad():
        for name, one in weights.items():
            one.copy_(end[name])
    if sha256_of(weights) != ends[number]["weights"]:
        raise SystemExit("the weights that the replicas ended with cannot be read again")
    built.trainer.state.log_history = lines
    course.end(built.trainer.model, built.prepared)
    return finished(job, built.trainer, built.prepared, effective, facts)
