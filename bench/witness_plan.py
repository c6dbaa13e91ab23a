"""What share of a session's GPU time do its witnesses take, by plan? `python -m bench.witness_plan`.

For each profile of the shipped pipelines on one GPU: the planned seconds of each stage that loads a model and of its
witness, and the share that all witnesses take, against the limit of a tenth. Nothing runs. A forward pass takes two
operations a weight and token, training three passes (four with gradient checkpointing), a written token what it takes
to start the work of each layer, a reading of all weights or the passes of its batch, whichever is most; prompts are
encoded on one core. Each process imports its libraries and meanwhile digests its weights, then loads them; the launcher
digests those of a stage before. A witness of training loads its model for each part that it trains again, and what was
saved. Numbers of texts and tokens are the most that a stage can get (``training/planning``). Rates are those that
``bench.gpu_rates`` and ``bench.planned_gpu`` measured on an H200 beside 16 x86 cores, or are said to be others. Merging
and writing what was trained, and gates, are left out, which makes the share larger. Also printed: the share without
what it takes to begin, and with digests before imports instead of beside them. Exit code 1 if a profile is above the
limit.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

from reviews.gate.challenge import segments
from specs.session.loading import load_spec
from specs.session.session_spec import SessionSpec
from specs.stages.critique.parameters import ReviseParameters
from specs.stages.finetuning.parameters import REFERENCE_FREE, DpoParameters, SftParameters
from specs.stages.registry import Stage, kind_of
from specs.stages.witness import ROWS_ON_GPU
from training.planning.model_shapes import Shape
from training.planning.prompt_lengths import CHARACTERS_A_TOKEN, TEMPLATE, Volume, prompt_tokens, volume
from training.planning.stage_plans import longest_item, shape_of_source
from training.rules.critique.revision_chains import chain_prompts

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
STARTING = 0.7
"""Seconds: of the interpreter and Peergate's own modules 0.5 (on two other x86 cores), of a CUDA context 0.2."""
IMPORTS, TRAINER = 4.2, 1.3
"""Seconds: torch and the outer half of transformers took 2.07 there; of the processor time of all that a job imports
they are 1.74 of 3.55 seconds on two other cores, and TRL takes 1.12."""
HASHING, CORES = 0.88e9, 16
"""Bytes a second of each of five files side by side: sha256 on one core each."""
PART = 4e9
"""Bytes of one file of weights (``training/engines/checkpoint.py``): the files are digested side by side."""
COMPARING = 8 * 5.9e7
"""Weights a second that a witness compares with base and adapters, on the processor: measured on one other core, and
assumed to gain a factor of eight of sixteen."""
ENCODING = 2.6e5
"""Tokens of prompts a second, on one other core."""
CHARACTERS = 4
"""Of a token of English."""
CALLS = 1.5
"""Calls of ``self_instruct`` for each instruction that it is to keep."""


class Planned(NamedTuple):
    """Seconds of a stage and of its witness."""

    stage: str
    seconds: float
    witness: float
    loading: float
    """What each of them takes until it begins with its work, imports and digests left out."""
    before: float
    """Digesting the weights that the stage reads, by the launcher."""
    digests: tuple[float, float]
    """The same by the stage and by its witness, which also reads what the stage saved."""

    def begins(self, *, beside: bool) -> tuple[float, float]:
        """Return what stage and witness take to begin, with their digests beside the imports or before them."""
        join = max if beside else float.__add__
        first, second = (STARTING + join(IMPORTS, one) + self.loading for one in self.digests)
        return first, second


def main() -> int:
    """Print the plan of each profile; 1 if the witnesses of one take more than the limit."""
    worst = 0.0
    for name, profile in PROFILES:
        spec = load_spec(LIBRARY / f"{name}.yaml", profile).spec
        found = [one for stage in spec.stages if (one := planned(spec, stage)) is not None]
        share = share_of(found, beside=True)
        worst = max(worst, share)
        work, seconds = sum(one.witness for one in found), sum(one.seconds for one in found)
        print(
            f"{name} {profile}: witnesses take {share:.1%} of the machine's time by plan (limit {LIMIT:.0%}); without "
            f"what it takes to begin {work / (seconds + work):.1%}, with digests before imports "
            f"{share_of(found, beside=False):.1%}"
        )
        for one in found:
            begin, again = one.begins(beside=True)
            print(
                f"    {one.stage:<20}{one.seconds:>9.0f} s   begin {one.before + begin:>5.0f} s   "
                f"witness {one.witness:>7.0f} s   begin {again:>5.0f} s"
            )
    return int(worst > LIMIT)


def share_of(found: list[Planned], *, beside: bool) -> float:
    """Return the share of the machine's time that witnesses take."""
    begins = [one.begins(beside=beside) for one in found]
    stages = sum(one.seconds + one.before + begin for one, (begin, _) in zip(found, begins, strict=True))
    witnesses = sum(one.witness + begin for one, (_, begin) in zip(found, begins, strict=True))
    return witnesses / (stages + witnesses)


