"""The environment of inspect_ai: found where it is named, made once where it is not, and never half made."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sessions.jobs.benchmarks import environment
from sessions.jobs.job_environment import job_environment
from sessions.runtime.preflight import require_packages
from sessions.runtime.wiring import require_machine
from specs.loading.loading import load_spec
from specs.session import needed_packages
from specs.system.errors import BlockedError
from specs.system.extras import install_hint
from specs.system.home import HOME

EXAMPLE = HOME / "docs" / "examples" / "opposites" / "spec.yaml"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEERGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(environment.VARIABLE, raising=False)


def test_a_missing_one_is_blocked_and_says_what_makes_it() -> None:
    with pytest.raises(BlockedError, match="not on this machine") as error:
        environment.find()
    assert "sessions.jobs.benchmarks.environment" in error.value.hint and environment.VARIABLE in error.value.hint


def test_a_named_interpreter_has_to_have_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(environment.VARIABLE, sys.executable)
    with pytest.raises(BlockedError, match="has no inspect_ai"):
        environment.find()
    monkeypatch.setenv(environment.VARIABLE, str(tmp_path / "nothing"))
    with pytest.raises(BlockedError, match="does not run"):
        environment.find()
    # Nothing is made where one is named.
    with pytest.raises(BlockedError, match="does not run"):
        environment.make(lambda _: pytest.fail("nothing is to be made"))


def test_one_that_could_not_be_made_is_not_ready(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wanted = tmp_path / "requirements.txt"
    wanted.write_text(f"inspect_ai==0.3.285 --hash=sha256:{'0' * 64}\n", encoding="utf-8")
    monkeypatch.setattr(environment, "REQUIREMENTS", wanted)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    messages: list[str] = []
    with pytest.raises(BlockedError, match="cannot be made"):
        environment.prepare(load_spec(EXAMPLE).spec, messages.append)
    assert len(messages) == 1 and "once: 1 pinned packages" in messages[0]
    with pytest.raises(BlockedError, match="not on this machine"):
        environment.find()


def test_a_session_without_such_a_stage_needs_none() -> None:
    spec = load_spec(HOME / "specs" / "library" / "demo.yaml").spec
    environment.prepare(spec, lambda _: pytest.fail("nothing is to be made"))


def _without_lm_eval(name: str) -> str | None:
    return None if name == "lm_eval" else name


def test_lm_eval_is_missing_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = load_spec(EXAMPLE.with_name("lm_eval.yaml")).spec
    for module in (environment, needed_packages):
        monkeypatch.setattr(module, "find_spec", _without_lm_eval)
    # One function asks for packages: a second list would differ from it before long.
    require_machine(spec)
    with pytest.raises(BlockedError, match="needs packages that are not installed: lm_eval") as error:
        require_packages(spec)
    assert error.value.hint == install_hint("lm-eval") and error.value.where == "before"
    require_packages(load_spec(EXAMPLE).spec)
    with pytest.raises(BlockedError, match="lm-eval is not installed in Peergate's environment"):
        environment.own("lm-eval")


def test_jobs_find_it_where_the_session_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.VARIABLE, "/somewhere/python")
    saved = job_environment()
    assert saved[environment.VARIABLE] == "/somewhere/python" and saved["PEERGATE_CACHE"]


def test_every_requirement_is_pinned_by_hashes() -> None:
    text = environment.REQUIREMENTS.read_text(encoding="utf-8")
    named = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert len(named) > 50 and all("==" in line for line in named)
    assert text.count("--hash=sha256:") > len(named)
    versions = {line.split("==")[0]: line.split("==")[1].split()[0] for line in named}
    assert tuple(map(int, versions["inspect-ai"].split("."))) >= environment.LEAST
