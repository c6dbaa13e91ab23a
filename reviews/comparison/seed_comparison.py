"""Several sessions of one design that differ in their seed: does the gain come from the training, or from one seed?

Nothing in the trails of sessions that a person names shows whether other seeds were run and left out. Seeds that are
registered in the first one's trail before they run are all counted (:func:`combine_seeds`).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from reviews.comparison.arms import gain_by_sample, pairs_of
from reviews.evidence.gather import gather
from reviews.evidence.subgroups import ArmPair, count_pairs
from reviews.history.recorded_history import RecordedHistory
from reviews.statistics.seed_variance import OverSeeds, over_seeds
from specs.session.design import ResolvedDesign
from specs.system.digests import digest_value
from specs.system.errors import EvidenceMissing, UserError
from specs.system.exact import holds
from specs.trail.gate_bodies import MetricsEntry
from specs.trail.session_bodies import CloseEntry, OpenEntry


class SeedComparison(NamedTuple):
    """A session's registered comparison, item by item."""

    session: str
    seed: int
    design: str
    """Digest of everything registered but the session's name and its seed."""
    pairs: tuple[ArmPair, ...]
    gain: float
    p: float
    """Of the registered test."""
    reaches: bool
    """Whether it reaches the alpha and the minimum effect that it registered."""
    minimum_effect: float
    by_sample: tuple[float, ...] = ()
    """The gain by each sample number alone, where items are answered several times: seeds of decoding."""


def compare_seed(run: Path, history: RecordedHistory) -> SeedComparison:
    """Return the registered comparison of a session from its raw rows, whatever its gate decided.

    Raises:
        EvidenceMissing: the session did not come to its comparison, or its rows cannot be read.
    """
    analysis, session = history.resolved.spec.analysis, history.session
    measured = [entry.body for entry in history.of(MetricsEntry)]
    numbers = [body.attempt for body in measured if body.stage == analysis.treatment and body.metrics]
    if not numbers or history.attempt(analysis.treatment, numbers[-1]).exit is None:
        raise EvidenceMissing(
            f"session '{session}' (seed {analysis.seeds[0]}) did not reach its comparison at '{analysis.treatment}'",
            where=str(run),
            hint="finish it first: leaving out seeds because of how they ended would bias the comparison",
        )
    evidence = gather(run, history, analysis.treatment, numbers[-1])
    pairs = pairs_of(evidence)
    part = count_pairs(pairs)
    reaches = holds(part.p, "<", analysis.alpha) and holds(part.gain, ">=", analysis.minimum_effect)
    return SeedComparison(
        session,
        analysis.seeds[0],
        design_of(history.resolved),
        pairs,
        float(part.gain),
        part.p,
        reaches,
        analysis.minimum_effect,
        gain_by_sample(evidence),
    )


def design_of(resolved: ResolvedDesign) -> str:
    """Return the digest of everything a spec registers but its name and its seed."""
    body = resolved.model_copy(update={"origin": ""}).model_dump(mode="json")
    spec = body["spec"]
    spec["name"], spec["analysis"]["seeds"] = "", []
    for stage in spec["stages"]:
        stage["parameters"].pop("seed", None)
    return digest_value(body)


def together(sessions: Sequence[SeedComparison]) -> OverSeeds:
    """Compare the same items over several seeds (:func:`reviews.statistics.seed_variance.over_seeds`).

    Raises:
        UserError: there are fewer than two sessions, one seed is named twice, or their designs differ.
    """
    if len(sessions) < 2:
        raise UserError(f"{len(sessions)} session is not enough to compare seeds", hint="name two sessions or more")
    first = sessions[0]
    for session in sessions[1:]:
        if session.design != first.design:
            raise UserError(
                f"'{session.session}' registered another design than '{first.session}'",
                hint="only name and seed may differ; `peergate audit diff` shows what else does",
            )
    by_seed: dict[int, str] = {}
    for session in sessions:
        if session.seed in by_seed:
            raise UserError(
                f"'{by_seed[session.seed]}' and '{session.session}' both have seed {session.seed}",
                hint="name each seed once",
            )
        by_seed[session.seed] = session.session
    return over_seeds(
        [[float(pair.before) for pair in session.pairs] for session in sessions],
        [[float(pair.after) for pair in session.pairs] for session in sessions],
    )


class SeedOutcome(NamedTuple):
    """What came of one registered seed."""

    seed: int
    session: str
    comparison: SeedComparison | None
    """None if it failed."""
    why: str
    """Why it failed; empty where it did not."""


