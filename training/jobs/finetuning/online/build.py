"""The trainer of a stage that trains on its own answers, built from what was granted: for the job, and its witness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from specs.stages.base.artifacts import Item, Preference
from specs.stages.finetuning.online_parameters import ComposerParameters, GrpoParameters
from specs.stages.finetuning.online_rows import Rollout
from training.engines.batched import ends_in
from training.engines.checkpoint import evaluating
from training.jobs.finetuning import trainer_args, trainer_hooks
from training.jobs.finetuning.loss_comparison import sums
from training.jobs.finetuning.online.channels import ChannelPlan, ReferencePair, make_channel_trainer
from training.jobs.finetuning.online.hidden_states import TokenSequence, require_plain_head
from training.jobs.finetuning.online.losses import objective
from training.jobs.finetuning.online.recorded import Rollouts, RolloutSource, make_recording_trainer, reward_functions
from training.jobs.finetuning.trained_model import PreparedModel, prepare
from training.jobs.finetuning.training_texts import PromptWithResponses, Style, style_of
from training.jobs.job import Job, refuse
from training.jobs.row_files import read_rows
from training.rules.finetuning.schedules import steps_of
from training.rules.seeded_order import draw_share, file_order
from training.rules.tasks import load_items


class OnlineInputs(NamedTuple):
    """The granted prompts, divided, and the model that has answered none of them."""

    training: list[Item]
    validation: list[Item]
    prepared: PreparedModel
    style: Style
    pairs: list[ReferencePair]
    pairs_cut: int

    def prompt_ids(self, item: Item, hint: str = "") -> list[int]:
        """Return what the model reads before it answers an item, with a hint after the user's last words."""
        text = f"{item.prompt}\n\n{hint}" if hint else item.prompt
        return PromptWithResponses(self.style, text, (), item.before).encode_sides(self.prepared.tokenizer).prompt


def prepare_online_inputs(job: Job[Any]) -> OnlineInputs:
    """Return what a trainer is built from; exits where no prompt would be trained on, or a pair is too long."""
    parameters: GrpoParameters = job.parameters
    items = load_items(job.inputs["prompts"])
    texts = draw_share((item.group for item in items), parameters.validation_share, parameters.seed)
    training = [item for item in items if item.group not in texts]
    if not steps_of(len(training), parameters.model_dump()):
        replicas = parameters.distributed.replicas if parameters.distributed else 1
        at_once = replicas * parameters.batch_size * parameters.gradient_accumulation // parameters.generations
        raise SystemExit(f"{len(training)} prompts remain to train on, a step needs {at_once}")
    prepared = prepare(job.inputs["model"], parameters)
    style = style_of(prepared.tokenizer, parameters, job.order.model_kind)
    online_inputs = OnlineInputs(training, [item for item in items if item.group in texts], prepared, style, [], 0)
    if parameters.weights.sdpo or parameters.weights.dpo:
        require_plain_head(prepared.model)
    if not isinstance(parameters, ComposerParameters) or not parameters.reads_pairs:
        return online_inputs
    pairs, cut = _pairs(job, parameters, prepared, style)
    return online_inputs._replace(pairs=pairs, pairs_cut=cut)


def _pairs(
    job: Job[Any], composer_parameters: ComposerParameters, prepared: PreparedModel, style: Style
) -> tuple[list[ReferencePair], int]:
    """Return the pairs in the order in which they are read, with references computed, and how many were cut.

    The beginning of a long prompt goes; what was answered stays whole, with a token to predict it from. A pair for
    which that leaves no room is left out.
    """
    rows = read_rows(job.inputs["pairs"], Preference)
    order = sorted(range(len(rows)), key=lambda place: file_order(f"pair {place}", composer_parameters.seed))
    most, cut, sides = composer_parameters.replayed_pairs.max_length, 0, list[TokenSequence]()
    for row in (rows[place] for place in order):
        encoded_prompt = PromptWithResponses(style, row.prompt, (row.chosen, row.rejected), row.before).encode_sides(
            prepared.tokenizer
        )
        token_sequences = [
            _shorten_sequence(whole, begin, most)
            for whole, begin in zip(encoded_prompt.wholes, encoded_prompt.begins(), strict=True)
        ]
        if all(side.begin > 0 and side.response for side in token_sequences):
            sides += token_sequences
            cut += any(len(whole) > most for whole in encoded_prompt.wholes)
    if not sides:
        refuse(
            f"channel dpo has a weight, and no pair of {len(rows)} fits into replayed_pairs.max_length, {most} tokens"
        )
    size, scores = 2 * composer_parameters.replayed_pairs.batch_size, list[float]()
    with evaluating(prepared.model):
        for at in range(0, len(sides), size):
            batch = [(list(token_sequence.ids), token_sequence.begin) for token_sequence in sides[at : at + size]]
            scores += [total for total, _ in sums(prepared.model, batch)]
    return [ReferencePair(sides[at], sides[at + 1], scores[at], scores[at + 1]) for at in range(0, len(sides), 2)], cut


