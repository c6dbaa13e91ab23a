"""Which rows of a job a witness reads again, drawn from the entry of its end: no one knows them while it runs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from math import ceil, comb
from typing import Any, NamedTuple

from reviews.history.attempt import read_order
from reviews.history.recorded_history import RecordedHistory
from reviews.trail.chain.envelope import RecordedEntry
from specs.jobs.job_records import (
    LEFT,
    WITNESS,
    Artifact,
    Challenge,
    ExitRecord,
    JobOrder,
    Manifest,
    RowSelection,
    Segment,
)
from specs.stages.base.sampling import ENGINES, Writing
from specs.stages.base.witness import CONFIDENCE, FIRST_STEPS, MISSED_SHARE, REPLAYED_SHARE, ROWS_ON_GPU, SAMPLED_TOKENS
from specs.stages.registry import STAGE_KINDS
from specs.system.digests import digest_bytes
from specs.trail.session_bodies import ExitEntry, LaunchEntry

_IDS = re.compile(rb'"(?:answer|critique|revision)_ids": ?\[([^\]]*)\]')
"""Where rows of a job hold the token ids of answers."""


class RepeatedChallenge(NamedTuple):
    """A challenge that the trail does not draw: of a person who repeats a witness."""

    seed: str
    most: int | None = None
    """Rows of each file; None for as many as the gate draws."""

    def digest(self, ended: RecordedEntry) -> str:
        """Return what the rows of a job are drawn by."""
        return digest_bytes(f"{self.seed} {ended.digest}".encode())


def witness_order(history: RecordedHistory, key: str, again: RepeatedChallenge | None = None) -> JobOrder | None:
    """Return the order of the witness of a job, the same whenever it is asked for; ``again``: with other rows.

    None if a witness has nothing to read: the job is lost or failed, wrote no rows, or its kind cannot say what was
    asked or scored.
    """
    store, order = history.store, read_order(history.find(LaunchEntry, key), history.store)
    ended = history.find(ExitEntry, key)
    if order is None or ended is None:
        return None
    outputs = ended.body.outputs
    kind = STAGE_KINDS[order.kind]
    parameters = kind.parameters.model_validate(order.parameters)
    flag, scored = kind.answers_count(parameters), kind.scores_of(parameters)
    if not (flag or kind.replay_job or scored) or "rows" not in outputs or not ended.body.manifest:
        return None
    exit = ExitRecord.model_validate_json(store.get(ended.body.exit))
    if exit.code != 0 or exit.reason != "exited":
        return None
    manifest = Manifest.model_validate_json(store.get(ended.body.manifest))
    every = manifest.device.startswith("cuda")
    # A draw by known noise is checked like a greedy token: few rows show it.
    by_noise = isinstance(parameters, Writing) and ENGINES[parameters.engine].streams
    drawn_by = again.digest(ended) if again else ended.digest
    most = again.most if again else None

    def draw(output: str) -> RowSelection:
        data = store.get(outputs[output].digest) if output in outputs else b""
        count = sum(1 for line in data.split(b"\n") if line.strip())
        seed = drawn_by if output == "rows" else f"{drawn_by} {output}"
        tokens = tokens_in(data) if kind.samples and not by_noise and output == "rows" else None
        size = sample_size(count, tokens)
        if every:
            size = max(size, min(count, ROWS_ON_GPU))
        return RowSelection(of=count, rows=draw_places(seed, count, size if most is None else min(most, count)))

    first = draw("rows") if flag or "rows" in scored else RowSelection(of=0, rows=())
    others = {name: draw(name) for name in scored if name != "rows"}
    challenge = Challenge(ended=drawn_by, of=first.of, rows=first.rows, others=others or None)
    if kind.replay_job:
        challenge = challenge_of_training(drawn_by, draw("rows").of, order, manifest.effective)
    artifacts = {
        LEFT + name: Artifact(name=LEFT + name, path=output.path, digest=output.digest, bytes=output.bytes)
        for name, output in sorted(outputs.items())
        if output.stored or kind.replay_job or kind.outputs.get(name) == "checkpoint"
    }
    return order.model_copy(
        update={
            "key": key + WITNESS,
            "inputs": order.inputs | artifacts,
            "resumes": None,
            "challenge": challenge,
        }
    )


def challenge_of_training(seed: str, steps: int, order: JobOrder, effective: Mapping[str, Any]) -> Challenge:
    """Return the steps of a training that a witness repeats; ``effective`` is what its manifest states."""
    parameters: Any = STAGE_KINDS[order.kind].parameters.model_validate(order.parameters)
    # A resumed job has the snapshots from where it resumed.
    count = order.resumes.step if order.resumes else 0
    # Kinds of other distributions need not leave any.
    planned, saved = steps, None
    if getattr(parameters, "early_stopping", None) is not None:
        # Snapshots are those of the planned steps. What is stated here, the gate computes again.
        planned, saved = effective.get("planned_steps", steps), effective.get("saved_step")
    counts: tuple[int, ...] = parameters.snapshots_of(planned) if hasattr(parameters, "snapshots_of") else ()
    kept_counts = [step for step in counts if count <= step < steps]
    parts = segments(seed, steps, kept_counts, saved=saved)
    rows = tuple(step for segment in parts for step in range(segment.after, segment.until))
    return Challenge(ended=seed, of=steps, rows=rows, segments=parts, saved=saved)


def segments(
    seed: str, steps: int, snapshots: Sequence[int], share: float = REPLAYED_SHARE, *, saved: int | None = None
) -> tuple[Segment, ...]:
    """Draw the parts of a training of so many steps that are replayed, in order, about this share of all.

    The opening always, and the part with the step whose weights were ``saved``, by default the last; of the others
    between snapshots at least one.
    """
    opening = max(FIRST_STEPS, ceil(share / 2 * steps))
    chosen = [(0, min(opening, snapshots[0] if snapshots else steps))]
    parts = list(pairwise((*snapshots, steps)))
    last = [part for part in parts if part[0] < (saved or steps) <= part[1]]
    chosen += last
    between = [part for part in parts if part not in last]
    for place in draw_places(seed, len(between), len(between), ordered=False):
        after, until = between[place]
        if len(chosen) > 2 and sum(end - begin for begin, end in chosen) + until - after > share * steps:
            break
        chosen.append((after, until))
    return tuple(Segment(after=after, until=until) for after, until in _join_parts(sorted(chosen)))


def _join_parts(parts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return parts of which none begins where another one ends."""
    pairs: list[tuple[int, int]] = []
    for after, until in parts:
        if pairs and pairs[-1][1] == after:
            pairs[-1] = pairs[-1][0], until
        else:
            pairs.append((after, until))
    return pairs


