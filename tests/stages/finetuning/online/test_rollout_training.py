"""Training on rollouts with a random model: the channels, what they leave, and that it comes out again."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reviews.checks.witness_checks import wrong_rows
from reviews.stages.finetuning.replay_checks import differs, same_weights
from specs.stages.base.stage import Kind
from specs.stages.base.witness import REPLAYED, WitnessRow
from specs.stages.finetuning.online_parameters import ComposerParameters, SelfDistillation
from specs.stages.finetuning.online_rows import KeptAnswer, Rollout, RolloutStep
from specs.stages.finetuning.rows import ReplayedStep
from specs.system.digests import digest_bytes
from testing.fixtures.rollout_jobs import CHANNELS, LORA, rollout_job, trained, witness_of
from testing.fixtures.simulated_kill import SimulatedKill
from training.jobs.finetuning.online import channels, hidden_states, losses
from training.jobs.finetuning.online.channels import Silent
from training.jobs.finetuning.online.recorded import (
    Rollouts,
    RolloutSource,
    _in_passes,  # pyright: ignore[reportPrivateUsage]
)
from training.jobs.finetuning.online.replay import replay
from training.jobs.job import Job
from training.jobs.row_files import read_rows
from training.jobs.witness.prompted_answers import UnusableRow
from training.rules.finetuning.rewards import Hint, hints
from training.rules.tasks.format_instructions import Judgement

pytestmark = [
    pytest.mark.integration,
    # transformers reads the old name when it saves a step.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]


def rows_of(job: Job) -> list[RolloutStep]:
    return read_rows(job.out / "rows.jsonl", RolloutStep)


def replayed(job: Job) -> tuple[list[ReplayedStep], list[WitnessRow], dict[str, Any]]:
    witness = witness_of(job)
    facts = replay(witness).facts
    lines = (witness.out / "witness.jsonl").read_text().splitlines()
    steps = [ReplayedStep.model_validate_json(line) for line in lines if "sketch" in json.loads(line)]
    return steps, [WitnessRow.model_validate_json(line) for line in lines if "ending" in json.loads(line)], facts


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        pytest.param("grpo", {"updates": 2, "epochs": 2}, id="grpo"),
        pytest.param(
            "composer",
            {"channels": CHANNELS, "snapshot_steps": 2, "gradient_accumulation": 2, "epochs": 4, **LORA},
            id="composer with adapters, four passes",
            marks=pytest.mark.more,
        ),
        pytest.param("sdpo", {"self_distillation": {"feedback": "verifier"}}, id="sdpo", marks=pytest.mark.slow),
    ],
)
def test_a_witness_reads_the_answers_and_trains_the_same_steps(
    tmp_path: Path, kind: Kind, changes: dict[str, Any]
) -> None:
    job = rollout_job(tmp_path, kind, **changes)
    trained(job)
    rows = rows_of(job)
    again, answers, facts = replayed(job)
    assert [why for step in again if (why := differs(rows, step, REPLAYED["float32"]))] == []
    assert again[0].step == 1 and ("snapshot_steps" not in changes or again[-1].step == len(rows))
    rollouts = read_rows(job.out / "rollouts.jsonl", Rollout)
    seen = {step.step for step in again}
    expected = {place for place, rollout in enumerate(rollouts) if rollout.step in seen}
    assert {row.row for row in answers if not row.part} == expected and len(expected) >= 8
    assert {row.part for row in answers} == {"", "before", "after"}
    assert list(wrong_rows(digest_bytes(b"end"), answers, "float32")) == []
    assert facts["files"] == [] and same_weights(rows[-1].sketch, facts["saved"])


def test_a_pass_that_is_resumed_has_the_order_of_an_undisturbed_training() -> None:
    from trl.trainer.utils import RepeatSampler

    def made() -> Any:
        return RepeatSampler(list(range(8)), mini_repeat_count=2, batch_size=2, seed=3)

    whole = made()
    passes = [list(whole) for _ in range(3)]
    late = _in_passes(made())
    late.set_epoch(2)
    assert list(late) == passes[2] != passes[0]


def test_answers_of_another_model_are_seen(tmp_path: Path) -> None:
    """The negative control: the same rows with answers that no one sampled from these weights."""
    job = rollout_job(tmp_path)
    trained(job)
    path = job.out / "rollouts.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line["answer_ids"] = [97] * len(line["answer_ids"])
        line["text"] = "a" * len(line["answer_ids"])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    steps, answers, _ = replayed(job)
    assert all(differs(rows_of(job), step, REPLAYED["float32"]) for step in steps)
    assert list(wrong_rows(digest_bytes(b"end"), answers, "float32"))
    lines[0]["item"], lines[1]["item"] = "i9", "i9"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(UnusableRow):
        replay(witness_of(job))


def test_the_loss_is_the_weighted_sum_of_the_channels(tmp_path: Path) -> None:
    job = rollout_job(tmp_path, "composer", channels=CHANNELS, gradient_accumulation=2, epochs=2)
    done = trained(job)
    rows = rows_of(job)
    assert len(rows) == 4
    for row in rows:
        assert set(row.channels) == set(CHANNELS)
        assert row.loss == pytest.approx(
            sum(CHANNELS[name] * channel.loss for name, channel in row.channels.items()), abs=1e-5
        )
        assert all(
            channel.rows and channel.tokens and channel.grad_norm > 0
            for name, channel in row.channels.items()
            if name != "grpo"
        )
        assert row.kl is not None and row.entropy is not None
    # The policy still is the reference: an answer in favour of the chosen side has not been learned yet.
    assert rows[0].channels["dpo"].loss == pytest.approx(math.log(2), abs=1e-6)
    assert rows[-1].channels["dpo"].loss < 0.65
    assert rows[0].sketch != rows[-1].sketch and done.effective["divergence"] == "jsd"
    hinted = [rollout for rollout in read_rows(job.out / "rollouts.jsonl", Rollout) if rollout.hint]
    assert hinted and all("The reason: it " in (rollout.hint or "") for rollout in hinted)
    assert len(read_rows(job.out / "kept.jsonl", KeptAnswer)) == 2


def test_a_channel_that_learns_from_nothing_ends_the_job(tmp_path: Path) -> None:
    """No answer of a random model is right, so no sibling can teach."""
    arguments = {
        "channels": {"grpo": 0.0, "sdpo": 1.0},
        "self_distillation": {"feedback": "sibling"},
        "silent_steps": 2,
    }
    job = rollout_job(tmp_path, "composer", **arguments)
    with pytest.raises(Silent, match="channel sdpo has learned from no row in 2 steps"):
        trained(job)
    assert not (job.out / "checkpoint").exists()


@pytest.mark.more
def test_channels_without_weight_leave_the_trainer_of_trl_as_it_is(tmp_path: Path) -> None:
    """The same parameters, bit for bit; with another channel they are others."""
    import torch
    from datasets import Dataset
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    from specs.stages.finetuning.online_parameters import Channels
    from testing.fixtures.rollout_jobs import prompt_rows
    from testing.fixtures.tiny_training import tiny_checkpoint
    from training.engines.checkpoint import load
    from training.jobs.finetuning.online.channels import ChannelPlan, ReferencePair, make_channel_trainer
    from training.jobs.finetuning.online.hidden_states import TokenSequence

    folder = tiny_checkpoint(tmp_path / "model")

    def reward(completions: Any, **_: Any) -> Any:
        return [float(len(completion[0]["content"]) % 3) for completion in completions]

    def parameters(plan: ChannelPlan | None) -> dict[str, Any]:
        torch.manual_seed(0)
        model, tokenizer = load(folder)
        config = GRPOConfig(
            output_dir=str(tmp_path / "out"), num_generations=4, per_device_train_batch_size=8, max_completion_length=8,
            learning_rate=1e-2, max_steps=3, report_to="none", use_cpu=True, save_strategy="no", beta=0.04, seed=5,
            disable_tqdm=True, lr_scheduler_type="constant", activation_checkpointing=False,
        )  # fmt: skip
        rows = [{"prompt": [{"role": "user", "content": row["prompt"]}]} for row in prompt_rows()]
        kind = GRPOTrainer if plan is None else make_channel_trainer(GRPOTrainer, plan)
        trainer: Any = kind(
            model=model.train(), reward_funcs=reward, args=config, train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
        )  # fmt: skip
        trainer.train()
        return {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters()}

    plain, null = parameters(None), parameters(ChannelPlan())
    assert all(torch.equal(plain[name], item) for name, item in null.items())
    ids = [1, 2, 3, 4]
    pair = ReferencePair(TokenSequence([*ids, 5, 6], 4), TokenSequence([*ids, 7], 4), -3.0, -2.0)
    moved = parameters(ChannelPlan(weights=Channels(dpo=0.5), pairs=[pair, pair]))
    assert not all(torch.equal(plain[name], item) for name, item in moved.items())


@pytest.mark.more
def test_an_interrupted_training_continues_to_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments: dict[str, Any] = {
        "channels": CHANNELS,
        "checkpoint_steps": 2,
        "epochs": 2,
        "batch_size": 8,
        "updates": 2,
    }
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    job = rollout_job(whole, "composer", **arguments)
    trained(job)

    judge = Rollouts.judge

    def dies(self: Rollouts, step: int, *rest: Any) -> None:
        if step == 5:
            raise SimulatedKill
        judge(self, step, *rest)

    monkeypatch.setattr(Rollouts, "judge", dies)
    other = rollout_job(broken, "composer", **arguments)
    with pytest.raises(SimulatedKill):
        trained(other)
    assert sorted(path.name for path in (other.folder / "trainer").glob("checkpoint-*")) == [
        "checkpoint-2",
        "checkpoint-4",
    ]
    monkeypatch.setattr(Rollouts, "judge", judge)
    facts = trained(other).facts
    assert facts["resumed_from"] == 4
    for name in ("rows", "rollouts", "kept"):
        assert (job.out / f"{name}.jsonl").read_bytes() == (other.out / f"{name}.jsonl").read_bytes(), name


def test_the_loss_of_trl_is_the_plain_one_in_value_and_gradient(tmp_path: Path) -> None:
    """Away from the weights that sampled, where ratios are clipped and the reference is another model."""
    import torch
    from datasets import Dataset
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    from testing.fixtures.tiny_training import tiny_checkpoint
    from training.engines.checkpoint import load
    from training.jobs.finetuning.online import losses

    model, tokenizer = load(tiny_checkpoint(tmp_path / "model"))
    config = GRPOConfig(
        output_dir=str(tmp_path / "out"), num_generations=2, per_device_train_batch_size=4, report_to="none",
        use_cpu=True, beta=0.3, epsilon=0.2, temperature=0.8, loss_type="dapo", activation_checkpointing=False,
        bf16=False,
    )  # fmt: skip
    rows = Dataset.from_list([{"prompt": [{"role": "user", "content": "a"}]}] * 4)

    def reward(completions: Any, **_: Any) -> Any:
        return [0.0] * len(completions)

    trainer: Any = GRPOTrainer(
        model=model.train(), reward_funcs=reward, args=config, train_dataset=rows, processing_class=tokenizer
    )
    trainer.current_gradient_accumulation_steps = 1
    made = torch.Generator().manual_seed(3)
    prompt, answer = (torch.randint(3, 250, (4, width), generator=made) for width in (5, 7))
    mask = (torch.arange(7) < torch.tensor([[7], [3], [1], [6]])).int()
    ids = torch.cat([prompt, answer], 1)
    whole = torch.cat([torch.ones_like(prompt), mask], 1)

    def logps() -> Any:
        logits = trainer.model(input_ids=ids, attention_mask=whole).logits[:, 4:-1] / 0.8
        return losses.log_probabilities(logits.flatten(0, 1), answer.flatten()).view(4, 7)

    now = logps().detach()
    shift = torch.randn(4, 7, generator=made) * 0.4
    old, reference, worth = now + shift, now - 0.7 * shift, torch.tensor([1.2, -0.8, 0.4, -1.5])
    inputs = {
        "prompt_ids": prompt, "prompt_mask": torch.ones_like(prompt), "completion_ids": answer, "advantages": worth,
        "completion_mask": mask, "num_items_in_batch": mask.sum(), "old_per_token_logps": old,
        "ref_per_token_logps": reference,
    }  # fmt: skip
    trainable = [parameter for parameter in trainer.model.parameters() if parameter.requires_grad]
    theirs = trainer._compute_loss(trainer.model, inputs)
    ours = losses.policy_loss(logps(), worth, mask, old=old, reference=reference, clip=0.2, kl_weight=0.3)
    assert theirs.item() == pytest.approx(ours.item(), rel=1e-5) and abs(ours.item()) > 0.01
    pairs = zip(torch.autograd.grad(theirs, trainable), torch.autograd.grad(ours, trainable), strict=True)
    assert all(
        float((tensor - other).abs().max()) <= 1e-5 * max(1.0, float(other.abs().max())) for tensor, other in pairs
    )
    other = losses.policy_loss(logps(), worth, mask, old=old, reference=reference, clip=0.9, kl_weight=0.3)
    assert other.item() != pytest.approx(theirs.item(), rel=1e-3)


@pytest.mark.more
def test_two_processes_leave_the_same_rows(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys, torch; from pathlib import Path\n"
        "from testing.fixtures.rollout_jobs import CHANNELS, rollout_job, trained\n"
        "torch.set_num_threads(1); trained(rollout_job(Path(sys.argv[1]), 'composer', channels=CHANNELS))\n"
    )
    for name in ("one", "two"):
        subprocess.run([sys.executable, "-c", code, str(tmp_path / name)], check=True, capture_output=True)
    for name in ("rows", "rollouts", "kept"):
        content, two = (
            (tmp_path / run_name / "job" / "out" / f"{name}.jsonl").read_bytes() for run_name in ("one", "two")
        )
        assert content == two and content, name


def test_hints_come_from_a_sibling_or_the_verifier() -> None:
    wrong, right = Judgement(False, "has a capital", (0, 1)), Judgement(True)
    late = [Judgement(False), Judgement(False), Judgement(False, "is late")]

    def make_hints(messages: list[Judgement], **arguments: Any) -> list[Hint | None]:
        return hints(["A", "b", "C"], messages, SelfDistillation.model_validate(arguments))

    judgements = [wrong, right, wrong]
    sibling = Hint("A right answer is:\nb")
    assert make_hints(judgements) == make_hints(judgements, feedback="both") == [sibling, None, sibling]
    assert [bool(hint) for hint in make_hints(judgements, feedback="sibling")] == [True, False, True]
    text = "This answer was wrong:\nA\nThe reason: it has a capital."
    assert make_hints(judgements, feedback="verifier")[:2] == [Hint(text), None]
    assert make_hints(late, feedback="sibling") == [None] * 3
    assert [bool(hint) for hint in make_hints(late)] == [False, False, True]
    # A reason that points at nothing teaches nothing where spans are learned from.
    assert make_hints(judgements, feedback="verifier", target="span")[:2] == [Hint(text, (0, 1)), None]
    assert make_hints(late, feedback="verifier", target="span") == [None] * 3


def test_a_span_of_characters_is_its_tokens() -> None:
    """Two tokens make one character, as of an emoji; the borders of words are not those of tokens."""
    parts = ["Hel", "lo", ", \u00e9", b"\xf0\x9f", b"\x98\x80", " end"]

    class Bytes:
        def decode(self, ids: list[int], **_: Any) -> str:
            joined = b"".join(part if isinstance(part, bytes) else part.encode() for part in (parts[n] for n in ids))
            return joined.decode(errors="replace")

    items: Any = ()
    made = Rollouts(ComposerParameters(), RolloutSource(items, "", Bytes(), (), None))
    ids = range(len(parts))
    text = Bytes().decode([*ids])
    assert text == "Hello, \u00e9\U0001f600 end"
    for words, tokens in [("H", (0, 1)), ("ello", (0, 2)), (",", (2, 3)), ("\U0001f600", (3, 5)), (text, (0, 6))]:
        begin = text.index(words)
        assert made._tokens_of((begin, begin + len(words)), ids, text) == tokens, words  # pyright: ignore[reportPrivateUsage]


def test_only_the_tokens_of_a_span_have_a_gradient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a witness that maps spans itself finds rows that name other tokens."""
    read: list[list[tuple[int, ...]]] = []
    reached: list[set[tuple[tuple[int, ...], int]]] = []
    """Of each pass: the tokens whose hidden states got a gradient, as an answer and a place in it."""

    def states(model: Any, sequences: Any) -> Any:
        read.append([tuple(sequence.response) for sequence in sequences])
        return hidden_states.states(model, sequences)

    def watched(student: Any, *rest: Any, **named: Any) -> Any:
        places = [(answer, n) for answer in read[-1] for n in range(len(answer))]

        def hear(gradient: Any) -> None:
            reached.append({places[n] for n in gradient.abs().sum(-1).nonzero().flatten().tolist()})

        student.register_hook(hear)
        return losses.divergence_in_pieces(student, *rest, **named)

    monkeypatch.setattr(channels, "states", states)
    monkeypatch.setattr(channels, "losses", SimpleNamespace(**vars(losses) | {"divergence_in_pieces": watched}))
    arguments = {"feedback": "verifier", "target": "span", "temperature": 2.0, "token_clip": 10.0}
    job = rollout_job(tmp_path, "sdpo", self_distillation=arguments, max_new_tokens=30, temperature=0.4)
    done = trained(job)
    assert done.effective["divergence"] == "jsd_at_temperature_2_clipped_at_10"
    rollouts = read_rows(job.out / "rollouts.jsonl", Rollout)
    assert any(
        item.span_tokens and item.span_tokens[1] - item.span_tokens[0] < len(item.answer_ids) for item in rollouts
    )
    expected: list[set[tuple[tuple[int, ...], int]]] = []
    for row in rows_of(job):
        places = set[tuple[tuple[int, ...], int]]()
        for rollout in rollouts:
            if rollout.step == row.step and rollout.hint:
                assert (
                    rollout.span and rollout.span_tokens and any(map(str.isupper, rollout.text[slice(*rollout.span)]))
                )
                ids = (*rollout.answer_ids, *([] if rollout.end_id is None else [rollout.end_id]))
                places |= {(ids, n) for n in range(*rollout.span_tokens)}
        expected += [places] if places else []
        assert row.channels["sdpo"].tokens == len(places)
    assert reached == expected and expected
    monkeypatch.undo()
    steps, _, _ = replayed(job)
    assert steps and [why for step in steps if (why := differs(rows_of(job), step, REPLAYED["float32"]))] == []
    path = job.out / "rollouts.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    moved = next(line for line in lines if line.get("span_tokens"))
    moved["span_tokens"][1] += 1
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(UnusableRow, match="name other tokens than those of their spans"):
        replay(witness_of(job))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"batch_size": 6}, "batch_size times gradient_accumulation is 6, not a multiple of generations"),
        ({"method": "lora", "lora_rank": 2, "lora_alpha": 2, "lora_dropout": 0.1, "target_modules": ("q",)}, "dropout"),
        ({"rewards": {"length": 0.0}}, "every reward has weight 0"),
        ({"rewards": {}}, "at least 1 item"),
        ({"updates": 2, "checkpoint_steps": 3}, "not a multiple of updates"),
        ({"updates": 2, "distributed": {"replicas": 2, "sync_every": 3}}, "sync_every 3 is not a multiple of updates"),
        ({"channels": {"grpo": 0.0}}, "every channel has weight 0"),
        ({"self_distillation": {"target": "span"}}, "target 'span' needs feedback 'verifier', not 'both'"),
        ({"channels": {"sdpo": 1.0}, "rewards": {"ended": 1.0}}, "'verified' is among the rewards"),
    ],
)
def test_parameters_that_fit_nothing_are_refused(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ComposerParameters.model_validate(arguments)
