"""A profile changes values of a spec and keeps their places."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from sessions.commands.cli import app
from specs.loading.loading import list_profiles, load_spec
from specs.session.profiles import FIXED, FIXED_IN_STAGES, apply_profile
from specs.stages.evaluation.kinds import EVALUATE
from specs.system.errors import ExitCode, SpecError
from specs.system.yaml.yaml_positions import read_yaml
from testing.factories.spec_files import write_spec

PROFILES = """\
profile: cpu
profiles:
  cpu: {}
  gpu:
    budget: {max_cost_usd: 40, max_hours: 3}
    stages:
      train:
        parameters: {batch_size: 16}
        max_minutes: 45
"""


def with_profiles(folder: Path, profiles: str = PROFILES) -> Path:
    path = write_spec(folder)
    path.write_text(path.read_text(encoding="utf-8") + profiles, encoding="utf-8")
    return path


def test_a_profile_changes_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    path = with_profiles(tmp_path)
    own, other = load_spec(path).spec, load_spec(path, "gpu").spec
    assert (own.profile, other.profile) == ("cpu", "gpu")
    assert (other.budget.max_cost_usd, other.budget.max_hours) == (40, 3)
    assert other.budget.machine_usd_per_hour == own.budget.machine_usd_per_hour
    train = other.stage("train")
    assert (train.parameters.model_dump()["batch_size"], train.max_minutes) == (16, 45)
    assert train.parameters.model_dump()["learning_rate"] == 1e-5
    assert [stage for stage in other.stages if stage.name != "train"] == [
        stage for stage in own.stages if stage.name != "train"
    ]


def test_the_same_values_without_profiles_are_another_registration_only_by_the_name(tmp_path: Path) -> None:
    path = with_profiles(tmp_path)
    plain = tmp_path / "plain"
    plain.mkdir()
    own = load_spec(path, "cpu")
    assert own.spec.model_copy(update={"profile": None}) == load_spec(write_spec(plain)).spec


def test_a_resolved_spec_is_loaded_under_the_name_of_its_profile(tmp_path: Path) -> None:
    path = write_spec(tmp_path, ("name: small", "name: small\nprofile: gpu"))
    assert load_spec(path, "gpu").registration() == load_spec(path).registration()
    with pytest.raises(SpecError, match="the spec has no profiles, 'cpu' was asked for"):
        load_spec(path, "cpu")


@pytest.mark.parametrize(
    ("profiles", "message"),
    [
        ("profiles: {cpu: {}}\n", "1:1 profiles: no profile is chosen"),
        ("profiles: [cpu]\n", "1:1 profiles: must be a mapping"),
        ("profile: gpu\nprofiles: {cpu: {}}\n", "1:10 profile: unknown profile 'gpu'"),
        ("profile: [a]\nprofiles: {a: {}}\n", "1:1 profile: unknown profile '['a']'"),
        ("profile: a\nprofiles: {a: 3}\n", "2:15 profiles.a: must be a mapping"),
        ("profile: a\nprofiles: {a: {task: x}}\n", "2:22 profiles.a.task: a profile cannot change 'task'"),
        ("profile: a\nprofiles: {a: {stages: {trian: {}}}}\n", "2:25 profiles.a.stages.trian: unknown stage"),
        ("profile: a\nprofiles: {a: {stages: [1]}}\n", "2:16 profiles.a.stages: must be a mapping"),
        ("profile: a\nprofiles: {a: {stages: {train: 1}}}\n", "2:32 profiles.a.stages.train: must be a mapping"),
        ("profile: a\nprofiles: {a: {stages: {train: {kind: evaluate}}}}\n",
         "2:39 profiles.a.stages.train.kind: a profile cannot change the 'kind' of a stage"),
        # A value of the profile is told where it stands, under the key it has in the spec.
        ("profile: a\nprofiles: {a: {budget: {max_cost_usd: -1}}}\n",
         "2:39 budget.max_cost_usd: max_cost_usd must be above 0, got -1"),
        ("profile: a\nprofiles: {a: {stages: {train: {parameters: {learning_rate: 3}}}}}\n",
         "2:61 stages[2].parameters.learning_rate: stage 'train': learning_rate must be at most 1, got 3"),
        ("profile: a\nprofiles: {a: {bugdet: {}}}\n", "2:16 bugdet: unknown key 'bugdet'"),
        ("profile: a\nprofiles: {a: {stages: {train: null}}}\n",
         "2:32 profiles.a.stages.train: a profile cannot leave out a stage of kind sft"),
        # Left out, and still an arm of the analysis.
        ("profile: a\nprofiles: {a: {stages: {base: null}}}\n", "-42:13 analysis.baseline: unknown stage 'base'"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_profile_has_its_place(tmp_path: Path, profiles: str, message: str) -> None:
    path = with_profiles(tmp_path, profiles)
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    before = len(write_spec(tmp_path).read_text(encoding="utf-8").splitlines())
    lines = [
        f"{problem.line - before}:{problem.column} {problem.keys}: {problem.message}"
        for problem in caught.value.problems
    ]
    assert len(lines) == 1 and lines[0].startswith(message), lines


def test_a_mistake_the_profile_replaces_is_none(tmp_path: Path) -> None:
    path = write_spec(tmp_path, ("max_cost_usd: 10", "max_cost_usd: ten"))
    path.write_text(path.read_text() + "profile: a\nprofiles: {a: {budget: {max_cost_usd: 10}}}\n")
    assert load_spec(path).spec.budget.max_cost_usd == 10


EXTRA = """\
  - name: again
    kind: evaluate
    inputs: {model: model, items: heldout}
    parameters: {max_new_tokens: 32, seed: 7}

  - name: train