def planned(spec: SessionSpec, stage: Stage) -> Planned | None:
    """Return the plan of a stage that a witness reads or repeats; None for any other."""
    kind, given = kind_of(stage), stage.parameters
    source = spec.control if stage.inputs.get("model") == "control" and spec.control else spec.model
    shape, why = shape_of_source(source, LIBRARY)
    if not (kind.asked or kind.replayed or kind.scores_of(given)):
        return None
    assert shape is not None, why
    held = 2.0 * shape.parameters()
    models = sum(one == "checkpoint" for one in kind.inputs.values())
    saved = sum(one == "checkpoint" for one in kind.outputs.values())
    # What a stage saves is digested by the stage, and then by the session.
    leaving = saved * 2 * _digesting(held, 1)
    digests = _digesting(held, models), _digesting(held, models + saved)
    before = models * _digesting(held, 1)
    if isinstance(given, SftParameters | DpoParameters):
        work, again = _training(given, _volume(spec, stage), shape)
        return Planned(stage.name, work + leaving, again, held / LOADING, before, digests)
    work, again = _asking(spec, stage, shape)
    more = (models - 1) * held / LOADING
    return Planned(stage.name, work + leaving + more, again + more, held / LOADING, before, digests)


def _digesting(held: float, folders: int) -> float:
    """Return what it takes to digest the files of so many folders side by side."""
    part = held / math.ceil(held / PART)
    return max(part, folders * held / CORES) / HASHING


def _asking(spec: SessionSpec, stage: Stage, shape: Shape) -> tuple[float, float]:
    """Return what it takes to ask a model, and to read what a witness draws of it."""
    given, weights, data = stage.parameters, shape.parameters(), _volume(spec, stage)
    answers = _revising(given, data) if isinstance(given, ReviseParameters) else (_answer(spec, stage),)
    prompts, written = sum(one for one, _ in answers), sum(one for _, one in answers)
    texts, pass_s = _texts(given, data.texts), 2 * weights / OPERATIONS
    batch = int(getattr(given, "batch_size", 1))
    token_s = max(shape.layers * LAYER_S, 2 * weights / MEMORY, batch * pass_s)
    decoding = math.ceil(texts / batch) * written * token_s
    stage_s = texts * prompts * (pass_s + 1 / ENCODING) + decoding
    # Of samples all prompts are encoded, since copies are counted among all answers.
    read = min(texts, ROWS_ON_GPU)
    encoded = read + (texts if kind_of(stage).samples else 0)
    again = read * (prompts + written) * pass_s * OPERATIONS / READING
    return stage_s, again + encoded * prompts / ENCODING


def _answer(spec: SessionSpec, stage: Stage) -> tuple[int, int]:
    """Return the most tokens of a prompt and of its answer; 0 of an answer where texts are only scored."""
    form = "completion" if spec.model.kind == "base" else "chat"
    prompt = prompt_tokens(stage.parameters, form, longest_item(spec, stage, LIBRARY))
    return _english(prompt), int(getattr(stage.parameters, "max_new_tokens", 0) or 0)


def _revising(given: ReviseParameters, data: Volume) -> tuple[tuple[int, int], ...]:
    """Return the same of each critique and revision of an example, whose text each of their prompts holds."""
    words = chain_prompts()
    asked = math.ceil((len(words.worked) + len(words.asked) + TEMPLATE) / CHARACTERS) + data.tokens
    both = (asked, given.critique_tokens), (asked + given.critique_tokens, given.revision_tokens)
    return both * given.revisions


def _english(tokens: int) -> int:
    """Return how many tokens of English a prompt has that is planned with fewer characters a token."""
    return math.ceil(tokens * CHARACTERS_A_TOKEN / CHARACTERS)


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


def _training(given: SftParameters | DpoParameters, data: Volume, shape: Shape) -> tuple[float, float]:
    """Return what training takes, and what a witness takes to repeat parts of it and to read what was saved."""
    dpo = isinstance(given, DpoParameters)
    weights, loading = shape.parameters(), 2 * shape.parameters() / LOADING
    steps = given.epochs * math.ceil(data.texts / (given.batch_size * given.gradient_accumulation))
    passes = 4 if given.gradient_checkpointing else 3
    once = (2 if dpo else 1) * data.texts * data.tokens * 2 * weights / OPERATIONS
    reference = once if isinstance(given, DpoParameters) and given.loss not in REFERENCE_FREE else 0.0
    parts = segments("plan", steps, given.snapshots_of(steps))
    share = sum(one.until - one.after for one in parts) / steps
    training = given.epochs * passes * once + reference
    # The granted model once more and the saved one, to score examples: both where some were kept out of training.
    loads = len(parts) - 1 + (2 if dpo or given.validation_share else 0) + (not dpo)
    again = share * training + loads * loading
    if given.method != "full":
        again += 2 * loading + weights / COMPARING
    return TRAINER + training, TRAINER + again


if __name__ == "__main__":
    raise SystemExit(main())
