from __future__ import annotations

import signal
from pathlib import Path

import pytest

from testing.fixtures.command_sessions import (
    FEWER,
    has_progress,
    kill,
    peergate,
    start_in_background,
    wait_for,
    write_small_spec,
)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small session that ran from start to close without a hitch."""
    folder = tmp_path_factory.mktemp("finished")
    done = peergate("start", write_small_spec(folder / "spec", *FEWER, topics=4), "--runs", folder / "runs")
    assert done.returncode == 0, done.stderr
    (folder / "stdout").write_text(done.stdout, encoding="utf-8")
    (folder / "stderr").write_text(done.stderr, encoding="utf-8")
    return folder / "runs" / "small"


@pytest.fixture(scope="session")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session that was paused with Ctrl-C while sampling, killed in mid-training, and resumed to its end."""
    folder = tmp_path_factory.mktemp("killed")
    run = folder / "runs" / "small"
    first = start_in_background("start", write_small_spec(folder / "spec", *FEWER, topics=4), "--runs", folder / "runs")
    wait_for(lambda: has_progress(run, "sample"))
    first.send_signal(signal.SIGINT)
    assert first.wait(300) == 130
    second = start_in_background("resume", "small", "--runs", folder / "runs")
    wait_for(lambda: has_progress(run, "train"))
    kill(second)
    done = peergate("resume", "small", "--runs", folder / "runs")
    assert done.returncode == 0, done.stderr
    return run
