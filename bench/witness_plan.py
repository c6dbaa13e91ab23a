"""What share of a session's GPU time do its witnesses take, by plan? `python -m bench.witness_plan`.

For each profile of the shipped pipelines on one GPU: the planned seconds of each stage that loads a model and of its
witness, and the share that all witnesses take, against the limit of a tenth. Nothing runs. A forward pass takes two
operations a weight and token, training three passes (four with gradient checkpointing), a written token what it takes
to start the work of each layer, a reading of all weights or the passes of its batch, whichever is most; prompts are
encoded on one core. Each process imports its libraries and meanwhile digests its weights, then loads them; the launcher
digests those of a stage before. A witness of training loads its model for each part that it trains again, and what was
saved. Numbers of texts and tokens are the most that a stage can get (``training/planning``). Rates are those that
``bench.gpu_rates`` and ``bench.planned_gpu`` measured on an H200 with 16 x86 cores; other rates are marked. Merging
and writing what was trained, and gates, are left out, which makes the share larger. Also printed: the share without
what it takes to begin, and with digests before imports instead of next to them. Exit code 1 if a profile is above the
limit.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any, NamedTuple

from reviews.gate.challenge import segments
from specs.loading.loading import load_spec
from specs.session.session_spec import SessionSpec
from specs.stages.base.witness import ROWS_ON_GPU
from specs.stages.critique.parameters import ReviseParameters
from specs.stages.finetuning.parameters import REFERENCE_FREE, DpoParameters, SftParameters
from specs.stages.registry import Stage, kind_of
from training.planning.model_shapes import Shape
from training.planning.prompt_lengths import CHARACTERS_A_TOKEN, TEMPLATE, Volume, prompt_tokens, volume
from training.planning.stage_plans import longest_item, shape_of_source
from training.rules.critique.revision_chains import chain_prompts

LIBRARY = Path(__file__).parent.parent / "specs" / "library"
PROFILES = (
    ("self_instruct_sft", "gpu"),
    ("self_instruct_sft", "gpu80"),
    ("cai_preferences", "gpu"),
    ("cai_preferences", "gpu80"),
)
LIMIT = 0.1
OPERATIONS = 4e14
"""A second, of 16-bit products: measured were 4.6e14 forward with a billion weights, 5.6e14 with eight, and 3.8e14 in
training, next to nine other jobs."""
READING = 2.7e14
"""The same of a witness that reads answers, which has the logits of every place: eight billion weights."""
MEMORY, LOADING = 2.5e12, 5e9
"""Bytes a second: read from the memory of an H100 (three quarters of its data sheet), and of weights loaded that the
process before has read too."""
LAYER_S = 0.9e-3
"""Overhead of a decoding step: 15 ms with 16 layers and a batch of 16 are spent in starting their work."""
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
"""Characters of an English token."""
CALLS = 1.5
"""Calls of ``self_instruct`` for each instruction that it is to keep."""


class WitnessPlan(NamedTuple):
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
        """Return what stage and witness take to begin, with their digests next to the imports or before them."""
        join = max if beside else float.__add__
        first, second = (STARTING + join(IMPORTS, digest) + self.loading for digest in self.digests)
        return first, second


def main() -> int:
    """Print the plan of each profile; 1 if the witnesses of one take more than the limit."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    worst = 0.0
    for name, profile in PROFILES:
        spec = load_spec(LIBRARY / f"{name}.yaml", profile).spec
        results = [value for stage in spec.stages if (value := plan_witness(spec, stage)) is not None]
        share = share_of(results, beside=True)
        worst = max(worst, share)
        work, seconds = sum(value.witness for value in results), sum(value.seconds for value in results)
        print(
            f"{name} {profile}: witnesses take {share:.1%} of the machine's time by plan (limit {LIMIT:.0%}); without "
            f"what it takes to begin {work / (seconds + work):.1%}, with digests before imports "
            f"{share_of(results, beside=False):.1%}"
        )
        for value in results:
            begin, again = value.begins(beside=True)
            print(
                f"    {value.stage:<20}{value.seconds:>9.0f} s   begin {value.before + begin:>5.0f} s   "
                f"witness {value.witness:>7.0f} s   begin {again:>5.0f} s"
            )
    return int(worst > LIMIT)


def share_of(results: list[WitnessPlan], *, beside: bool) -> float:
    """Return the share of the machine's time that witnesses take."""
    begins = [value.begins(beside=beside) for value in results]
    stages = sum(value.seconds + value.before + begin for value, (begin, _) in zip(results, begins, strict=True))
    witnesses = sum(value.witness + begin for value, (_, begin) in zip(results, begins, strict=True))
    return witnesses / (stages + witnesses)


