"""What share of a session's GPU time do its witnesses take, by plan? `python -m bench.witness_plan`.

For each profile of the shipped pipelines on one GPU: the planned seconds of each stage that loads a model and of its
witness, and the share that all witnesses take, against the limit of a tenth. Nothing runs. A forward pass takes two
operations a weight and token, training three passes (four with gradient checkpointing), a written token what it takes
to start the work of each layer, a reading of all weights or the passes of its batch, whichever is most. Each process,
of a stage and of its witness, imports torch and transformers, digests its weights (those of a stage are digested by the
launcher too) and loads them. Numbers of texts and tokens are the most that a stage can get (``training/planning``).
Rates are those that ``bench.gpu_rates`` and ``bench.planned_gpu`` measured on an H200 beside 16 x86 cores. Also
printed: the share without what it takes to begin, and with one process for all witnesses, which Peergate does not have.
Exit code 1 if a profile is above the limit.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

from reviews.gate.challenge import segments
from specs.session.loading import load_spec
from specs.session.session_spec import SessionSpec
from specs.stages.finetuning.parameters import REFERENCE_FREE, DpoParameters, SftParameters
from specs.stages.registry import Stage, kind_of
from specs.stages.witness import ROWS_ON_GPU
from training.planning.prompt_lengths import Volume, volume
from training.planning.stage_plans import shape_of_source

LIBRARY = Path(__file__).parent.parent / "specs" / "library"
PROFILES = (("cai_stage1", "gpu"), ("cai_stage1", "gpu80"), ("cai_preferences", "gpu"), ("cai_preferences", "gpu80"))
LIMIT = 0.1
OPERATIONS = 4e14
"""A second, of 16-bit products: measured were 4.6e14 forward with a billion weights, 5.6e14 with eight, and 3.8e14 in
training, beside nine other jobs."""
READING = 2.7e14
"""The same of a witness that reads answers, which has the logits of every place: eight billion weights."""
MEMORY, LOADING = 2.5e12, 5e9
"""Bytes a second: read from the memory of an H100 (three quarters of its data sheet), and of weights loaded that the
process before has read too."""
LAYER_S = 0.9e-3
"""Of a step of decoding: 15 ms with 16 layers and a batch of 16 are spent in starting their work."""
STARTING = 2.2
"""Seconds: of imports 2.0, of a CUDA context 0.2."""
HASHING = 1.1e9
"""Bytes a second of one file: sha256 on one core."""
PART = 4e9
"""Bytes of one file of weights (``training/engines/checkpoint.py``): the files are digested side by side."""
CALLS = 1.5
"""Calls of ``self_instruct`` for each instruction that it is to keep."""


class Planned(NamedTuple):
    """Seconds of a stage and of its witness."""

    stage: str
    seconds: float
    witness: float
    digesting: float
    """Of the weights, once."""
    loading: float

    @property
    def begin(self) -> float:
        """Return what it takes until the witness begins with its work; the stage digests its weights once more."""
        return STARTING + self.digesting + self.loading


def main() -> int:
    """Print the plan of each profile; 1 if the witnesses of one take more than the limit."""
    worst = 0.0
    for name, profile in PROFILES:
        spec = load_spec(LIBRARY / f"{name}.yaml", profile).spec
        found = [one for stage in spec.stages if (one := planned(spec, stage)) is not None]
        begins = sum(one.begin for one in found)
        stages, work = sum(one.seconds + one.begin + one.digesting for one in found), sum(one.witness for one in found)
        share = (work + begins) / (stages + work + begins)
        worst = max(worst, share)
        together = work + begins - STARTING * (len(found) - 1)
        print(
            f"{name} {profile}: witnesses take {share:.1%} of the machine's time by plan (limit {LIMIT:.0%}); without "
            f"what it takes to begin {work / (sum(one.seconds for one in found) + work):.1%}, all in one process "
            f"{together / (stages + together):.1%}"
        )
        for one in found:
            print(
                f"    {one.stage:<22}{one.seconds:>9.0f} s   witness {one.witness:>7.0f} s   begin {one.begin:>5.0f} s"
            )
    return int(worst > LIMIT)


def planned(spec: SessionSpec, stage: Stage) -> Planned | None:
    """Return the plan of a stage that a witness reads or repeats; None for any other."""
    kind, given = kind_of(stage), stage.parameters
    source = spec.control if stage.inputs.get("model") == "control" and spec.control else spec.model
    shape, why = shape_of_source(source, LIBRARY)
    if not (kind.asked or kind.replayed or kind.scores_of(given)):
        return None
    assert shape is not None, why
    weights = shape.parameters()
    held = 2 * weights
    begin = held / math.ceil(held / PART) / HASHING, held / LOADING
    pass_s = 2 * weights / OPERATIONS
    if isinstance(given, SftParameters | DpoParameters):
        seconds, witness = _training(given, _volume(spec, stage), pass_s)
        return Planned(stage.name, seconds, witness, *begin)
    read = _volume(spec, stage)
    texts, written = _texts(given, read.texts), int(getattr(given, "max_new_tokens", 0) or 0)
    forward = (read.tokens + written) * pass_s
    again = min(texts, ROWS_ON_GPU) * forward * OPERATIONS / READING
    if not written:
        return Planned(stage.name, texts * forward, again, *begin)
    batch = int(getattr(given, "batch_size", 1))
    token_s = max(shape.layers * LAYER_S, 2 * weights / MEMORY, batch * pass_s)
    decoding = math.ceil(texts / batch) * written * token_s
    return Planned(stage.name, texts * read.tokens * pass_s + decoding, again, *begin)


def _volume(spec: SessionSpec, stage: Stage) -> Volume:
    """Return how many texts a stage reads, and the tokens of one; a few where it reads only its own prompts."""
    roles = [role for role in stage.inputs if role not in ("model", "control", "judge", "constitution")]
    return (volume(spec, stage.inputs[roles[0]], LIBRARY) if roles else None) or Volume(16, 50)


def _texts(given: Any, read: int) -> int:
    """Return how many texts a model is asked for or scores."""
    if (target := getattr(given, "target", None)) is not None:
        return math.ceil(CALLS * target * given.over_generation)
    limits = (getattr(given, name, None) for name in ("max_instructions", "max_prompts", "max_examples", "probe_items"))
    most = min([read, *(one for one in limits if one)])
    each = getattr(given, "samples_per_instruction", None) or getattr(given, "samples_per_prompt", None) or 1
    return most * each


def _training(given: SftParameters | DpoParameters, data: Volume, pass_s: float) -> tuple[float, float]:
    sides = 2 if isinstance(given, DpoParameters) else 1
    steps = given.epochs * math.ceil(data.texts / (given.batch_size * given.gradient_accumulation))
    passes = 4 if given.gradient_checkpointing else 3
    once = sides * data.texts * data.tokens * pass_s
    reference = once if isinstance(given, DpoParameters) and given.loss not in REFERENCE_FREE else 0.0
    parts = segments("plan", steps, given.snapshots_of(steps))
    share = sum(one.until - one.after for one in parts) / steps
    training = given.epochs * passes * once
    return training + reference, share * (training + reference)


if __name__ == "__main__":
    raise SystemExit(main())
