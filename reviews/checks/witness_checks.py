"""Could the granted weights have written the answers that a witness recomputed?

A greedy answer is the argmax at every place, within the tolerance of its number type; so is a sampled one, once the
noise that the granted seed gives to each draw is added (``training/engines/sampling_noise.py``). Where an engine has
its own random numbers, a sampled answer is judged by the randomised probability integral transform: under the granted
distribution the values are independent and uniform (Rosenblatt 1952; randomised for discrete tokens: Smith 1985), so
that sums of their logarithms are gamma distributed. All of these together are compared with other ways to make them,
by likelihood ratios.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reviews.checks.definition import CheckOutcome, CheckRegistry, manifest_of
from reviews.evidence.evidence import Evidence, WitnessEvidence
from reviews.evidence.row_reader import read_rows
from reviews.statistics.sampling_evidence import average_ratios
from reviews.statistics.sampling_evidence import evidence as evidence_of
from specs.stages.base.metric import MetricSet
from specs.stages.base.witness import FALSE_ALARM, GREEDY_GAP, NUCLEUS, WitnessRow
from specs.stages.registry import kind_of
from specs.system.errors import EvidenceMissing

CHECKS = CheckRegistry(kinds=lambda kind: kind.witness_prompts)
_LEAST = 1e-12
"""The least transformed value, so that its logarithm is finite."""


@CHECKS.add(
    "witness.answers",
    "The granted weights could have written the answers",
    source="rows of another model, and answers repaired after the fact, believed by the gate",
    threshold="".join(
        f"{dtype}: greedy within {gap:g} of the largest logit, sampled within {NUCLEUS[dtype]:g} of the nucleus; "
        for dtype, gap in GREEDY_GAP.items()
    )
    + f"drawn at p >= {FALSE_ALARM:g}",
)
def _check_answers(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare what a witness read, with rows drawn after the job had ended, with what the stage was granted."""
    kind = kind_of(evidence.stage)
    if not kind.answers_count(evidence.parse_parameters(kind.parameters)):
        return CheckOutcome("NOT_APPLICABLE", "no conclusion rests on its answers, so no witness read them")
    witness = witness_of(evidence)
    rows = read_rows(witness.rows, WitnessRow, "witness rows", which=lambda line: not holds_scores(line))
    places = witness.challenge.rows
    if {row.row for row in rows} != set(places):
        raise EvidenceMissing("the witness did not read the rows of its challenge")
    message = f"{len(places)} of {witness.challenge.of} rows recomputed with the granted weights"
    wrong = list(wrong_rows(witness.challenge.ended, rows, coarser_type(evidence, GREEDY_GAP)))
    if wrong:
        count = len({value["row"] for value in wrong})
        visible = tuple(wrong)
        return CheckOutcome("FAIL", f"{message}: {count} do not match", float(count), visible, repairable=False)
    return CheckOutcome("PASS", f"{message}: {_at_worst(rows)}", 0.0)


def witness_of(evidence: Evidence) -> WitnessEvidence:
    """Return the witness of an attempt; raises EvidenceMissing where it left nothing that counts."""
    witness = evidence.witness
    if witness is None:
        raise EvidenceMissing("no witness was asked to read its rows, since it left none that count")
    # One that was killed after it had written all its files counts as little as any other that was cut off.
    if witness.why or witness.rows is None or witness.manifest is None:
        raise EvidenceMissing(f"the witness read nothing that counts: {witness.why or 'it left no rows'}")
    return witness


def holds_scores(line: Any) -> bool:
    """Return whether a line of a witness is of scores, and not of an answer."""
    return isinstance(line, dict) and "scores" in line


def coarser_type(evidence: Evidence, tolerances: Mapping[str, float]) -> str:
    """Return the type of the weights with the larger tolerance, where job and witness compute in different ones."""
    witness = evidence.witness
    assert witness is not None and witness.manifest is not None
    types = {witness.manifest.dtype, manifest_of(evidence).dtype}
    return next(
        (text for text in types if text not in tolerances), max(types, key=lambda text: tolerances.get(text, 0))
    )


def wrong_rows(seed: str, rows: Sequence[WitnessRow], dtype: str) -> Iterator[dict[str, Any]]:
    """Yield the answers that the granted weights did not write, each with why; ``seed`` is that of the challenge."""
    if dtype not in GREEDY_GAP:
        raise EvidenceMissing(f"no tolerance is known for weights of type '{dtype}'")
    sampled = [row for row in rows if row.drawn]
    # Half of it for the two tails of each answer, half for all of them together.
    alarm = FALSE_ALARM / 2
    for row in rows:
        if why := _why(row, dtype, _tails(seed, row), alarm / (2 * max(len(sampled), 1))):
            yield {"row": row.row, "why": why} | ({"part": row.part} if row.part else {})
    if sampled and average_ratios(results := evidence_of(sampled)) >= -math.log(alarm):
        what, most = max(results.items(), key=lambda pair: pair[1])
        message = f"all sampled answers together are 1e{most / math.log(10):+.0f} times as probable if they are {what}"
        yield {"row": sampled[0].row, "why": message}


def _why(row: WitnessRow, dtype: str, tails: tuple[float, float], alarm: float) -> str:
    if not row.prompt:
        return "it states another prompt than its item, the granted parameters and the chat template make"
    if not row.text:
        return "its text is not that of its token ids"
    if not row.ending:
        return "an answer of these token ids does not end here, or not so"
    if row.gap is None and row.drawn is None:
        return "the witness says nothing of its tokens"
    if row.gap is not None and row.gap > GREEDY_GAP[dtype]:
        noise = ", the noise of the granted seed included" if row.noise else ""
        return f"a token lies {row.gap:.3g} below the largest logit{noise}"
    if row.beyond is not None and row.beyond > NUCLEUS[dtype]:
        return f"a token lies {row.beyond:.3g} outside the nucleus"
    if min(tails) < alarm:
        return f"its tokens are {_too(tails)}"
    return ""


def _too(tails: tuple[float, float]) -> str:
    return f"too {'likely' if tails[0] < tails[1] else 'unlikely'} (p = {min(tails):.1e})"


def _tails(seed: str, row: WitnessRow) -> tuple[float, float]:
    """Return how probable tokens as likely, and as unlikely, as those of a sampled answer are; 1 without any."""
    values = compute_uniform_values(seed, row)
    if not values:
        return 1.0, 1.0
    from scipy.stats import gamma

    likely = -math.fsum(math.log(max(value, _LEAST)) for value in values)
    unlikely = -math.fsum(math.log(max(1 - value, _LEAST)) for value in values)
    return float(gamma.sf(likely, len(values))), float(gamma.sf(unlikely, len(values)))


def compute_uniform_values(seed: str, row: WitnessRow) -> list[float]:
    """Return for each sampled token a value that is uniform if it was drawn from the granted distribution."""
    values: list[float] = []
    for place, token in enumerate(row.drawn or ()):
        lot = hashlib.sha256(f"{seed} {row.row} {row.part} {place}".encode()).digest()
        values.append(min(token.before + int.from_bytes(lot[:8]) / 2**64 * token.own, 1.0))
    return values


def _at_worst(rows: Sequence[WitnessRow]) -> str:
    gaps = [row.gap for row in rows if row.gap is not None]
    if gaps:
        noise = ", the noise of the granted seed included" if any(row.noise for row in rows) else ""
        return f"every token has the largest logit, within {max(gaps):.1e}{noise}"
    return f"{sum(row.tokens for row in rows)} tokens look drawn from the granted distribution"
