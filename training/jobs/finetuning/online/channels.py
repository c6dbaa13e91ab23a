"""A trainer with three channels: GRPO as TRL computes it, self-distillation, and DPO on given pairs.

The backward pass of each channel is over before the next begins, so that only one holds its activations; their
gradients add up. With the weights 1, 0 and 0 it is TRL's trainer: the same losses, gradients and random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from specs.stages.finetuning.online_parameters import Channels, ReplayedPairs, SelfDistillation
from training.compat.trl_internals import passes_of
from training.jobs.finetuning.online import losses
from training.jobs.finetuning.online.hidden_states import TokenSequence, head, states, targets


class Silent(Exception):
    """A channel that was asked for has learned from nothing for too long: its loss of 0 would look healthy."""


class ReferencePair(NamedTuple):
    """A preference with the log-probabilities of both responses under the granted model."""

    chosen: TokenSequence
    rejected: TokenSequence
    chosen_reference: float
    rejected_reference: float


@dataclass
class ChannelPlan:
    """What the channels are to do."""

    weights: Channels = field(default_factory=Channels)
    distillation: SelfDistillation = field(default_factory=SelfDistillation)
    replayed: ReplayedPairs = field(default_factory=ReplayedPairs)
    pairs: Sequence[ReferencePair] = ()
    teacher_ids: Callable[[Any, str], list[int]] = lambda _, __: []
    """Returns the ids of a row's prompt with a hint in it."""
    silent_steps: int = 10


_NAMES = tuple(Channels.model_fields)


@dataclass
class _Count:
    loss: float = 0.0
    rows: int = 0
    tokens: int = 0
    squares: float = 0.0

    def as_log_entry(self) -> dict[str, Any]:
        return {"loss": self.loss, "rows": self.rows, "tokens": self.tokens, "grad_norm": math.sqrt(self.squares)}


class _Due(NamedTuple):
    """A channel that has something to learn from in a pass."""

    name: str
    weight: float
    rows: int
    tokens: int
    loss: Callable[[], Any]


def make_channel_trainer(trainer: type[Any], plan: ChannelPlan) -> type[Any]:
    """Return a subclass of TRL's ``GRPOTrainer`` with the channels of a plan."""

    class ChannelTrainer(trainer):
        """Learns from each channel in turn."""

        hints: Sequence[str | None] = ()
        """Hints for the answers that were judged last, in their order; rewards leave them here."""
        spans: Sequence[tuple[int, int] | None] = ()
        """The tokens of these answers that are learned from, where only those of a span are."""

        def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
            result: dict[str, Any] = super()._generate_and_score_completions(inputs)
            if plan.weights.sdpo:
                result |= _taught(self, inputs, result, plan)
            return result

        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
            self.running, self.left = None, []
            with _gradients(self.model) as squares:
                total = super().training_step(model, inputs, num_items_in_batch)
            if self.running is not None:
                self.counts[self.running].squares += squares()
            for pending in self.left:
                with _gradients(self.model) as squares:
                    with self.compute_loss_context_manager():
                        loss = _count_loss(self, pending)
                    self.accelerator.backward(loss)
                self.counts[pending.name].squares += squares()
                total = total + loss.detach()
            return total

        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            original = super()._compute_loss
            if not self.model.training:
                return original(model, inputs)
            pending = list(_channels(self, model, inputs, plan, original))
            self.running, self.left = (pending[0].name if pending else None), pending[1:]
            # Nothing to learn from in this pass: a loss of 0 that reaches the weights, so that the step is taken.
            return _count_loss(self, pending[0]) if pending else next(_iterate_trainable(model)).sum() * 0.0

        def read_pairs(self, sides: Sequence[TokenSequence]) -> None:
            """Hear which responses a pass reads next to its answers."""

        def channel_counts(self) -> dict[str, Any]:
            """Return what the channels did in the running step; raises Silent if a channel learned from nothing."""
            return {"channels": _take_counts(self, plan)}

    ChannelTrainer.plan = plan
    ChannelTrainer.counts = {name: _Count() for name in _NAMES}
    ChannelTrainer.running, ChannelTrainer.left = None, []
    return ChannelTrainer


def _channels(trainer: Any, model: Any, inputs: Any, plan: ChannelPlan, original: Callable[..., Any]) -> Iterator[_Due]:
    """Yield the channels that a pass has something for, in their order."""
    weights = plan.weights
    if weights.grpo:
        # Of a group of equal rewards rounding leaves something, which a small spread makes larger.
        alive = inputs["advantages"].abs() > (1e-6 if trainer.scale_rewards == "none" else 1e-3)
        tokens = int(inputs["completion_mask"][alive].sum())
        yield _Due("grpo", weights.grpo, int(alive.sum()), tokens, lambda: original(model, inputs))
    if weights.sdpo and bool((inputs["teacher_mask"].sum(-1) > 0).any()):
        yield _build_distillation(model, inputs, plan)
    if weights.dpo:
        yield _build_preference(trainer, model, plan)


def _count_loss(trainer: Any, pending: _Due) -> Any:
    """Return the weighted loss of a channel, and count what it is of."""
    loss, count = pending.loss(), trainer.counts[pending.name]
    count.loss += float(loss.detach())
    count.rows += pending.rows
    count.tokens += pending.tokens
    return loss if pending.weight == 1 else pending.weight * loss


