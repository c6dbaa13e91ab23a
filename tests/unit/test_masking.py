"""What is masked, in every form of the planted set, and what is not: digests, settings and ordinary text."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from bench.attack.planted import Plants, squeezed
from specs import masking
from specs.masking import Masker, forms_only

PLANTS = Plants(3)
HOME = Path(__file__).parents[2]


@pytest.fixture
def masker() -> Masker:
    return Masker(PLANTS.environ, {PLANTS.bearer: "the bearer token"})


@pytest.mark.parametrize("planted", PLANTS.all, ids=lambda one: one.name)
def test_every_planted_form_is_masked(masker: Masker, planted: object) -> None:
    from bench.attack.planted import Planted

    assert isinstance(planted, Planted)
    for text in (planted.text, f"a line\n{planted.text}\nanother", f"({planted.text})"):
        assert planted.is_in(text, squeezed(text)), "it is not even planted"
        masked = masker.text(text)
        assert not planted.is_in(masked, squeezed(masked)), masked
        assert masker.text(masked) == masked
        assert masked.count("\n") == text.count("\n")
    for value in ({"note": planted.text}, [[planted.text]], {planted.text: 1}):
        told = json.dumps(masker.value(value))
        assert not planted.is_in(told, squeezed(told)), told
        told = masker.json(json.dumps(value))
        assert not planted.is_in(told, squeezed(told)), told
        assert json.loads(told) != value
