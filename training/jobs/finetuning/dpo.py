"""Training on preferences with TRL: a row per optimizer step, and scores of held-out pairs before and after."""

from __future__ import annotations

from typing import Any, NamedTuple

from specs.stages.base.artifacts import Preference
from specs.stages.finetuning.parameters import REFERENCE_FREE, DpoParameters
from specs.stages.finetuning.rows import PairReading, PairScore, PreferenceStep
from training.jobs.finetuning import preference_trainers, trainer_args
from training.jobs.finetuning.adapter_merge import finish_training
from training.jobs.finetuning.kept_examples import list_readings, take_best, watch
from training.jobs.finetuning.loss_comparison import PairLogprobs, score, share
from training.jobs.finetuning.loss_masks import MaskProof, encode_known_prompts
from training.jobs.finetuning.preference_trainers import single_order
from training.jobs.finetuning.trained_model import PreparedModel, prepare
from training.jobs.finetuning.trainer_hooks import TrainerBuild
from training.jobs.finetuning.training_texts import PromptWithResponses, Style, style_of
from training.jobs.job import Job, StageResult
from training.jobs.row_files import read_rows
from training.jobs.saved_steps import newest_whole, train
from training.rules.finetuning.replica_rounds import Share
from training.rules.finetuning.validation_split import ValidationSplit, divide, pair_values

_MOST, _FEWEST, _SHARE = 16, 2, 0.01
"""Pairs whose reference log-probabilities are computed before TRL has the model; ``_SHARE`` is of all passes."""


class Data(NamedTuple):
    """The granted pairs, divided, and the model that has seen none of them."""

    preferences: list[Preference]
    split: ValidationSplit
    prepared: PreparedModel
    style: Style
    training: list[PromptWithResponses]
    validation: list[PromptWithResponses]


def data_of(job: Job[DpoParameters]) -> Data:
    """Return what a trainer of the granted pairs is built from."""
    parameters = job.parameters
    preferences = read_rows(job.inputs["preferences"], Preference)
    try:
        split = divide(preferences, parameters.validation_share, parameters.seed)
    except ValueError as error:
        raise SystemExit(str(error)) from error
    if not split.train:
        raise SystemExit("no pair to train on")
    prepared = prepare(job.inputs["model"], parameters)
    style = style_of(prepared.tokenizer, parameters, job.order.model_kind)
    sides = [
        PromptWithResponses(style, preference.prompt, (preference.chosen, preference.rejected), preference.before)
        for preference in preferences
    ]
    training, with_responses = [sides[place] for place in split.train], [sides[place] for place in split.validation]
    return Data(preferences, split, prepared, style, training, with_responses)


def build(job: Job[DpoParameters], share: Share | None = None, data: Data | None = None) -> TrainerBuild:
    """Return the trainer of the granted pairs, or of one replica's share of them."""
    data = data or data_of(job)
    parameters, prepared = job.parameters, data.prepared
    training = data.training if share is None else share.of(data.training)
    places: list[int] = []
    if not job.order.challenge:
        resumed = newest_whole(job.folder / "trainer") is not None
        places = choose_probe_pairs(len(training), parameters.epochs, resumed=resumed)
    probe = score_pairs(prepared.model, prepared, [training[place] for place in places], parameters) if places else []
    proof = MaskProof(encode_known_prompts(prepared.tokenizer, training))
    trainer = preference_trainers.build(job, prepared, training, proof)
    facts = {"pairs": len(training), "validation_pairs": len(data.split.validation)}

    def compute_final_facts() -> dict[str, Any]:
        return _reference_facts(trainer, dict(zip(places, probe, strict=True)), len(training), parameters)

    return TrainerBuild(trainer, prepared, training, data.style, proof, facts, compute_final_facts)


def dpo(job: Job[DpoParameters]) -> StageResult:
    """Write ``rows`` (one per step), ``pairs`` (one per held-out pair), ``checkpoint``; ``snapshots`` if granted."""
    data = data_of(job)
    before = score_pairs(data.prepared.model, data.prepared, data.validation, job.parameters)
    built = build(job, data=data)
    trainer, rule = built.trainer, job.parameters.early_stopping
    pairs = KeptPairs(data, job.parameters)
    if rule is not None:
        if not data.validation:
            raise SystemExit("early_stopping: no pair is kept out, give validation_share")
        watch(trainer, pairs, rule)
    train(trainer, job.folder / "trainer")
    facts = built.facts | built.compute_final_facts()
    job.write_rows("rows", [step_of(entry) for entry in trainer_args.list_logged_steps(trainer)])
    effective = trainer.settings() | data.style.settings()
    if rule is not None:
        job.write_rows("validation", pairs.rows(trainer))
        effective |= take_best(trainer, pairs, rule, job.folder / "trainer")
    write_scores(job, data, before, trainer.model)
    facts |= trainer_args.seen_facts(trainer, built.proof)
    facts |= trainer_args.lengths(built.sides, data.prepared.tokenizer, job.parameters.max_length)
    return finish_training(job, trainer, data.prepared, effective, facts)


