"""Critics on the real weights: batches over a shared beginning against one prompt at a time, in both prompt forms."""

from __future__ import annotations

from typing import Any

import pytest

from specs.stages.base.rubric import Rubric
from specs.stages.base.sampling import Form
from specs.stages.base.witness import LabelScores
from specs.stages.critique.parameters import CritiqueInstructionsParameters
from testing.fixtures.real_model import smollm2_checkpoint
from training.engines.checkpoint import load
from training.engines.label_scoring import encode_prompt, labels_of
from training.jobs.critique.critic import Critic
from training.rules.critique.subjects import Subject
from training.rules.rubric_prompts import prompts_of_instruction

pytestmark = [pytest.mark.integration, pytest.mark.model, pytest.mark.slow]
TEXTS = (
    "Name two rivers.",
    "Convert four meters to Fahrenheit.",
    "Sing.",
    "Explain in one sentence why the sea is salt.",
)
RUBRIC = Rubric(
    judges="instruction",
    good="it can be answered in words",
    bad="it makes no sense, or cannot be answered in words",
    head="Judge an instruction. Answer with one letter.\n{options}\nIf you are uncertain, answer {bad}.",
    item="Instruction: {instruction}\nLabel:",
)


@pytest.fixture(scope="module")
def loaded() -> tuple[Any, Any]:
    return load(smollm2_checkpoint())


def alone(model: Any, tokenizer: Any, prompt: str, form: Form) -> list[float]:
    import torch

    with torch.inference_mode():
        ids = torch.tensor([encode_prompt(tokenizer, prompt, form)])
        logs = torch.log_softmax(model(input_ids=ids, use_cache=False).logits[0, -1].float(), -1)
    return [float(logs[id]) for id in labels_of(tokenizer) if id is not None]


def forms(scores: LabelScores) -> list[float | None]:
    return [scores.a, scores.a_spaced, scores.b, scores.b_spaced]


@pytest.mark.parametrize("form", ["completion", pytest.param("chat", marks=pytest.mark.nightly)])
def test_batched_verdicts_are_those_of_one_prompt_at_a_time(loaded: tuple[Any, Any], form: Form) -> None:
    critic = Critic(*loaded, RUBRIC, CritiqueInstructionsParameters(batch_size=3), form)
    rows = critic.critiques([Subject(text, text, "any", None, text, None) for text in TEXTS])
    for row in rows:
        prompts = prompts_of_instruction(RUBRIC, row.instruction)
        for arrangement, prompt in ((row.plain, prompts.plain), (row.swapped, prompts.swapped)):
            expected = alone(*loaded, prompt, form)
            assert forms(arrangement.scores) == pytest.approx(expected, abs=1e-4)
            a_is_ahead = max(expected[:2]) > max(expected[2:])
            assert arrangement.good == (a_is_ahead == (arrangement.good_label == "A"))
    assert len({row.plain.scores.a for row in rows}) == len(TEXTS)
