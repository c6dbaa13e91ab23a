"""Labelled work of other people is read in both layouts, and counted with intervals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.scripts import describe, is_flagged, load_labelled
from specs.system.errors import UserError
from specs.system.vendors.parties import ReviewerSpec


def test_an_answer_key_and_labelled_projects_are_read(tmp_path: Path) -> None:
    trap, pitfalls = tmp_path / "trap", tmp_path / "pitfalls"
    (trap / "audit_scripts").mkdir(parents=True)
    (trap / "audit_answer_key").mkdir()
    labels = {"script_02.py": {"is_flawed": False, "category": "P-hacking"}}
    labels["script_01.py"] = {"is_flawed": True, "category": "Data leakage"}
    (trap / "audit_answer_key" / "answer_key.json").write_text(json.dumps(labels), encoding="utf-8")
    works = load_labelled(trap)
    assert [(work.path.name, work.is_flawed) for work in works] == [("script_01.py", True), ("script_02.py", False)]
    for name in ("True_1", "False_1", "readme_x"):
        (pitfalls / "pitfall_detection" / "DataLeakage" / "projects" / name / "src").mkdir(parents=True)
    works = load_labelled(pitfalls)
    assert [(work.path.name, work.category, work.is_flawed) for work in works] == [
        ("False_1", "DataLeakage", False),
        ("True_1", "DataLeakage", True),
    ]
    lines = list(describe([(works[0], None), (works[1], True)]))
    assert "flawed: 1 of 1 flagged [21%, 100%]  sound: not judged" in lines[-1]
    with pytest.raises(UserError, match="neither an answer key"):
        load_labelled(tmp_path)


def test_a_script_is_reviewed_and_never_run(tmp_path: Path) -> None:
    (tmp_path / "audit_scripts").mkdir()
    script = tmp_path / "audit_scripts" / "script_01.py"
    script.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nprint(1)\n", encoding="utf-8")
    (tmp_path / "audit_answer_key").mkdir()
    labels = {"script_01.py": {"is_flawed": True, "category": "Data leakage"}}
    (tmp_path / "audit_answer_key" / "answer_key.json").write_text(json.dumps(labels), encoding="utf-8")
    (work,) = load_labelled(tmp_path)
    assert is_flagged(work, "code", ReviewerSpec(), tmp_path / "runs") is False
    assert not (tmp_path / "ran").exists()
