"""Which rows of a job a witness reads again, drawn from the entry of its end: nobody knows them while it runs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fractions import Fraction
from math import comb

from reviews.evidence.gather import find
from reviews.trail.envelope import Recorded
from reviews.trail.store import Store
from specs.job_records import LEFT, WITNESS, Artifact, Challenge, Drawn, ExitRecord, JobOrder, Manifest
from specs.stages.registry import STAGE_KINDS
from specs.stages.witness import CONFIDENCE, MISSED_SHARE


def witness_order(entries: Sequence[Recorded], store: Store, key: str) -> JobOrder | None:
    """Return the order of the witness of a job, the same whenever it is asked for.

    None where there is nothing to read: the job is lost or failed, left no rows, or its kind cannot say what was asked
    or scored.
    """
    launch, ended = find(entries, f"launch/{key}"), find(entries, f"exit/{key}")
    if launch is None or ended is None:
        return None
    order = JobOrder.model_validate_json(store.get(launch.body["order"]))
    rows = ended.body["outputs"].get("rows")
    kind = STAGE_KINDS[order.kind]
    scored = kind.scores_of(kind.parameters.model_validate(order.parameters))
    if not (kind.asked or scored) or rows is None or not ended.body["manifest"]:
        return None
    exit = ExitRecord.model_validate_json(store.get(ended.body["exit"]))
    if exit.code != 0 or exit.reason != "exited":
        return None
    manifest = Manifest.model_validate_json(store.get(ended.body["manifest"]))
    every = manifest.device.startswith("cuda")

    def draw(output: str) -> Drawn:
        held = store.get(ended.body["outputs"][output]["digest"]) if output in ended.body["outputs"] else b""
        count = sum(1 for line in held.split(b"\n") if line.strip())
        seed = ended.digest if output == "rows" else f"{ended.digest} {output}"
        return Drawn(of=count, rows=drawn(seed, count, count if every else sample_size(count)))

    first = draw("rows") if kind.asked or "rows" in scored else Drawn(of=0, rows=())
    others = {name: draw(name) for name in scored if name != "rows"}
    left = {
        LEFT + name: Artifact(name=LEFT + name, path=one["path"], digest=one["digest"], bytes=one["bytes"])
        for name, one in sorted(ended.body["outputs"].items())
        if one["stored"]
    }
    return order.model_copy(
        update={
            "key": key + WITNESS,
            "inputs": order.inputs | left,
            "resumes": None,
            "challenge": Challenge(ended=ended.digest, of=first.of, rows=first.rows, others=others or None),
        }
    )


def drawn(seed: str, count: int, most: int) -> tuple[int, ...]:
    """Draw ``most`` of ``count`` places by a digest, in order."""

    def lot(place: int) -> bytes:
        return hashlib.sha256(f"{seed} {place}".encode()).digest()

    return tuple(sorted(sorted(range(count), key=lot)[:most]))


def sample_size(count: int) -> int:
    """Return the fewest rows that hold one of the :data:`MISSED_SHARE` of ``count`` with :data:`CONFIDENCE`.

    ``1 - C(count - wrong, k) / C(count, k)``: drawing without replacement.
    """
    wrong = max(1, int(MISSED_SHARE * count))
    allowed = 1 - Fraction(CONFIDENCE)
    low, high = min(count, 1), count
    while low < high:
        middle = (low + high) // 2
        missed = Fraction(comb(count - wrong, middle), comb(count, middle))
        low, high = (low, middle) if missed <= allowed else (middle + 1, high)
    return high
