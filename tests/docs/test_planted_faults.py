"""Decision 128 names, for each planted fault, a check or rule and a test: all of them are there."""

from __future__ import annotations

import re
from pathlib import Path

from reviews.gate.check_list import CHECKS
from sessions.diagnosis.causes import DETECTORS
from testing.factories.mutated_checkpoints import MUTATIONS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "decisions" / "0128-which-check-finds-which-fault.md").read_text(encoding="utf-8")
TRAININGS = re.findall(r"^\| ([^|]+) \| `([a-z.]+)` \| `(test_\w+)` \|$", PAGE, re.MULTILINE)
CHECKPOINTS = re.findall(r"^\| ([^|]+) \| `([a-z_.]+)` \|$", PAGE, re.MULTILINE)


def test_each_planted_fault_of_a_training_has_its_check_and_its_test() -> None:
    folder = ROOT / "tests" / "stages" / "finetuning"
    texts = {path: path.read_text(encoding="utf-8") for path in folder.rglob("test_*.py")}
    known = {one.id for one in CHECKS}
    assert len(TRAININGS) >= 24
    for fault, check, test in TRAININGS:
        assert check in known and check in DETECTORS, fault
        holding = [each for each in texts.values() if f"def {test}(" in each]
        # A job that ends itself leaves no gate to ask; everything else is asserted by the id of the check.
        assert holding and (check == "jobs.exit" or any(f'"{check}"' in each for each in holding)), fault


def test_each_mutation_of_a_checkpoint_has_its_rule() -> None:
    assert len(CHECKPOINTS) >= 17
    for fault, rule in CHECKPOINTS:
        assert rule in MUTATIONS[fault].found, fault
