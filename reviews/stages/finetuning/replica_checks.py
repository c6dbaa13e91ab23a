"""Were the replicas of a training one model: equal after every synchronisation, different before, and all there?

The digests are the replicas' own; that weights with these digests follow from the granted data, ``witness.training``
shows for the rounds that are trained again, outer steps included.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import wraps
from typing import Any

from reviews.checks.definition import CheckLimit, CheckOutcome, CheckRegistry, Run, join_names, manifest_of, unless
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import read_rows
from reviews.stages.finetuning.measure import steps_of
from specs.stages.base.metric import MetricSet
from specs.stages.finetuning.distributed import DistributedTraining, ReplicaRound
from specs.stages.registry import Stage
from specs.system.errors import EvidenceMissing
from specs.system.exact import holds

CHECKS = CheckRegistry(kinds=lambda kind: "replicas" in kind.rows)

_FLOAT32 = 4
_TOKENS = "train_tokens"
"""The end of the name of a metric."""


def distributed_of(evidence: Evidence) -> DistributedTraining | None:
    """Return how replicas were granted; None for one process. Raises EvidenceMissing where no order is on record."""
    if not evidence.parameters:
        raise EvidenceMissing("the order of the attempt is not on record")
    arguments = evidence.parameters.get("distributed")
    return None if arguments is None else DistributedTraining.model_validate(arguments)


def _rounds(evidence: Evidence) -> dict[int, list[ReplicaRound]]:
    """Return the rows of each synchronisation, in order; errors as :func:`read_rows`."""
    replica_rounds: dict[int, list[ReplicaRound]] = defaultdict(list)
    for row in read_rows(evidence.outputs.get("replicas"), ReplicaRound, "rows of replicas"):
        replica_rounds[row.sync].append(row)
    return dict(sorted(replica_rounds.items()))


def _of_replicas(check: Callable[[Evidence, DistributedTraining], CheckOutcome]) -> Run:
    """Return a check that does not apply where the training was granted to one process."""

    @wraps(check)
    def run_if_replicated(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
        arguments = distributed_of(evidence)
        return (
            CheckOutcome("NOT_APPLICABLE", "trained in one process")
            if arguments is None
            else check(evidence, arguments)
        )

    return run_if_replicated


@CHECKS.add(
    "replicas.equal",
    "After every synchronisation the replicas hold the same weights",
    source="an all-reduce that does nothing; replicas that begin with other weights and never agree",
)
@_of_replicas
def _check_equal(evidence: Evidence, _: DistributedTraining) -> CheckOutcome:
    """Compare the digests of all weights: at the start, after each synchronisation, and where the next round begins."""
    rounds = _rounds(evidence)
    wrong = list(_differing(rounds))
    message = f"{len(rounds)} synchronisations"
    return unless(
        wrong,
        f"{message}: {wrong[0]['why'] if wrong else ''}",
        f"{message}, the same digest after each",
        repairable=False,
    )


def _differing(rounds: Mapping[int, Sequence[ReplicaRound]]) -> Iterator[dict[str, Any]]:
    for sync, rows in rounds.items():
        if len({row.after for row in rows}) > 1:
            yield {"sync": sync, "why": f"after synchronisation {sync} the replicas have different weights"}
        sha256s = {row.after for row in rounds.get(sync - 1, ())}
        starts = {row.start for row in rows if row.counts}
        if sync == 1 and len(starts) > 1:
            yield {"sync": sync, "why": "the replicas began with different weights"}
        if sync > 1 and not starts <= sha256s:
            yield {"sync": sync, "why": f"round {sync} began with other weights than synchronisation {sync - 1} left"}


@CHECKS.add(
    "replicas.apart",
    "Before a synchronisation they differ: each trained alone",
    source="one replica copied, or all of them on the same shard",
)
@_of_replicas
def _check_apart(evidence: Evidence, _: DistributedTraining) -> CheckOutcome:
    """Compare the digests of the replicas before each synchronisation, and look for replicas that did not move."""
    if evidence.parameters.get("learning_rate") == 0:
        return CheckOutcome("NOT_APPLICABLE", "with a learning rate of 0 no replica moves")
    rounds = _rounds(evidence)
    wrong: list[dict[str, Any]] = []
    for sync, rows in rounds.items():
        own = [row for row in rows if row.counts]
        if len({row.before for row in own}) < len(own):
            wrong.append({"sync": sync, "why": "two replicas had the same weights before it"})
        wrong += [{"sync": sync, "replica": row.replica, "why": "it did not move"} for row in own if not row.drift]
    drifts = [row.drift for rows in rounds.values() for row in rows]
    message = f"before a synchronisation the replicas had moved by {min(drifts):.3g} to {max(drifts):.3g}"
    return unless(wrong, f"{message}; {len(wrong)} times not independently", f"{message}, each independently")


@CHECKS.add(
    "replicas.quorum",
    "Every synchronisation took place, with enough replicas",
    source="a group that is cut off and trains a separate model; a restart that begins at step 0 and reports success",
)
@_of_replicas
def _check_quorum(evidence: Evidence, arguments: DistributedTraining) -> CheckOutcome:
    """Compare synchronisations, steps and replicas with the granted parameters."""
    rounds, steps = _rounds(evidence), len(steps_of(evidence))
    wrong: list[dict[str, Any]] = []
    if list(rounds) != list(range(1, arguments.rounds_of(steps) + 1)):
        wrong.append(
            {"why": f"{arguments.rounds_of(steps)} synchronisations are due, there are {join_names(map(str, rounds))}"}
        )
    for sync, rows in rounds.items():
        pair = arguments.last_step(sync - 1, steps) + 1, arguments.last_step(sync, steps)
        if len(rows) < arguments.quorum:
            wrong.append({"sync": sync, "why": f"{len(rows)} replicas, {arguments.quorum} must take part"})
        if (
            max(row.participants for row in rows) > arguments.replicas
            or max(row.replica for row in rows) >= arguments.replicas
        ):
            wrong.append({"sync": sync, "why": f"more than the granted {arguments.replicas} replicas"})
        wrong += [
            {
                "sync": sync,
                "replica": row.replica,
                "why": f"its steps are {row.first_step} to {row.last_step}, not {pair}",
            }
            for row in rows
            if row.counts and (row.first_step, row.last_step) != pair
        ]
    fewest = min(len(rows) for rows in rounds.values())
    message = f"{len(rounds)} synchronisations, each of at least {fewest} replicas{_history(evidence)}"
    if wrong:
        return CheckOutcome("FAIL", f"{message}: {wrong[0]['why']}", float(len(wrong)), tuple(wrong), repairable=False)
    if fewest < arguments.replicas:
        return CheckOutcome("WARN", f"{message}: {arguments.replicas} were granted", float(fewest))
    return CheckOutcome("PASS", message, float(fewest))


def _history(evidence: Evidence) -> str:
    """Return which replicas were started again, as the job says."""
    starts = manifest_of(evidence).facts.get("starts")
    again = (
        [start for start in starts if isinstance(start, dict) and start.get("why")] if isinstance(starts, list) else []
    )
    return "".join(
        f"; replica {value['replica']} {value['why']}, again from step {value['step']}" for value in again[:5]
    )


@CHECKS.add(
    "replicas.samples",
    "Every counted sample is in the model",
    source="samples counted as trained on, of a replica that died or took over another's weights",
    limits=(CheckLimit("<=", "thresholds.lost_sequences"),),
)
@_of_replicas
def _check_samples(evidence: Evidence, arguments: DistributedTraining) -> CheckOutcome:
    """Add up tokens and sequences of the rounds that count, and compare them with the steps and with the data."""
    rounds, steps = _rounds(evidence), steps_of(evidence)
    tokens_by_replica, sequences = dict.fromkeys(range(arguments.replicas), 0), 0
    for sync, rows in rounds.items():
        own = [row for row in rows if row.counts]
        sequences += sum(row.sequences for row in own)
        for row in own:
            tokens_by_replica[row.replica] = tokens_by_replica.get(row.replica, 0) + row.tokens
        logged = sum(
            step.tokens for step in steps[arguments.last_step(sync - 1, len(steps)) : sync * arguments.sync_every]
        )
        if logged != (tokens := sum(row.tokens for row in own)):
            why = f"round {sync}: its replicas trained on {tokens} tokens, its steps on {logged}"
            return CheckOutcome("FAIL", why, float(sync), repairable=False)
    sequences_due = manifest_of(evidence).facts.get("sequences_due")
    if not isinstance(sequences_due, int) or sequences_due < 1:
        raise EvidenceMissing("the manifest does not say how many sequences were expected")
    lost = Fraction(sequences_due - sequences, sequences_due)
    detail = f"tokens in the model by replica: {', '.join(str(value) for value in tokens_by_replica.values())}"
    if lost < 0 or not holds(lost, "<=", evidence.resolved.spec.thresholds.lost_sequences):
        return CheckOutcome("FAIL", f"{detail}; {sequences} of {sequences_due} sequences count", float(lost))
    if lost:
        return CheckOutcome(
            "WARN", f"{detail}; {sequences_due - sequences} of {sequences_due} sequences are lost", float(lost)
        )
    return CheckOutcome("PASS", f"{detail}; no sequence is lost", 0.0)


@CHECKS.add(
    "replicas.bytes",
    "Only what is trained was sent",
    source="adapters trained, and the whole base sent at every synchronisation",
)
@_of_replicas
def _check_bytes(evidence: Evidence, _: DistributedTraining) -> CheckOutcome:
    """Compare the bytes of each synchronisation with the trained parameters, and all of them with data-parallel's."""
    trained = manifest_of(evidence).effective.get("trained_parameters")
    if not isinstance(trained, int):
        raise EvidenceMissing("the manifest does not say how many parameters were trained")
    rows = [row for round_rows in _rounds(evidence).values() for row in round_rows]
    wrong = [row.model_dump(include={"sync", "replica", "bytes"}) for row in rows if row.bytes != _FLOAT32 * trained]
    rounds, steps = len({row.sync for row in rows}), len(steps_of(evidence))
    message = f"{rounds} times {rows[0].bytes} bytes a replica"
    message += f", {rounds / steps:.3g} of what averaging gradients at every step sends"
    return unless(wrong, f"{message}; {trained} parameters of float32 are {_FLOAT32 * trained}", message)


