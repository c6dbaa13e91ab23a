"""The sentinels on real weights: an instruct model trips them with its template, and less so as bare text."""

from __future__ import annotations

from pathlib import Path

import pytest

from reviews.stages.generation.base_model_check import count_followed_commands, encoding_fault
from specs.session.thresholds import Thresholds
from specs.stages.base.sampling import SHOTS
from specs.stages.generation.parameters import BaseModelCheckParameters, SampleResponsesParameters
from specs.stages.generation.rows import BaseModelCheckRow
from testing.fixtures.real_model import smollm2_checkpoint
from training.engines.checkpoint import load
from training.engines.engine import BatchedEngine
from training.engines.token_sampling import TokenSampling
from training.jobs.generation.base_model_check import rows_of
from training.rules.prompt_encoding import prompt_ids
from training.rules.prompt_text import answer_prompt

pytestmark = [pytest.mark.integration, pytest.mark.model, pytest.mark.slow]


@pytest.fixture(scope="module")
def checkpoint() -> Path:
    return smollm2_checkpoint()


@pytest.fixture(scope="module")
def rows(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> list[BaseModelCheckRow]:
    scratch = tmp_path_factory.mktemp("scratch")
    return rows_of(checkpoint, "control", BaseModelCheckParameters(max_new_tokens=30), scratch)[0]


def test_an_instruct_model_trips_the_sentinels_with_its_template(rows: list[BaseModelCheckRow]) -> None:
    met, of = count_followed_commands([row for row in rows if row.form == "chat"])
    assert met / of >= Thresholds().control_follows
    bare, _ = count_followed_commands([row for row in rows if row.form == "completion"])
    assert bare < met


def test_its_bare_prompts_are_encoded_as_they_are_and_templated_ones_are_not(rows: list[BaseModelCheckRow]) -> None:
    # The last of these is what would show a template that was forced in.
    assert [encoding_fault(row) for row in rows if row.form == "completion"] == [""] * 13
    assert all(encoding_fault(row) for row in rows if row.form == "chat")


def test_worked_pairs_and_stops_end_answers_where_they_should(checkpoint: Path) -> None:
    model, tokenizer = load(checkpoint)
    stops = SampleResponsesParameters().stops
    texts = [answer_prompt(text, SHOTS, "completion") for text in ("Name a sea.", "Say what a bee does.")]
    prompts = [prompt_ids(tokenizer, text, "completion").ids for text in texts]
    outputs = BatchedEngine(model, tokenizer, 2).complete(prompts, TokenSampling(40, stops=stops, keep_special=True))
    for (output,) in outputs:
        assert output.finish == "stop" and output.stop in stops
        assert output.text.strip() and not any(stop in output.text for stop in stops)
