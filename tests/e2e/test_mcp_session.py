"""A session on real weights whose builder is a real MCP client process away, over stdio."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testing.fixtures.command_sessions import entries, verify, write_small_spec
from testing.fixtures.mcp_client import REAL, over_stdio, take_through

SMALLER = (
    ("budget: {max_cost_usd", "builder: {vendor: external}\nbudget: {max_cost_usd"),
    ("{samples_per_prompt: 2, ", "{samples_per_prompt: 1, "),
    ("samples_per_prompt: {min: 2", "samples_per_prompt: {min: 1"),
    ("at_least: 33}   # 16 prompts: out of reach with 2 samples each, so the gate revises", "at_least: 17}"),
)
"""Half the samples, and a criterion that one sample for each of the 16 prompts cannot meet."""


@pytest.mark.model
@pytest.mark.slow
def test_a_client_over_stdio_builds_a_session_to_its_accepted_end(tmp_path: Path) -> None:
    spec, runs = write_small_spec(tmp_path / "spec", *SMALLER), tmp_path / "runs"
    with over_stdio(spec, runs, REAL) as driver:
        assert "stage 'sample'" in take_through(driver, "before").then
        sent_back = take_through(driver, "sample")
        assert "stage 'sample' (generate), attempt 2" in sent_back.then
        brief = driver.call("brief").text
        required = re.search(r"sent attempt 1 back \(revise\)\. Required changes: samples_per_prompt = (\d)", brief)
        assert required is not None, brief
        changes = {"samples_per_prompt": int(required[1])}
        launched = driver.call("launch_stage", stage="sample", changes=changes, reason="required by the gate")
        assert not launched.is_error, launched
        while "phase 'watch'" in launched.then:
            launched = driver.call("job_status", wait_seconds=1800)
        # A claim that the rows contradict comes back; the true one is taken.
        wrong = driver.call("submit_stage", claims=[{"stage": "sample", "metric": "samples", "value": 1000}])
        assert wrong.is_error and "contradicted" in wrong.text
        assert "stage 'train'" in driver.call("submit_stage").then
        last = take_through(driver, "train", "after", "ship")
        assert last.then.startswith("the session is closed, approve: accepted"), last
    run = runs / "small"
    assert entries(run)[-1].raw["decision"] == "approve"
    assert len(entries(run, "launch")) == 6
    code, answer = verify(run)
    assert (code, answer["verdict"]) == (0, "verified"), answer