@CHECKS.add(
    "replicas.single",
    "The training it is compared with used as many tokens",
    source="replicas praised, or blamed, compared with a training in one process that saw more or less",
    blocking=False,
    limits=(CheckLimit("<=", "thresholds.lost_sequences"),),
)
@_of_replicas
def _check_single(evidence: Evidence, _: DistributedTraining) -> CheckOutcome:
    """Compare the tokens with those of the stage in one process, of the same model and data, that the spec has."""
    stages = [stage for stage in evidence.resolved.spec.stages if _is_single(stage, evidence)]
    single = next((stage for stage in stages if stage.name in evidence.earlier), None)
    if single is None:
        return CheckOutcome("NOT_APPLICABLE", "no training of the same model and data in one process came before it")
    theirs = next(
        metric.value for name, metric in evidence.earlier[single.name].metrics.items() if name.endswith(_TOKENS)
    )
    ours = sum(step.tokens for step in steps_of(evidence))
    apart = Fraction(abs(ours - round(theirs)), round(theirs))
    message = f"{ours} tokens by replicas, {theirs:.0f} in one process ('{single.name}')"
    fits = holds(apart, "<=", evidence.resolved.spec.thresholds.lost_sequences)
    return CheckOutcome("PASS" if fits else "WARN", message, float(apart))


def _is_single(other: Stage, evidence: Evidence) -> bool:
    """Return whether another stage trains the same model on the same data in one process."""
    alike = other.kind == evidence.stage.kind and other.inputs == evidence.stage.inputs
    return alike and getattr(other.parameters, "distributed", None) is None