def _shorten_sequence(whole: list[int], begin: int, most: int) -> TokenSequence:
    """Return a prompt and its response, at most so long; ``begin`` is 0 or less where the response alone is longer."""
    dropped = max(0, len(whole) - most)
    return TokenSequence(whole[dropped:], begin - dropped)


class RolloutTrainerBuild(NamedTuple):
    """A trainer before its first step, and its rollouts."""

    trainer: Any
    rollouts: Rollouts


def build(
    job: Job[Any], online_inputs: OnlineInputs, committed: Sequence[Rollout] | None = None
) -> RolloutTrainerBuild:
    """Return the watched trainer; with ``committed`` rollouts it samples none."""
    from datasets import Dataset
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    parameters: GrpoParameters = job.parameters
    steps = steps_of(len(online_inputs.training), parameters.model_dump())
    dtype = str(online_inputs.prepared.model.dtype).removeprefix("torch.")
    config = GRPOConfig(
        **trainer_args.arguments(job, parameters, steps, online_inputs.prepared.device),
        loss_type="dapo",
        scale_rewards="group" if parameters.scale_rewards else "none",
        reward_weights=list(parameters.rewards.values()),
        num_generations=parameters.generations,
        steps_per_generation=parameters.gradient_accumulation,
        num_iterations=parameters.updates,
        max_completion_length=parameters.max_new_tokens,
        temperature=parameters.temperature,
        # The defaults of transformers would cut the distribution that log-probabilities are of.
        top_p=1.0,
        top_k=0,
        epsilon=parameters.clip,
        beta=parameters.kl_weight,
        use_bias_correction_kl=True,
        mask_truncated_completions=False,
        # Of the copy that is the reference, which TRL loads in float32 otherwise.
        model_init_kwargs=None if dtype == "float32" else {"dtype": dtype},
    )
    distilled = parameters.distillation if parameters.weights.sdpo else None
    ends = sorted(ends_in(online_inputs.prepared.model.generation_config, online_inputs.prepared.tokenizer))
    source = RolloutSource(online_inputs.training, job.order.task, online_inputs.prepared.tokenizer, ends, distilled)
    rollouts = Rollouts(parameters, source, committed)
    kind = make_channel_trainer(GRPOTrainer, _plan(parameters, online_inputs))
    kind = trainer_hooks.make_guarded_trainer(kind, parameters.target_modules, _settings)
    kind = make_recording_trainer(kind, rollouts, parameters.seed)
    trainer = trainer_hooks.start(
        kind,
        job,
        model=online_inputs.prepared.model,
        reward_funcs=reward_functions(rollouts, list(parameters.rewards)),
        args=config,
        train_dataset=Dataset.from_list(
            [
                {"prompt": _prompt(online_inputs.style, backlog_item), "place": place}
                for place, backlog_item in enumerate(online_inputs.training)
            ]
        ),
        processing_class=online_inputs.prepared.tokenizer,
        peft_config=online_inputs.prepared.adapter,
    )
    return RolloutTrainerBuild(trainer, rollouts)


def _prompt(style: Style, item: Item) -> Any:
    return PromptWithResponses(style, item.prompt, (), item.before).prompt()


def _plan(parameters: GrpoParameters, online_inputs: OnlineInputs) -> ChannelPlan:
    plan = ChannelPlan(weights=parameters.weights, silent_steps=parameters.silent_steps, pairs=online_inputs.pairs)
    plan.distillation = parameters.distillation
    plan.teacher_ids = lambda row, hint: online_inputs.prompt_ids(online_inputs.training[row["place"]], hint)
    if isinstance(parameters, ComposerParameters):
        plan.replayed = parameters.replayed_pairs
    return plan


def _settings(trainer: Any) -> dict[str, Any]:
    """Return the settings of GRPO, from the trainer that computes it."""
    args, distilled = trainer.args, trainer.plan.distillation
    weights = zip(trainer.reward_func_names, trainer.reward_weights.tolist(), strict=True)
    return {
        "rewards": {name: float(f"{weight:.7g}") for name, weight in weights},
        "generations": trainer.num_generations,
        "max_new_tokens": trainer.max_completion_length,
        "temperature": trainer.temperature,
        "clip": trainer.epsilon_low,
        "kl_weight": trainer.beta,
        "updates": trainer.num_iterations,
        "scale_rewards": trainer.scale_rewards == "group",
        "loss_type": trainer.loss_type,
        "steps_per_generation": args.steps_per_generation,
        "channels": trainer.plan.weights.model_dump(mode="json"),
        "self_distillation": distilled.model_dump(mode="json"),
        "replayed_pairs": trainer.plan.replayed.model_dump(mode="json"),
        "divergence": objective(distilled.beta, distilled.top_k, distilled.temperature, distilled.token_clip),
    }
