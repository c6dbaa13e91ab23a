"""`peergate spec` on specs that leave things out, as a person types it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from specs.schemas import schema_text
from specs.session.session_spec import SessionSpec
from specs.stages.registry import STAGE_KINDS
from specs.system.digests import digest_file
from specs.system.yaml.yaml_positions import read_yaml
from testing.factories.spec_files import items, write_spec
from testing.fixtures.command_sessions import called as peergate

HOME = Path(__file__).parents[3]


def test_the_resolved_form_has_the_seed_in_every_stage(tmp_path: Path) -> None:
    path = write_spec(tmp_path)
    text = path.read_text(encoding="utf-8").replace(", seed: 7}", "}").replace("  seeds: [7]\n", "")
    path.write_text(f"seed: 11\n{text}", encoding="utf-8")
    spec = json.loads(peergate("spec", "show", path, "--json").stdout)["resolved"]["spec"]
    assert spec["analysis"]["seeds"] == [11]
    assert [stage["parameters"]["seed"] for stage in spec["stages"]] == [11] * 5
    assert "seed" not in spec


def test_what_is_planned_fits_a_terminal() -> None:
    output = peergate("spec", "check", "demo").stdout
    assert "sft: " in output and "operations a token" in " ".join(output.split())
    assert max(map(len, output.splitlines())) <= 120, [line for line in output.splitlines() if len(line) > 120]


UNPINNED = ("heldout.jsonl\n  digest: HELDOUT", "heldout.jsonl")


def test_digests_are_shown_and_written_where_they_are_left_out(tmp_path: Path) -> None:
    path = write_spec(tmp_path, UNPINNED)
    text = digest_file(tmp_path / "heldout.jsonl")
    assert f"heldout.jsonl: {text}" in peergate("spec", "check", path).stdout
    assert json.loads(peergate("spec", "check", path, "--json").stdout)["digests"][""]["heldout"] == text
    done = peergate("spec", "pin", path)
    assert done.returncode == 0 and f"heldout: heldout.jsonl {text} (new)" in done.stdout
    (tmp_path / "heldout.jsonl").write_text(items("x", 3), encoding="utf-8")
    refused = peergate("spec", "check", path)
    assert refused.returncode == 2 and "`peergate spec pin` writes the new digest" in refused.stderr
    again = json.loads(peergate("spec", "pin", path, "--json").stdout)
    assert [item["before"] for item in again["pinned"]] == [text, digest_file(tmp_path / "prompts.jsonl")]
    assert peergate("spec", "check", path).returncode == 3, "three items find nothing"
    path.rename(tmp_path / "experiment.yaml")
    assert peergate("spec", "pin", cwd=tmp_path).stdout.count("(as it was)") == 2, "that of this folder"
    refused = peergate("spec", "pin", "demo", cwd=tmp_path)
    assert refused.returncode == 2 and "cannot be read" in refused.stderr, "no shipped spec is written to"


def test_pinning_what_is_no_spec_is_refused(tmp_path: Path) -> None:
    for name, content in (("list.yaml", "[1]"), ("none.yaml", None), ("broken.yaml", "a: {")):
        if content is not None:
            (tmp_path / name).write_text(content, encoding="utf-8")
        assert peergate("spec", "pin", tmp_path / name).returncode == 2


SHIPPED = sorted((HOME / "specs" / "library").glob("*.yaml"))
TEMPLATES = ["sft", "dpo", "script", "trl", "evaluate", "cai", "agent"]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_an_editor_finds_nothing_wrong_in_a_shipped_spec(path: Path) -> None:
    validator = Draft202012Validator(json.loads(schema_text(SessionSpec)))
    assert list(validator.iter_errors(read_yaml(path.read_bytes()).data)) == []


@pytest.mark.parametrize("template", TEMPLATES)
def test_an_editor_checks_what_init_writes_by_the_schema_next_to_it(template: str, tmp_path: Path) -> None:
    other = ("--against", "hub:owner/other") if template == "evaluate" else ()
    assert peergate("init", tmp_path / "x", "--template", template, *other).returncode == 0
    text = (tmp_path / "x" / "experiment.yaml").read_text(encoding="utf-8")
    named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", text)
    assert named is not None
    schema = (tmp_path / "x" / named[1]).read_text(encoding="utf-8")
    assert schema == schema_text(SessionSpec)
    validator = Draft202012Validator(json.loads(schema))
    assert list(validator.iter_errors(read_yaml(text.encode()).data)) == []
    # Misspelt at the top, in a stage, and among the parameters of its kind.
    for old, new in (
        ("objective:", "objectiv:"),
        ("kind: evaluate", "knd: evaluate"),
        ("max_new_tokens", "max_tokens"),
    ):
        assert list(validator.iter_errors(read_yaml(text.replace(old, new, 1).encode()).data)), new


def test_the_printed_schema_takes_what_the_loader_takes(tmp_path: Path) -> None:
    validator = Draft202012Validator(json.loads(peergate("spec", "schema").stdout))
    example = (HOME / "docs" / "examples" / "small.yaml").read_text(encoding="utf-8")
    assert not list(validator.iter_errors(read_yaml(example.encode()).data))
    for old, new in (("seed: 7", "seed: x"), ("seed: 7", "sead: 7"), ("alpha: 0.05", "alpha: 5")):
        assert list(validator.iter_errors(read_yaml(re.sub(old, new, example).encode()).data)), new


def test_a_stage_kind_is_shown_with_every_parameter_and_metric() -> None:
    printed = peergate("spec", "kinds", "sft")
    assert printed.returncode == 0 and "  learning_rate: number, >= 0, <= 1; default 2e-05\n" in printed.stdout
    assert "\nDistributedTraining:\n" in printed.stdout and "\n  loss_drop: " in printed.stdout
    facts = json.loads(peergate("spec", "kinds", "sft", "--json").stdout)["kinds"]
    assert list(facts) == ["sft"]
    kind = STAGE_KINDS["sft"]
    assert [field["name"] for field in facts["sft"]["parameters"]] == list(kind.parameters.model_fields)
    assert [metric["id"] for metric in facts["sft"]["definitions"]] == facts["sft"]["metrics"]


def test_an_unknown_stage_kind_is_refused() -> None:
    refused = peergate("spec", "kinds", "sftt")
    assert refused.returncode == 2 and "unknown stage kind 'sftt'" in refused.stderr
