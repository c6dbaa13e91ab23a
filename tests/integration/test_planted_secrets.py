"""A part of the planted set goes through whole sessions; ``python -m bench.attack --family secrets`` has all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.attack.secrets import run_in_process
from specs.masking import Masker


def test_planted_secrets_are_nowhere_in_what_a_session_leaves(tmp_path: Path) -> None:
    outcome = run_in_process(1, tmp_path, 9)
    assert outcome.missed == [] and outcome.attempts > 40


def test_the_attack_reports_what_is_left_when_nothing_is_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Masker, "_spans", lambda self, text: [])  # pyright: ignore[reportUnknownLambdaType,reportUnknownArgumentType]
    missed = "\n".join(run_in_process(1, tmp_path, 19).missed)
    for area in ("trail", "store", "run folder", "transcript", "terminal"):
        assert f"is in the {area}" in missed, area
