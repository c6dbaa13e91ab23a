"""The pages on reviewers say what the code does: their examples load, their table of efforts is the one in force."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reviews.reviewers.vendors.review_model import MOST_OUTPUT_TOKENS
from specs.lint.party_rules import LATENCY_S
from specs.system.vendors.api_keys import ENDPOINT_KEYS, KEYS
from specs.system.vendors.parties import Efforts, ReviewerSpec
from testing.factories.spec_files import loads, write_spec

DOCS = Path(__file__).parents[2] / "docs" / "how-to"
PAGE = (DOCS / "model-reviewers.md").read_text(encoding="utf-8")
SPECS = (DOCS / "write-a-spec.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(reviewer:.*?)```", PAGE + SPECS, re.DOTALL)


def loaded(folder: Path, example: str) -> Efforts:
    changes = (("reviewer: {vendor: checklist}\n", example), ("review: 0.05", "review: 0.3"))
    return loads(write_spec(folder, *changes)).spec.reviewer.effort


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 3


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_loads(tmp_path: Path, example: str) -> None:
    loaded(tmp_path, example)


def test_the_example_of_a_spec_states_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    stated = loaded(tmp_path, EXAMPLES[-1])
    assert stated == loaded(tmp_path / "bare", "reviewer: {vendor: openai, model: gpt-5.4}\n")


def test_the_table_of_efforts_is_the_one_in_force() -> None:
    efforts = Efforts()
    for tier in Efforts.model_fields:
        effort = getattr(efforts, tier)
        numbers = f"{LATENCY_S[tier]} s | {effort.timeout_s:g} | {effort.max_cost_usd:.2f}"
        assert f"| `{tier}` | {tier} | {numbers} |" in PAGE


def test_names_and_numbers_are_those_of_the_code() -> None:
    for name in (*KEYS.values(), ENDPOINT_KEYS["reviewer"]):
        assert f"`{name}`" in PAGE and f"`{name}`" in SPECS
    minutes = ReviewerSpec(vendor="openai", model="m").outage_s / 60
    assert f"within `outage_s` ({minutes:g} minutes)" in PAGE and f"{MOST_OUTPUT_TOKENS:,} tokens" in PAGE
    for tier, seconds in LATENCY_S.items():
        assert re.search(rf"{tier} {seconds}", SPECS.replace("\n", " "))
