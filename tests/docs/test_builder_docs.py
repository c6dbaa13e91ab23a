"""The page on builders says what the code does: examples load, names and numbers are those in force."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agents.conversation import SHORT, SIZES
from agents.turn_model import LONGEST_WAIT_S
from specs.system.vendors.api_keys import ENDPOINT_KEYS, KEYS
from specs.system.vendors.http_exchange import RETRIES
from testing.factories.spec_files import loads, write_spec

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "model-builders.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(builder:.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_loads(tmp_path: Path, example: str) -> None:
    assert loads(write_spec(tmp_path, ("builder: {vendor: playbook}\n", example))).spec.builder.asks_a_model


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 2


def test_names_and_numbers_are_those_of_the_code() -> None:
    assert all(f"`{name}`" in PAGE for name in (*KEYS.values(), ENDPOINT_KEYS["builder"]))
    assert f"{RETRIES} times at most" in PAGE and LONGEST_WAIT_S == 60 and "at most a minute" in PAGE
    assert f"{SIZES[0].results:,} characters" in PAGE and SIZES[0].recent_turns == 4 and "newest four turns" in PAGE
    assert f"up to {SHORT} characters" in PAGE