"""


def test_a_profile_leaves_out_what_only_measures_and_keeps_the_places_of_the_rest(tmp_path: Path) -> None:
    changes = "again: null, train: {parameters: {learning_rate: 2e-5}}, ship: {max_minutes: -1}"
    profiles = f"profile: cpu\nprofiles:\n  cpu: {{}}\n  few: {{stages: {{{changes.partition(', ship')[0]}}}}}\n"
    path = with_profiles(tmp_path, profiles)
    path.write_text(path.read_text(encoding="utf-8").replace("  - name: train\n", EXTRA), encoding="utf-8")
    whole, few = load_spec(path).spec, load_spec(path, "few").spec
    assert [stage.name for stage in whole.stages] == ["base", "sample", "again", "train", "tuned", "ship"]
    assert [stage.name for stage in few.stages] == ["base", "sample", "train", "tuned", "ship"]
    assert few.stage("train").parameters.model_dump()["learning_rate"] == 2e-5
    assert [stage for stage in few.stages if stage.name != "train"] == [
        stage for stage in whole.stages if stage.name not in ("again", "train")
    ]
    # A mistake in a stage behind it is told with its own line, in the spec and in the profile.
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("probe_items: 2", "probe_items: 0").replace(changes.partition(", ship")[0], changes))
    with pytest.raises(SpecError) as caught:
        load_spec(path, "few")
    lines = path.read_text(encoding="utf-8").splitlines()
    report = {problem.keys: lines[problem.line - 1][: problem.column + 14].strip() for problem in caught.value.problems}
    assert set(report) == {"stages[4].parameters.probe_items", "stages[4].max_minutes"}, report
    assert "probe_items" in report["stages[4].parameters.probe_items"] and "few" in report["stages[4].max_minutes"]
    path.write_text(text.replace("    kind: package\n", ""), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_spec(path, "few")
    (missing,) = caught.value.problems
    assert missing.keys == "stages[4].kind"
    assert "name: ship" in path.read_text(encoding="utf-8").splitlines()[missing.line - 1]


def test_every_profile_is_checked(tmp_path: Path) -> None:
    path = with_profiles(tmp_path, PROFILES + "  wrong: {budget: {max_hours: -1}}\n")
    assert list_profiles(path) == ("cpu", "gpu", "wrong")
    assert CliRunner().invoke(app, ["spec", "check", str(path), "--profile", "gpu"]).exit_code == ExitCode.REJECTED
    result = CliRunner().invoke(app, ["spec", "check", str(path), "--json"])
    assert result.exit_code == 2
    assert [
        path.read_text().splitlines()[problem["line"] - 1] for problem in json.loads(result.stdout)["problems"]
    ] == ["  wrong: {budget: {max_hours: -1}}"]
    good = CliRunner().invoke(app, ["spec", "check", str(with_profiles(tmp_path)), "--json"])
    assert set(json.loads(good.stdout)["registrations"]) == {"cpu", "gpu"}


def test_spec_show_shows_the_profile_that_was_asked_for(tmp_path: Path) -> None:
    path = with_profiles(tmp_path)
    result = CliRunner().invoke(app, ["spec", "show", str(path), "--profile", "gpu", "--json"])
    assert json.loads(result.stdout)["resolved"]["spec"]["budget"]["max_cost_usd"] == 40


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["a", "b"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b", "stages", "name"]), inner),
    max_leaves=8,
)


@given(own=st.dictionaries(st.sampled_from(["a", "b", "stages"]), json_values), changes=json_values)
def test_merging_never_fails_and_every_value_of_the_profile_has_its_place(
    own: dict[str, object], changes: object
) -> None:
    text = json.dumps(own | {"profile": "p", "profiles": {"p": changes}})
    document = read_yaml(text.encode())
    problems = apply_profile(document, None)
    if problems or not isinstance(changes, dict):
        return
    assert "profiles" not in document.data
    unmerged = read_yaml(text.encode())
    for key, value in changes.items():
        if key != "stages" and not isinstance(value, dict):
            assert document.data[key] == value
            assert document.place((key,)) == unmerged.place(("profiles", "p", key))


def test_the_fixed_keys_are_keys_of_a_spec() -> None:
    from specs.session.session_spec import SessionSpec

    assert set(FIXED) - {"profiles"} <= set(SessionSpec.model_fields)
    assert set(FIXED_IN_STAGES) <= set(EVALUATE.stage.model_fields)
