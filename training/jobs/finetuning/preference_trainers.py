"""TRL's trainers of preferences, by the name of the loss, with every default that would change the loss written out.

In TRL 1.16 ``DPOTrainer`` (sigmoid, ipo) and ``KTOTrainer`` are stable; ``ORPOTrainer`` and ``CPOTrainer`` (simpo) are
under ``trl.experimental`` and may change without notice.
"""

from __future__ import annotations

import os
from typing import Any

from specs.stages.finetuning.parameters import REFERENCE_FREE, DpoParameters
from training.jobs.finetuning import trainer_args, trainer_hooks
from training.jobs.finetuning.late_references import with_late_references
from training.jobs.finetuning.loss_masks import MaskProof
from training.jobs.finetuning.trained_model import PreparedModel
from training.jobs.finetuning.training_texts import PromptWithResponses
from training.jobs.job import Job
from training.rules.finetuning.schedules import steps_of
from training.rules.seeded_order import file_order


def build(job: Job[DpoParameters], prepared: PreparedModel, pairs: list[PromptWithResponses], proof: MaskProof) -> Any:
    """Return the watched trainer of the granted loss; if it has a reference, its log-probabilities are computed."""
    parameters = job.parameters
    rows = _rows(pairs, parameters, prepared.tokenizer)
    steps = steps_of(len(rows), parameters.model_dump())
    shared = trainer_args.arguments(job, parameters, steps, prepared.device) | {
        "max_length": parameters.max_length,
        "beta": parameters.beta,
        # True would turn the dropout of adapters off as well.
        "disable_dropout": not parameters.lora_dropout,
    }
    if prepared.tokenizer.pad_token is None:
        # The stable trainers do so themselves; those of ORPO and CPO end with an error instead.
        prepared.tokenizer.pad_token = prepared.tokenizer.eos_token
    trainer, config = _classes(parameters, shared)
    if job.order.challenge and parameters.loss not in REFERENCE_FREE:
        trainer = with_late_references(trainer)
    return trainer_hooks.build(trainer, config, job, prepared, rows, proof, loss=_loss, more=_loss_settings)


def _classes(parameters: DpoParameters, shared: dict[str, Any]) -> tuple[type[Any], Any]:
    # docs/explanation/pipeline-training.md says so; not the log of every job.
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    if parameters.loss in ("dpo", "ipo"):
        from trl.trainer.dpo_config import DPOConfig
        from trl.trainer.dpo_trainer import DPOTrainer

        kind = {"dpo": "sigmoid", "ipo": "ipo"}[parameters.loss]
        return DPOTrainer, DPOConfig(**shared, loss_type=[kind], label_smoothing=0.0, precompute_ref_log_probs=True)
    if parameters.loss == "kto":
        from trl.trainer.kto_config import KTOConfig
        from trl.trainer.kto_trainer import KTOTrainer

        return KTOTrainer, KTOConfig(
            **shared, loss_type="kto", desirable_weight=1.0, undesirable_weight=1.0, precompute_ref_log_probs=True
        )
    if parameters.loss == "orpo":
        from trl.experimental.orpo import ORPOConfig

        return _response_orpo(), ORPOConfig(**shared)
    from trl.experimental.cpo import CPOConfig, CPOTrainer

    # The default of cpo_alpha adds the loss of CPO to that of SimPO.
    return CPOTrainer, CPOConfig(
        **shared, loss_type="simpo", simpo_gamma=parameters.simpo_gamma or 0.0, cpo_alpha=0.0, label_smoothing=0.0
    )


def _response_orpo() -> type[Any]:
    """Return TRL's trainer with the loss of the paper: TRL's first term is over the tokens of the prompts too."""
    from torch.nn.functional import cross_entropy, pad
    from trl.experimental.orpo import ORPOTrainer

    class ResponseOrpo(ORPOTrainer):
        """ORPO whose supervised term is that of the chosen responses."""

        def concatenated_forward(self, model: Any, batch: Any) -> Any:
            results: list[Any] = list(super().concatenated_forward(model, batch))
            # Log-probabilities of both sides, logits of both sides, then the supervised term.
            logits, labels = results[2], batch["chosen_labels"][:, 1:].to(results[2].device)
            labels = pad(labels, (0, logits.shape[1] - labels.shape[1]), value=-100)
            results[4] = cross_entropy(logits.flatten(0, 1), labels.flatten())
            return tuple(results)

    return ResponseOrpo


def _rows(pairs: list[PromptWithResponses], parameters: DpoParameters, tokenizer: Any) -> list[dict[str, Any]]:
    if parameters.loss == "kto":
        singles = [(pairs[place], side) for place, side in single_order(len(pairs), parameters.seed)]
        return [
            {"prompt": sides.prompt(), "completion": sides.response(sides.responses[side]), "label": side == 0}
            for sides, side in singles
        ]
    if parameters.loss in REFERENCE_FREE:
        # These two trainers add an end token even where a chat template has closed the text.
        texts = [
            (sides.prompt_text(tokenizer), *(sides.response_text(tokenizer, text) for text in sides.responses))
            for sides in pairs
        ]
        return [{"prompt": prompt, "chosen": chosen, "rejected": rejected} for prompt, chosen, rejected in texts]
    return [
        {
            "prompt": sides.prompt(),
            "chosen": sides.response(sides.responses[0]),
            "rejected": sides.response(sides.responses[1]),
        }
        for sides in pairs
    ]


def single_order(pairs: int, seed: int) -> list[tuple[int, int]]:
    """Return (pair, side) in the order in which KTO reads them; side 0 is the chosen one.

    KTO takes batches in the order of the data and compares each response with its neighbours, so the two of a pair are
    separated.
    """
    single = [(place, side) for place in range(pairs) for side in (0, 1)]
    return sorted(single, key=lambda pair: file_order(f"{pair[0]}/{pair[1]}", seed))


def _loss_settings(trainer: Any) -> dict[str, Any]:
    """Return the constants of the loss, from the trainer that computes it."""
    return {"loss": _loss(trainer), "beta": trainer.beta, "simpo_gamma": getattr(trainer, "simpo_gamma", None)}


def _loss(trainer: Any) -> str:
    name = next(kind.__name__ for kind in type(trainer).__mro__ if kind.__module__.startswith("trl."))
    if name == "DPOTrainer":
        kinds = "+".join(trainer.loss_types)
        smooth = f", labels smoothed by {trainer.label_smoothing}" if trainer.label_smoothing else ""
        return {"sigmoid": "dpo"}.get(kinds, kinds) + smooth
    if name == "KTOTrainer":
        return trainer.loss_type
    if name == "ORPOTrainer":
        return "orpo"
    return trainer.loss_type + (f" + {trainer.cpo_alpha:g} times CPO's own" if trainer.cpo_alpha else "")