@contextmanager
def _gradients(model: Any) -> Generator[Callable[[], float]]:
    """Hear the gradients that a backward pass adds; give the sum of their squares."""
    import torch

    heard: list[Any] = []

    def hear(gradient: Any) -> None:
        heard.append(torch.linalg.vector_norm(gradient.detach(), dtype=torch.float32).square())

    handles = [value.register_hook(hear) for value in _iterate_trainable(model)]
    try:
        yield lambda: float(sum(heard))
    finally:
        for handle in handles:
            handle.remove()


def _take_counts(trainer: Any, plan: ChannelPlan) -> dict[str, Any]:
    """Return what the channels with a weight did since the last step, and begin the next."""
    results = {name: trainer.counts[name].as_log_entry() for name in _NAMES if getattr(plan.weights, name)}
    trainer.counts.update({name: _Count() for name in _NAMES})
    earlier = [value["channels"] for value in trainer.state.log_history if "channels" in value]
    last = [*earlier, results][-plan.silent_steps :]
    for name in results:
        if len(last) == plan.silent_steps and not any(value[name]["rows"] for value in last):
            step = trainer.state.global_step
            raise Silent(f"step {step}: channel {name} has learned from no row in {len(last)} steps")
    return results


def _iterate_trainable(model: Any) -> Iterator[Any]:
    return (parameter for parameter in model.parameters() if parameter.requires_grad)


def _taught(trainer: Any, inputs: Any, results: dict[str, Any], plan: ChannelPlan) -> dict[str, Any]:
    """Return the ids of what the teacher of each answer reads, padded on the right; of no hint, none."""
    import torch

    device = results["completion_ids"].device
    taught = [plan.teacher_ids(value, hint) if hint else [] for value, hint in zip(inputs, trainer.hints, strict=True)]
    width = max(1, *map(len, taught))
    ids, mask = torch.zeros((2, len(taught), width), dtype=torch.long)
    for row, tokens in enumerate(taught):
        ids[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.long)
        mask[row, : len(tokens)] = 1
    hinted = (mask.sum(-1) > 0).to(device)
    taught_ids = {"teacher_ids": ids.to(device), "teacher_mask": mask.to(device)}
    learned = results["completion_mask"]
    if plan.distillation.target == "span":
        learned = torch.zeros_like(learned)
        for row, span in enumerate(trainer.spans):
            if span is not None:
                learned[row, slice(*span)] = 1
        taught_ids["teacher_span"] = learned
    # Of all passes on these answers: a mean over the tokens of one pass would depend on how they were divided.
    return taught_ids | {"teacher_tokens": learned[hinted].sum()}


def _build_distillation(model: Any, inputs: Any, plan: ChannelPlan) -> _Due:
    """Return the channel of self-distillation for the answers of a pass that have a hint."""
    student: list[TokenSequence] = []
    teacher: list[TokenSequence] = []
    learned: list[int] = []
    for row in range(len(inputs["teacher_ids"])):
        hinted = inputs["teacher_ids"][row][inputs["teacher_mask"][row] == 1].tolist()
        if hinted:
            prompt = inputs["prompt_ids"][row][inputs["prompt_mask"][row] == 1].tolist()
            answer = inputs["completion_ids"][row][inputs["completion_mask"][row] == 1].tolist()
            student.append(TokenSequence([*prompt, *answer], len(prompt)))
            teacher.append(TokenSequence([*hinted, *answer], len(hinted)))
            span = inputs.get("teacher_span")
            learned += [1] * len(answer) if span is None else span[row][: len(answer)].tolist()
    tokens = sum(learned)
    distillation = plan.distillation

    def loss() -> Any:
        import torch

        with torch.no_grad():
            theirs = states(model, teacher)
        ours = states(model, student)
        layer = head(model)
        mean = losses.divergence_in_pieces(
            ours,
            layer,
            theirs,
            layer,
            torch.tensor(learned, device=ours.device),
            beta=distillation.beta,
            temperature=distillation.temperature,
            top_k=distillation.top_k,
            clip=distillation.token_clip,
        )
        return mean * (tokens / inputs["teacher_tokens"])

    return _Due("sdpo", plan.weights.sdpo, len(student), tokens, loss)


def _build_preference(trainer: Any, model: Any, plan: ChannelPlan) -> _Due:
    """Return the channel of the pairs of a pass: they follow from its number, so that any part can be replayed."""
    replayed_pairs, passes = plan.replayed, trainer.current_gradient_accumulation_steps
    number = passes_of(trainer) * replayed_pairs.batch_size
    pairs = [
        plan.pairs[(number + place) % len(plan.pairs)]
        for place in range(min(replayed_pairs.batch_size, len(plan.pairs)))
    ]
    sides = [*(value.chosen for value in pairs), *(value.rejected for value in pairs)]
    trainer.read_pairs(sides)

    def loss() -> Any:
        import torch

        hidden = states(model, sides)
        every = losses.log_probabilities_in_pieces(hidden, head(model), targets(sides, hidden.device))
        sums = torch.stack([part.sum() for part in every.split([len(side.response) for side in sides])])
        references = torch.tensor(
            [*(value.chosen_reference for value in pairs), *(value.rejected_reference for value in pairs)],
            device=hidden.device,
        )
        half = len(pairs)
        return (
            losses.dpo_loss(sums[:half], sums[half:], references[:half], references[half:], replayed_pairs.beta)
            / passes
        )

    return _Due("dpo", plan.weights.dpo, len(pairs), sum(len(side.response) for side in sides), loss)
