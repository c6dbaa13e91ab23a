"""`peergate review draft-spec`: what a model drafts is checked before it is shown, and sent back with what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reviews.requests.model_request import DRAFTS
from specs.loading.loading import load_spec
from testing.factories.evidence_on_disk import resolved_spec
from testing.fixtures.command_sessions import called
from testing.fixtures.loopback_api import ANTHROPIC, OPENAI, Api, answered, loopback_api

pytestmark = pytest.mark.integration

KEY = "sk-test-CANARY-that-must-never-be-written"
GOAL = "See whether training on its own accepted answers makes the model follow formats."
POWERED = ("  minimum_effect: 0.1\n", "  minimum_effect: 0.8\n")
FILES = ("--heldout", "heldout.jsonl", "--data", "prompts.jsonl", "--file", "constitution.yaml")


@pytest.fixture(params=[OPENAI, pytest.param(ANTHROPIC, marks=pytest.mark.more)])
def vendor(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def api() -> Iterator[Api]:
    with loopback_api() as running:
        yield running
        assert running.complaints() == []


@pytest.fixture
def spec(tmp_path: Path) -> str:
    resolved_spec(tmp_path, POWERED)
    path = tmp_path / "spec.yaml"
    text = path.read_text(encoding="utf-8")
    path.unlink()
    return text


def says(vendor: str, spec: str) -> Any:
    draft = {"reasoning": "One arm trains.", "assumptions": ["the split is fair"], "open_questions": [], "spec": spec}
    return answered(vendor, json.dumps(draft))


def peergate(here: Path, *arguments: str | Path, key: str = KEY) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if name not in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")}
    done = called(*arguments, cwd=here, env=own | ({"PEERGATE_REVIEWER_KEY": key} if key else {}))
    assert "Traceback" not in done.stderr and KEY not in done.stdout + done.stderr, done.stderr
    return done


def draft(here: Path, vendor: str, api: Api, *more: str) -> subprocess.CompletedProcess[str]:
    at = ("--vendor", vendor, "--model", "tiny", "--base-url", api.address, "--price-in", "1", "--price-out", "2")
    return peergate(here, "review", "draft-spec", GOAL, *at, *more)


def test_a_draft_with_problems_goes_back_until_it_has_none(tmp_path: Path, vendor: str, api: Api, spec: str) -> None:
    (tmp_path / "secret.jsonl").write_text('{"password": "open sesame"}\n', encoding="utf-8")
    wrong = spec.replace("kind: sft", "kind: stf")
    foreign = spec.replace("path: prompts.jsonl", "path: secret.jsonl")
    weak = spec.replace("minimum_effect: 0.8", "minimum_effect: 0.05")
    api.steps = [says(vendor, text) for text in (wrong, foreign, weak, spec)]
    done = draft(tmp_path, vendor, api, *FILES, "--out", "new.yaml")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "new.yaml").read_text(encoding="utf-8") == spec
    assert load_spec(tmp_path / "new.yaml").spec.name == "small"
    assert "asking" in done.stderr and "up to 450 s and 0.50 USD" in done.stderr
    assert "design gate: approve" in done.stderr and "assumed: the split is fair" in done.stderr
    bodies = [json.dumps(request.value(), ensure_ascii=False) for request in api.requests]
    assert "did you mean 'sft'" in bodies[1] and "line " in bodies[1]
    assert "the spec names what was not given: 'secret.jsonl'" in bodies[2]
    assert "power" in bodies[3] and "design gate: " in bodies[3]
    # Of held-out items columns alone, of files that were not given nothing.
    assert "Write one line on elm." not in bodies[3] and "sesame" not in bodies[3] and "Tell a short tale" in bodies[0]
    assert not list(tmp_path.glob(".peergate-draft*"))
    assert peergate(tmp_path, "audit", "verify", "runs/reviews").returncode == 0


def test_what_is_wrong_with_a_held_out_row_is_not_quoted(tmp_path: Path, api: Api, spec: str) -> None:
    rows = (tmp_path / "heldout.jsonl").read_text(encoding="utf-8")
    (tmp_path / "heldout.jsonl").write_text(rows.replace('"h1"', '"CANARY"').replace('"h2"', '"CANARY"'), "utf-8")
    api.steps = [says(OPENAI, spec)]
    assert draft(tmp_path, OPENAI, api, *FILES).returncode == 4
    output = json.dumps(api.requests[1].value())
    assert "heldout.jsonl, line 3: the row lacks the form" in output and "CANARY" not in output


@pytest.mark.more
def test_drafts_that_never_pass_are_not_shown(tmp_path: Path, api: Api, spec: str) -> None:
    api.steps = [says(OPENAI, spec.replace("kind: sft", "kind: stf"))]
    done = draft(tmp_path, OPENAI, api, *FILES, "--out", "new.yaml")
    assert done.returncode == 4 and not (tmp_path / "new.yaml").exists() and done.stdout == ""
    assert "the spec that was drafted has problems" in done.stderr and len(api.requests) == DRAFTS


@pytest.mark.more
@pytest.mark.parametrize("hidden", ["\u202e", "\u200b", "\u2066"])
def test_a_draft_that_a_terminal_would_show_otherwise_is_sent_back(
    hidden: str, tmp_path: Path, api: Api, spec: str
) -> None:
    api.steps = [says(OPENAI, f"# {hidden} 3 = sdeen ylno\n{spec}"), says(OPENAI, spec)]
    done = draft(tmp_path, OPENAI, api, *FILES)
    assert done.returncode == 0 and done.stdout == spec, done.stderr
    assert "characters that are not shown: " in json.dumps(api.requests[1].value())


@pytest.mark.parametrize("line", ["notify: [{to: 'https://example.org/hook'}]", "x: {base_url: 'http://127.0.0.1'}"])
def test_addresses_are_for_a_person(line: str, tmp_path: Path, api: Api, spec: str) -> None:
    api.steps = [says(OPENAI, f"{spec}\n{line}\n"), says(OPENAI, spec)]
    assert draft(tmp_path, OPENAI, api, *FILES).stdout == spec
    assert "which a person adds" in json.dumps(api.requests[1].value())


@pytest.mark.more
def test_the_same_goal_is_answered_from_the_record(tmp_path: Path, api: Api, spec: str) -> None:
    api.steps = [says(OPENAI, spec)]
    first, second = (draft(tmp_path, OPENAI, api, *FILES) for _ in range(2))
    assert first.stdout == second.stdout == spec and len(api.requests) == 1
    assert "the same was asked before" in second.stderr and "design gate: approve" in second.stderr


def test_without_a_model_or_its_key_one_clear_message(tmp_path: Path, spec: str) -> None:
    done = peergate(tmp_path, "review", "draft-spec", GOAL)
    assert done.returncode == 2 and "rules cannot draft a spec" in done.stderr and "--vendor and --model" in done.stderr
    done = peergate(tmp_path, "review", "draft-spec", GOAL, "--vendor", "openai", "--model", "gpt-5-mini", key="")
    assert done.returncode == 2 and "OPENAI_API_KEY is not set" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_files_outside_of_the_specs_folder_are_refused(tmp_path: Path, api: Api, spec: str) -> None:
    (tmp_path / "inner").mkdir()
    done = draft(tmp_path, OPENAI, api, "--data", "prompts.jsonl", "--out", "inner/new.yaml")
    assert done.returncode == 2 and "lies outside of" in done.stderr and api.requests == []