class KeptPairs:
    """The pairs that a training does not see, and how its model reads them."""

    def __init__(self, data: Data, parameters: DpoParameters) -> None:
        self._data, self._parameters = data, parameters

    def entries(self, model: Any) -> list[list[Any]]:
        """Return what a trainer's log keeps of a reading."""
        scores = score_pairs(model, self._data.prepared, self._data.validation, self._parameters)
        places = self._data.split.validation
        return [[place, value.chosen, value.rejected] for place, value in zip(places, scores, strict=True)]

    def rows(self, trainer: Any) -> list[PairReading]:
        """Return what a trainer with :func:`watch` read."""
        return [
            PairReading(step=step, pair=place, chosen=chosen, rejected=rejected)
            for step, entries in list_readings(trainer)
            for place, chosen, rejected in entries
        ]

    def values(self, trainer: Any) -> dict[int, float]:
        """Return the values of the rule's metric so far."""
        assert self._parameters.early_stopping is not None
        return pair_values(self.rows(trainer), self._parameters.early_stopping)


def write_scores(job: Job[DpoParameters], data: Data, before: list[PairLogprobs], model: Any) -> None:
    """Write ``pairs``: the scores of the pairs that were kept out, before and by a trained model."""
    after = score_pairs(model, data.prepared, data.validation, job.parameters)
    job.write_rows(
        "pairs",
        [
            PairScore(
                pair=place,
                group=data.preferences[place].group,
                chosen_tokens=scorer_value.chosen_tokens,
                rejected_tokens=scorer_value.rejected_tokens,
                chosen_before=scorer_value.chosen,
                rejected_before=scorer_value.rejected,
                chosen_after=two.chosen,
                rejected_after=two.rejected,
            )
            for place, scorer_value, two in zip(data.split.validation, before, after, strict=True)
        ],
    )


def score_pairs(
    model: Any, prepared: PreparedModel, pairs: list[PromptWithResponses], parameters: DpoParameters
) -> list[PairLogprobs]:
    """Return the log-probabilities of pairs, as this stage writes them."""
    size, longest = 2 * parameters.batch_size, parameters.max_length
    return score(model, prepared.tokenizer, pairs, batch_size=size, max_length=longest)


def step_of(entry: dict[str, Any]) -> PreferenceStep:
    """Return the row of a logged step."""
    same = {name: entry[name] for name in ("step", "epoch", "loss", "learning_rate", "grad_norm", "tokens")}
    return PreferenceStep(
        **same,
        batches=tuple(entry.get("batches", ())),
        sketch=tuple(entry.get("sketch", ())),
        chosen_reward=entry.get("rewards/chosen"),
        rejected_reward=entry.get("rewards/rejected"),
        margin=entry.get("rewards/margins"),
        accuracy=entry.get("rewards/accuracies"),
    )


def choose_probe_pairs(pairs: int, epochs: int, *, resumed: bool) -> list[int]:
    """Return the pairs whose reference is computed before TRL and without it: spread evenly, with the first and last.

    A pair takes two forward passes; training takes two for TRL's reference and six per epoch. With few pairs the first
    batch proves most (:func:`_reference_facts`); a resumed training has none, and probes the most pairs.
    """
    wanted = _MOST if resumed else round(_SHARE * pairs * (2 + 6 * epochs) / 2)
    count = min(max(wanted, _FEWEST), _MOST, pairs)
    return sorted({round(n * (pairs - 1) / max(1, count - 1)) for n in range(count)})


def _reference_facts(
    trainer: Any, probe: dict[int, PairLogprobs], pairs: int, parameters: DpoParameters
) -> dict[str, Any]:
    """Compare TRL's reference log-probabilities with ours: of a few pairs and of the first batch.

    The pairs were scored before TRL had the model; the closed form of the first batch is computed with the weights that
    training begins from, which are the reference. The difference is a share of the value, or nats if that is below 1.
    """
    if parameters.loss in REFERENCE_FREE:
        return {}
    data = trainer.train_dataset
    ours: dict[tuple[int, int], float] = {}
    for place, scorer_value in probe.items():
        ours |= {(place, 0): scorer_value.chosen, (place, 1): scorer_value.rejected}
    if parameters.loss == "kto":
        theirs = dict(zip(single_order(pairs, parameters.seed), data["ref_logps"], strict=True))
    else:
        theirs = {(place, 0): value for place, value in enumerate(data["ref_chosen_logps"])}
        theirs |= {(place, 1): value for place, value in enumerate(data["ref_rejected_logps"])}
    values = [share(value, theirs[place]) for place, value in ours.items()]
    first = [value for value in trainer.compared.values() if value.reference is not None]
    worst = max([*values, *(value.reference for value in first)])
    return {
        "reference_difference": float(worst),
        "reference_responses": len(ours) + sum(value.responses for value in first),
    }
