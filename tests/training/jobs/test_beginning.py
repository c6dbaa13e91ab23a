"""Inputs are digested while a job imports its libraries, and compared before a job or a witness does anything."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from specs.jobs.job_records import WITNESS, Challenge
from specs.system.digests import digest_path
from testing.factories.sessions_on_disk import first_order
from training.jobs import job
from training.jobs.witness import witness

WAIT_S = 5


class Worked(Exception):
    """The stage's own function was called."""


def works(_: job.Job) -> None:
    raise Worked


Begin = Callable[[bool, bytes], None]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Return what begins the small session's first job, or its witness, on weights that are on disk by then."""
    importing = Event()

    def slowly(path: Path) -> str:
        """Digest a file only once the imports have begun, and be late with it."""
        assert importing.wait(WAIT_S), "no library was imported while the inputs were digested"
        time.sleep(0.2)
        return digest_path(path)

    monkeypatch.setattr("specs.system.digests.digest_path", slowly)
    monkeypatch.setattr(job, "import_libraries", importing.set)
    monkeypatch.setattr("training.jobs.evaluation.evaluate.evaluate", works)
    monkeypatch.setattr(witness, "bear_witness", works)

    def begun(witnessing: bool, weights: bytes) -> None:
        order = first_order(tmp_path)
        if witnessing:
            challenge = Challenge(ended=order.code, of=0, rows=())
            order = order.model_copy(update={"key": order.key + WITNESS, "challenge": challenge})
        folder = tmp_path / "jobs" / order.key
        (folder / "claim").mkdir(parents=True)
        (folder / "order.json").write_bytes(order.canonical())
        (folder / "claim" / "claim.json").write_text(json.dumps({"key": order.key, "pid": os.getppid()}))
        (tmp_path / "model.bin").write_bytes(weights)
        monkeypatch.setattr(sys, "argv", ["training.jobs", str(folder)])
        job.main()

    return begun


@pytest.mark.parametrize("witnessing", [False, True], ids=["job", "witness"])
def test_granted_inputs_are_digested_next_to_the_imports(begin: Begin, witnessing: bool) -> None:
    with pytest.raises(Worked):
        begin(witnessing, b"model")


@pytest.mark.parametrize("witnessing", [False, True], ids=["job", "witness"])
def test_other_weights_are_refused_before_any_work(
    begin: Begin, witnessing: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        begin(witnessing, b"other weights")
    assert caught.value.code == 4
    assert "refused: small.base.1" in (output := capsys.readouterr().err) and "input 'model' is sha256:" in output
    (folder,) = (tmp_path / "jobs").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["claim", "order.json"]
