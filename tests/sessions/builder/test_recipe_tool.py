"""The tool that hands a recipe in, and the launch that is asked for with its digest."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessions.session import Session
from testing.factories.benches import bench_of, call, new_session, open_stage
from testing.factories.bodies import append_json, body_of
from testing.factories.recipe_session import RECIPE

SCRIPT = "print('a look')\n"


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """A session in which the stage ``look`` is open."""
    session = new_session(tmp_path, *RECIPE)
    body = body_of("decision", stage="sample", attempt=1) | {"opens": {"stage": "look", "attempt": 1}}
    append_json(session.trail, "decision", "decision/sample.1", body)
    return session


def test_a_script_is_kept_and_its_digest_is_what_is_launched(session: Session) -> None:
    bench = bench_of(session, stage="look")
    result = call(bench, "write_recipe", script=SCRIPT)
    assert not result.is_error
    digest = result.text.split()[2].rstrip(";")
    assert session.store.get(digest) == SCRIPT.encode()
    assert not call(bench, "launch_stage", stage="look", reason="look first", code=digest).is_error
    assert bench.work.launch is not None and bench.work.launch.changes == {"code": digest}


def test_without_a_script_a_recipe_is_not_launched(session: Session) -> None:
    result = call(bench_of(session, stage="look"), "launch_stage", stage="look", reason="r")
    assert result.is_error and "none was handed in" in result.text


@pytest.mark.parametrize(("script", "why"), [("def (", "line 1"), ("# nothing", "no statement"), ("x" * 39_999, "")])
def test_what_is_no_script_is_refused_and_not_kept(session: Session, script: str, why: str) -> None:
    result = call(bench_of(session, stage="look"), "write_recipe", script=script)
    assert result.is_error and why in result.text


def test_other_stages_take_no_script(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    open_stage(session)
    bench = bench_of(session)
    assert "only stages of kind recipe" in call(bench, "write_recipe", script=SCRIPT).text
    code = "sha256:" + "0" * 64
    result = call(bench, "launch_stage", stage="sample", reason="r", code=code)
    assert result.is_error and "does not allow code" in result.text and bench.work.launch is None
