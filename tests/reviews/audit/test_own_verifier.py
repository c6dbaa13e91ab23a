"""Where the verifier of a session cannot be confined, its decisions are not derived again, and nothing is damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from reviews.audit import recompute
from specs.loading.loading import load_spec
from specs.system.confinement import bubblewrap, verifier_process
from testing.factories.task_files import GOOD, spec_with
from testing.fixtures.sandbox import needs_sandbox


@needs_sandbox
def test_a_machine_without_a_sandbox_derives_nothing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cannot_judge = getattr(recompute, "_cannot_judge")  # noqa: B009
    spec = load_spec(spec_with(tmp_path, GOOD))
    assert cannot_judge(spec) == ""
    verifier_process.end_all()
    monkeypatch.setattr(bubblewrap, "this_host", lambda: None)
    assert "a task whose verifier would run without a sandbox: bubblewrap" in cannot_judge(spec)
    assert cannot_judge(load_spec(spec_with(tmp_path, GOOD, ("objective", "objective")))) == ""