def plan_witness(spec: SessionSpec, stage: Stage) -> WitnessPlan | None:
    """Return the plan of a stage that a witness reads or repeats; None for any other."""
    kind, parameters = kind_of(stage), stage.parameters
    source = spec.control if stage.inputs.get("model") == "control" and spec.control else spec.model
    shape, why = shape_of_source(source, LIBRARY)
    if not (kind.witness_prompts or kind.replay_job or kind.scores_of(parameters)):
        return None
    assert shape is not None, why
    value = 2.0 * shape.parameters()
    models = sum(artifact_kind == "checkpoint" for artifact_kind in kind.inputs.values())
    saved = sum(artifact_kind == "checkpoint" for artifact_kind in kind.outputs.values())
    # What a stage saves is digested by the stage, and then by the session.
    leaving = saved * 2 * _digesting(value, 1)
    digests = _digesting(value, models), _digesting(value, models + saved)
    before = models * _digesting(value, 1)
    if isinstance(parameters, SftParameters | DpoParameters):
        work, again = _training(parameters, _volume(spec, stage), shape)
        return WitnessPlan(stage.name, work + leaving, again, value / LOADING, before, digests)
    work, again = _asking(spec, stage, shape)
    more = (models - 1) * value / LOADING
    return WitnessPlan(stage.name, work + leaving + more, again + more, value / LOADING, before, digests)


def _digesting(value: float, folders: int) -> float:
    """Return what it takes to digest the files of so many folders side by side."""
    part = value / math.ceil(value / PART)
    return max(part, folders * value / CORES) / HASHING


def _asking(spec: SessionSpec, stage: Stage, shape: Shape) -> tuple[float, float]:
    """Return what it takes to ask a model, and to read what a witness draws of it."""
    parameters, weights, data = stage.parameters, shape.parameters(), _volume(spec, stage)
    answers = _revising(parameters, data) if isinstance(parameters, ReviseParameters) else (_answer(spec, stage),)
    prompts, written = sum(value for value, _ in answers), sum(value for _, value in answers)
    texts, pass_s = _texts(parameters, data.texts), 2 * weights / OPERATIONS
    batch = int(getattr(parameters, "batch_size", 1))
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


def _revising(revise_parameters: ReviseParameters, data: Volume) -> tuple[tuple[int, int], ...]:
    """Return the same of each critique and revision of an example, whose text each of their prompts holds."""
    words = chain_prompts()
    count = math.ceil((len(words.worked) + len(words.question) + TEMPLATE) / CHARACTERS) + data.tokens
    both = (
        (count, revise_parameters.critique_tokens),
        (count + revise_parameters.critique_tokens, revise_parameters.revision_tokens),
    )
    return both * revise_parameters.revisions


def _english(tokens: int) -> int:
    """Return how many tokens of English a prompt has that is planned with fewer characters a token."""
    return math.ceil(tokens * CHARACTERS_A_TOKEN / CHARACTERS)


def _volume(spec: SessionSpec, stage: Stage) -> Volume:
    """Return how many texts a stage reads, and the tokens of one; a few where it reads only its own prompts."""
    roles = [role for role in stage.inputs if role not in ("model", "control", "judge", "constitution")]
    return (volume(spec, stage.inputs[roles[0]], LIBRARY) if roles else None) or Volume(16, 50)


def _texts(arguments: Any, read: int) -> int:
    """Return how many texts a model is asked for or scores."""
    if (target := getattr(arguments, "target", None)) is not None:
        return math.ceil(CALLS * target * arguments.over_generation)
    limits = (
        getattr(arguments, name, None) for name in ("max_instructions", "max_prompts", "max_examples", "probe_items")
    )
    most = min([read, *(limit for limit in limits if limit)])
    names = ("samples_per_instruction", "samples_per_prompt", "samples_per_item")
    return most * next((sample_count for name in names if (sample_count := getattr(arguments, name, None))), 1)


def _training(arguments: SftParameters | DpoParameters, data: Volume, shape: Shape) -> tuple[float, float]:
    """Return what training takes, and what a witness takes to repeat parts of it and to read what was saved."""
    dpo = isinstance(arguments, DpoParameters)
    weights, loading = shape.parameters(), 2 * shape.parameters() / LOADING
    steps = arguments.epochs * math.ceil(data.texts / (arguments.batch_size * arguments.gradient_accumulation))
    passes = 4 if arguments.gradient_checkpointing else 3
    once = (2 if dpo else 1) * data.texts * data.tokens * 2 * weights / OPERATIONS
    reference = once if isinstance(arguments, DpoParameters) and arguments.loss not in REFERENCE_FREE else 0.0
    parts = segments("plan", steps, arguments.snapshots_of(steps))
    share = sum(segment.until - segment.after for segment in parts) / steps
    training = arguments.epochs * passes * once + reference
    # The granted model once more and the saved one, to score examples: both where some were kept out of training.
    loads = len(parts) - 1 + (2 if dpo or arguments.validation_share else 0) + (not dpo)
    again = share * training + loads * loading
    if arguments.method != "full":
        again += 2 * loading + weights / COMPARING
    return TRAINER + training, TRAINER + again


if __name__ == "__main__":
    raise SystemExit(main())