def draw_places(seed: str, count: int, most: int, *, ordered: bool = True) -> tuple[int, ...]:
    """Draw ``most`` of ``count`` places by a digest, in order unless the lots' own order is wanted."""

    def lot(place: int) -> bytes:
        return hashlib.sha256(f"{seed} {place}".encode()).digest()

    counts = sorted(range(count), key=lot)[:most]
    return tuple(sorted(counts) if ordered else counts)


def tokens_in(rows: bytes) -> int:
    """Return how many tokens the answers hold that rows of a job state."""
    return sum(ids.count(b",") + 1 for ids in _IDS.findall(rows) if ids.strip())


def sample_size(count: int, tokens: int | None = None) -> int:
    """Return the fewest rows that hold one of the :data:`MISSED_SHARE` of ``count`` with :data:`CONFIDENCE`.

    ``1 - C(count - wrong, k) / C(count, k)``: drawing without replacement. Of samples whose noise is not known, with so
    many tokens in all rows, no fewer than hold :data:`SAMPLED_TOKENS` on average.
    """
    least = min(count, ceil(SAMPLED_TOKENS * count / tokens)) if tokens else 0
    wrong = max(1, int(MISSED_SHARE * count))
    allowed = 1 - Fraction(CONFIDENCE)
    low, high = min(count, 1), count
    while low < high:
        middle = (low + high) // 2
        missed = Fraction(comb(count - wrong, middle), comb(count, middle))
        low, high = (low, middle) if missed <= allowed else (middle + 1, high)
    return max(high, least)
