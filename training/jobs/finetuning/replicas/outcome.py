"""What the replicas come to: one checkpoint, one row per step, and a row per replica and synchronisation."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import Any

from training.jobs.finetuning.adapter_merge import finish_training
from training.jobs.finetuning.replicas.coordinator import Coordinator, environment, require_torchft
from training.jobs.finetuning.replicas.course import ReplicaCourse, ReplicaTrainer, select_counted_rounds
from training.jobs.finetuning.replicas.courses import COURSES
from training.jobs.finetuning.replicas.outer_weights import trained_parameters
from training.jobs.finetuning.replicas.replica_files import FOLDERS, RoundRecord, folder_of, of_replica, sha256_of
from training.jobs.job import Job, StageResult, refuse
from training.jobs.saved_steps import SNAPSHOTS, keep
from training.rules.finetuning.replica_rounds import Merging, Share, merged_step


def train(job: Job[Any]) -> StageResult:
    """Write ``rows``, ``replicas``, ``checkpoint`` and ``snapshots``; exits where the replicas are not one model."""
    require_torchft()
    arguments = job.parameters.distributed
    course = COURSES[job.order.kind](job)
    if len(course.shared) < arguments.replicas:
        refuse(
            f"there are {len(course.shared)} {course.what} for {arguments.replicas} replicas: each needs one at least"
        )
    steps = course.steps()
    coordinator = Coordinator(job, steps)
    coordinator.run()
    rounds = [value for round_records in coordinator.rounds.values() for value in round_records]
    lines = merged_rows(rounds, steps, course.merging)
    job.write_rows("rows", [course.row(line) for line in lines])
    rows = sorted((value.row for value in rounds), key=lambda row: (row.sync, row.replica))
    job.write_rows("replicas", rows)
    _keep_snapshots(job)
    ends = _ends(job, rows[-1].after)
    first = next(iter(ends.values()))
    facts = course.facts(rounds, lines, [end["facts"] for end in ends.values()])
    facts |= {name: first["facts"][name] for name in ("epochs_done", "step_seconds", "attention")}
    facts |= {
        "resumed_from": 0,
        "starts": coordinator.starts,
        "ended": sorted(ends),
        "sequences_due": course.sequences_due(),
        "left_out": len(course.shared) - len(course.used()),
    }
    effective = first["effective"] | {"distributed": _read_back(job, first["synchronised"])}
    number, end = next(iter(ends.items()))
    made = _model_of(job, course, number, end["weights"])
    course.end(rounds, made.trainer.model)
    made.trainer.state.log_history = lines
    done = finish_training(job, made.trainer, made.prepared, effective, facts)
    shutil.rmtree(job.folder / FOLDERS, ignore_errors=True)
    return replace(done, threads=int(environment(arguments.replicas)["OMP_NUM_THREADS"]))


def merged_rows(rounds: list[RoundRecord], steps: int, how: Merging) -> list[dict[str, Any]]:
    """Return one row for each step, of the replicas whose steps are in the model; exits if a step is in no round."""
    by_step: dict[int, list[dict[str, Any]]] = {}
    for value in select_counted_rounds(rounds):
        for line in value.steps:
            by_step.setdefault(line["step"], []).append(line)
    if missing := sorted(set(range(1, steps + 1)) - by_step.keys()):
        raise SystemExit(f"no replica whose steps count has step {missing[0]}")
    return [merged_step(by_step[step], how) for step in sorted(by_step)]


def _ends(job: Job[Any], last: str) -> dict[int, dict[str, Any]]:
    """Return what the replicas that came to the end say; exits if their weights are not those last synchronised."""
    results: dict[int, dict[str, Any]] = {}
    for number in range(job.parameters.distributed.replicas):
        path = folder_of(job.folder, number) / "end.json"
        if path.is_file():
            results[number] = json.loads(path.read_text(encoding="utf-8"))
    if {end["weights"] for end in results.values()} != {last}:
        raise SystemExit("the replicas have diverged: their final weights differ from their last synchronisation")
    return results


def _read_back(job: Job[Any], messages: dict[str, Any]) -> dict[str, Any]:
    """Return ``distributed`` as it was read back, in the form in which it was granted."""
    granted = job.order.parameters["distributed"]
    least = {"min_replicas": messages["quorum"]} if "min_replicas" in granted else {}
    replicas = len(list((job.folder / FOLDERS).iterdir()))
    result = granted | {"replicas": replicas, "sync_every": messages["sync_every"], "outer": messages["outer"]} | least
    if messages["quorum"] != job.parameters.distributed.quorum:
        raise SystemExit(
            f"{messages['quorum']} replicas could synchronise, expected {job.parameters.distributed.quorum}"
        )
    return result


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


def _model_of(job: Job[Any], course: ReplicaCourse, number: int, digest: str) -> ReplicaTrainer:
    """Return a trainer like a replica's, with the common weights in its model; exits if they cannot be read."""
    import torch
    from safetensors.torch import load_file

    torch.manual_seed(job.parameters.seed)
    folder = folder_of(job.folder, number)
    made = course.build(of_replica(job, folder), Share(number, job.parameters.distributed.replicas, most=1))
    weights, end = trained_parameters(made.trainer.model), load_file(folder / "end.safetensors")
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(end[name])
    if sha256_of(weights) != digest:
        raise SystemExit("the final weights of the replicas cannot be read")
    return made