class ReplicationResult(NamedTuple):
    """A design over the seeds that were registered after its first session had ended."""

    seeds: tuple[SeedOutcome, ...]
    over: OverSeeds
    """The further seeds alone: the first was seen before they were registered. A failed seed counts as no gain."""
    with_first: float
    """The mean gain, the first seed included."""
    spread: float
    """Standard deviation of the seeds' gains, failed ones included."""
    is_replicated: bool

    @property
    def failures(self) -> int:
        """How many seeds did not come to an accepted or null comparison."""
        return sum(seed.comparison is None for seed in self.seeds)

    @property
    def decoding_spread(self) -> float | None:
        """Standard deviation of the gain between single samples of one training, the mean over seeds; None of one."""
        samples = [seed.comparison.by_sample for seed in self.seeds if seed.comparison and seed.comparison.by_sample]
        return statistics.fmean(map(statistics.stdev, samples)) if samples else None

    def describe(self) -> str:
        """Return it in one sentence."""
        decoding = self.decoding_spread
        between_samples = f" and {decoding:.3f} between samples of one training" if decoding is not None else ""
        gains = [seed.comparison.gain for seed in self.seeds if seed.comparison is not None]
        low, high = self.over.interval
        between = f", from {min(gains):+.3f} to {max(gains):+.3f}" if gains else ""
        return (
            f"{'replicated' if self.is_replicated else 'not replicated'} over {len(self.seeds)} further seeds "
            f"({', '.join(str(seed.seed) for seed in self.seeds)}): gain {self.over.difference:+.3f} [{low:+.3f}, "
            f"{high:+.3f}]{between}, standard deviation {self.spread:.3f} between seeds{between_samples}, "
            f"{self.failures} failed; "
            f"with the first seed {self.with_first:+.3f}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return every figure, with the sentence."""
        return {
            "summary": self.describe(),
            "replicated": self.is_replicated,
            "gain": self.over.difference,
            "interval": list(self.over.interval),
            "seed_interval": list(self.over.seed_interval) if self.over.seed_interval else None,
            "spread": self.spread,
            **({"decoding_spread": self.decoding_spread} if self.decoding_spread is not None else {}),
            "with_first": self.with_first,
            "failed": self.failures,
            "seeds": [
                {
                    "seed": seed.seed,
                    "session": seed.session,
                    "gain": seed.comparison.gain if seed.comparison else None,
                    "p": seed.comparison.p if seed.comparison else None,
                    "why": seed.why,
                }
                for seed in self.seeds
            ],
        }


def one_seed(run: Path, history: RecordedHistory, first: SeedComparison, seed: int, plan: str) -> SeedOutcome:
    """Return what came of a registered seed: all but an accepted or null result of this plan's design has failed."""
    closed, opened = history.find(CloseEntry), history.find(OpenEntry)
    session = history.session if history else run.name

    def make_failure(why: str) -> SeedOutcome:
        return SeedOutcome(seed, session, None, why)

    if opened is None or opened.body.replicates is None or opened.body.replicates.plan != plan:
        return make_failure("was not begun by this plan")
    if closed is None or newest_is_retraction(history):
        return make_failure("has not ended" if closed is None else "its result was retracted")
    if closed.body.decision not in ("approve", "null"):
        return make_failure(f"ended as {closed.body.decision}")
    try:
        result = compare_seed(run, history)
    except EvidenceMissing as error:
        return make_failure(error.message)
    if result.design != first.design or result.seed != seed:
        return make_failure("registered another design or seed")
    return SeedOutcome(seed, session, result, "")


def newest_is_retraction(history: RecordedHistory) -> bool:
    """Return whether the last judgement of a session was taken back."""
    judged = history.newest_judgement
    return judged is not None and judged.kind == "retraction"


def combine_seeds(first: SeedComparison, seeds: Sequence[SeedOutcome]) -> ReplicationResult:
    """Combine the registered further seeds.

    The rule: a seed that failed gained nothing on any item, as in an analysis by intention to treat. The effect is
    replicated if the mean gain of the further seeds reaches the registered minimum effect and the 95 % interval over
    seeds and items (:func:`over_seeds`) lies above 0. The first session is not counted: its result was known.
    """
    before = [_arm(first, seed, after=False) for seed in seeds]
    after = [_arm(first, seed, after=True) for seed in seeds]
    over = over_seeds(before, after)
    mean = (first.gain + sum(over.per_seed)) / (1 + len(over.per_seed))
    spread = statistics.stdev(over.per_seed) if len(over.per_seed) > 1 else 0.0
    gained = sum(
        Fraction(pair.after) - Fraction(pair.before)
        for seed in seeds
        if seed.comparison
        for pair in seed.comparison.pairs
    )
    # As a fraction: a mean of floats may miss a threshold that it equals.
    flag = (
        holds(Fraction(gained) / (len(seeds) * len(first.pairs)), ">=", first.minimum_effect) and over.interval[0] > 0
    )
    return ReplicationResult(tuple(seeds), over, mean, spread, flag)


def _arm(first: SeedComparison, seed: SeedOutcome, *, after: bool) -> list[float]:
    if seed.comparison is None:
        return [float(pair.before) for pair in first.pairs]
    return [float(pair.after if after else pair.before) for pair in seed.comparison.pairs]
