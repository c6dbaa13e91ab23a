"""Several sessions of one design that differ in their seed: does the gain come from the training, or from one seed?

Nothing in their trails shows whether sessions of other seeds were run and left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from reviews.comparison.arms import pairs_of
from reviews.comparison.subgroups import Pair, counted
from reviews.evidence.gather import find, gather, registered_spec
from reviews.statistics.seed_variance import OverSeeds, over_seeds
from reviews.trail.envelope import Recorded
from reviews.trail.store import Store
from specs.digests import digest_value
from specs.errors import EvidenceMissing, UserError
from specs.exact import holds
from specs.session.session_spec import ResolvedSpec


class Seeded(NamedTuple):
    """A session's registered comparison, item by item."""

    session: str
    seed: int
    design: str
    """Digest of everything registered but the session's name and its seed."""
    pairs: tuple[Pair, ...]
    gain: float
    p: float
    """Exact McNemar."""
    reaches: bool
    """Whether it reaches the alpha and the minimum effect that it registered."""


def seeded(run: Path, entries: Sequence[Recorded], store: Store) -> Seeded:
    """Return the registered comparison of a session from its raw rows, whatever its gate decided.

    Raises:
        EvidenceMissing: the session did not come to its comparison, or its rows cannot be read.
    """
    resolved, _ = registered_spec(entries, store)
    analysis = resolved.spec.analysis
    attempts = [
        one.body["attempt"]
        for one in entries
        if one.entry.kind == "metrics" and one.body["stage"] == analysis.treatment and one.body["metrics"]
    ]
    session = entries[0].entry.session
    if not attempts or find(entries, f"exit/{session}.{analysis.treatment}.{attempts[-1]}") is None:
        raise EvidenceMissing(
            f"session '{session}' (seed {analysis.seeds[0]}) did not come to its comparison at '{analysis.treatment}'",
            where=str(run),
            hint="finish it first: seeds that are left out for how they ended are a selection",
        )
    pairs = pairs_of(gather(run, list(entries), store, analysis.treatment, attempts[-1]))
    found = counted(pairs)
    reaches = holds(found.p, "<", analysis.alpha) and holds(found.gain, ">=", analysis.minimum_effect)
    return Seeded(session, analysis.seeds[0], design_of(resolved), pairs, float(found.gain), found.p, reaches)


def design_of(resolved: ResolvedSpec) -> str:
    """Return the digest of everything a spec registers but its name and its seed."""
    body = resolved.model_copy(update={"origin": ""}).model_dump(mode="json")
    spec = body["spec"]
    spec["name"], spec["analysis"]["seeds"] = "", []
    for stage in spec["stages"]:
        stage["parameters"].pop("seed", None)
    return digest_value(body)


def together(sessions: Sequence[Seeded]) -> OverSeeds:
    """Compare the same items over several seeds (:func:`reviews.statistics.seed_variance.over_seeds`).

    Raises:
        UserError: there are fewer than two sessions, one seed is named twice, or their designs differ.
    """
    if len(sessions) < 2:
        raise UserError(f"{len(sessions)} session is no comparison of seeds", hint="name two sessions or more")
    first = sessions[0]
    for one in sessions[1:]:
        if one.design != first.design:
            raise UserError(
                f"'{one.session}' registered another design than '{first.session}'",
                hint="only name and seed may differ; `peergate audit diff` shows what else does",
            )
    by_seed: dict[int, str] = {}
    for one in sessions:
        if one.seed in by_seed:
            raise UserError(
                f"'{by_seed[one.seed]}' and '{one.session}' both have seed {one.seed}", hint="name each seed once"
            )
        by_seed[one.seed] = one.session
    return over_seeds(
        [[float(pair.before) for pair in one.pairs] for one in sessions],
        [[float(pair.after) for pair in one.pairs] for one in sessions],
    )
