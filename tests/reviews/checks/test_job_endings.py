"""A job that broke has the cause that its log names, and a remedy for that and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from reviews.checks.job_endings import Ending, ending_of, ending_of_check, log_lines
from reviews.checks.remedies import remedy_of_result
from sessions.exports.shipping import reload_check
from sessions.exports.shipping.reload_check import ReloadProbe
from sessions.pages.diagnosis.causes import detector_of
from sessions.pages.diagnosis.five_whys import _explain_check  # pyright: ignore[reportPrivateUsage]
from specs.system.extras import extra_with
from specs.trail.verdict import CheckResult
from training.rules.packaging.flaw import NotRun

LOGS = {
    "package": (
        "ModuleNotFoundError: No module named 'bitsandbytes'",
        "importlib.metadata.PackageNotFoundError: No package metadata was found for bitsandbytes",
        "ImportError: Using `bitsandbytes` 4-bit quantization requires bitsandbytes: `pip install -U bitsandbytes`",
        "bash: nvcc: command not found",
    ),
    "memory": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
        "MemoryError",
        "Killed: out of memory",
    ),
    "disk": ("OSError: [Errno 28] No space left on device", "OSError: [Errno 122] Disk quota exceeded"),
    "option": (
        "NotAsGranted: precision bf16 is not that of this card",
        "refused: warmup_ratio is not an option of this trainer",
        "TypeError: SFTConfig.__init__() got an unexpected keyword argument 'max_seq_len'",
        "train.py: error: unrecognized arguments: --fast",
    ),
    "diverged": ("Diverged: the loss of step 3 is nan",),
    "network": ("requests.exceptions.ConnectionError: Max retries exceeded with url",),
    "unknown": ("Segmentation fault", ""),
}


@pytest.mark.parametrize("name", LOGS)
def test_the_last_line_that_says_something_names_the_cause(name: str) -> None:
    for line in LOGS[name]:
        ending = ending_of("exited", f"loading\n{line}\n")
        assert ending.name == name, line
        assert ("batch_size" in ending.remedy) == (name == "memory"), "no smaller batch for anything else"


def test_what_came_before_does_not_count() -> None:
    log = "warning: No module named 'flash_attn'\ntorch.OutOfMemoryError: CUDA out of memory"
    assert ending_of("exited", log).name == "memory"


@pytest.mark.parametrize(("how", "name"), [("killed", "killed"), ("timeout", "time"), ("dead_man", "away")])
def test_how_it_ended_counts_without_a_log(how: str, name: str) -> None:
    assert ending_of(how, "").name == name


def broken(log: str, detail: str = "the job ended with code 1") -> CheckResult:
    lines = tuple({"log": line} for line in log.splitlines())
    return CheckResult(id="jobs.exit", title="t", status="FAIL", blocking=True, detail=detail, rows=lines)


def test_a_diagnosis_quotes_the_log_and_never_advises_a_smaller_batch_for_a_missing_package() -> None:
    check = broken("Traceback (most recent call last):\nModuleNotFoundError: No module named 'bitsandbytes'")
    remedy = remedy_of_result(check)
    assert "peergate[qlora]" in remedy and "batch" not in remedy
    assert detector_of(check).parameters == (), "nothing that was granted explains it"
    assert "its log ends: ModuleNotFoundError: No module named 'bitsandbytes'" in _explain_check(check).description
    assert log_lines(check)[-1].startswith("ModuleNotFoundError")
    memory = broken("torch.OutOfMemoryError: CUDA out of memory")
    assert "batch_size" in detector_of(memory).parameters and "batch_size" in remedy_of_result(memory)
    assert detector_of(broken("Diverged: the loss of step 3 is nan")).cause == "optimisation"
    assert ending_of_check(broken("", "the job was killed by SIGKILL; its processes held up to 9 MB")).name == "killed"


@pytest.mark.parametrize(
    ("package", "extra"),
    [("bitsandbytes", "qlora"), ("torch", "train"), ("cyllama", "gguf"), ("gguf", "gguf"), ("einops", None)],
)
def test_a_missing_package_is_installed_with_the_extra_that_brings_it(package: str, extra: str | None) -> None:
    assert extra_with(package) == extra


def test_a_missing_package_of_a_child_says_nothing_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = tmp_path / "python"
    child.touch(0o755)
    monkeypatch.setattr(sys, "executable", str(child))
    monkeypatch.setattr(reload_check, "is_installed", lambda: True)
    for end, why in (("echo \"No module named 'cyllama'\"\nexit 1", "'cyllama' is missing"), ("kill -9 $$", "killed")):
        child.write_text(f"#!/bin/sh\n{end}\n", encoding="utf-8")
        with pytest.raises(NotRun, match=why):
            ReloadProbe(tmp_path, tmp_path).answers("first")
    child.write_text("#!/bin/sh\necho 'ValueError: the file is broken'\nexit 1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="the file is broken"):
        ReloadProbe(tmp_path, tmp_path).answers("first")


def test_every_ending_has_words_and_a_remedy() -> None:
    endings: list[Ending] = [ending_of("exited", lines[0]) for lines in LOGS.values()]
    assert all(ending.remedy for ending in endings)
