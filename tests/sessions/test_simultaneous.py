"""Processes that make one folder at the same time: one of them does, the others say so, and nothing is damaged."""

from __future__ import annotations

import multiprocessing
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reviews.audit import audit_files
from reviews.audit.export import export_run, verify_export
from reviews.audit.verify import verify_run
from sessions.exports import formats
from sessions.pages.report.trail_page import trail_page
from sessions.run.final_model import copy_model
from sessions.run.pruning import prune
from sessions.runtime import registration
from specs.system.errors import UserError
from testing.factories.evidence_on_disk import resolved_spec
from testing.fixtures.quick_session import POWERED, ROOMY, code_now

PROCESSES = 6
FORK = multiprocessing.get_context("fork")


def together(make: Callable[[], object]) -> list[str]:
    """Do the same in several processes at once; return what each says, and "done" for one that did it."""
    barrier, queue = FORK.Barrier(PROCESSES), FORK.SimpleQueue()

    def work() -> None:
        barrier.wait()
        try:
            make()
            queue.put("done")
        except UserError as error:
            queue.put(f"refused: {error.message}")
        except BaseException as error:
            queue.put(f"{type(error).__name__}: {error}")

    processes = [FORK.Process(target=work) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    results = sorted(queue.get() for _ in processes)
    for process in processes:
        process.join()
    return results


def silent(_: str) -> None:
    """Say nothing."""


def make_start(_: Path, folder: Path) -> Callable[[], object]:
    resolved = resolved_spec(folder, POWERED, ROOMY)
    material, state = registration.material_of(folder / "spec.yaml", resolved), code_now()
    return lambda: registration.register(folder / "made", resolved, material, state)


def make_export(run: Path, folder: Path) -> Callable[[], object]:
    return lambda: export_run(run, "trail.sqlite", "store", folder / "made", trail_page)


def make_format(run: Path, folder: Path) -> Callable[[], object]:
    return lambda: formats.export("tensorboard", [run], folder / "made")


def make_copy(run: Path, folder: Path) -> Callable[[], object]:
    return lambda: copy_model(run, folder / "made", silent)


def verify_start(folder: Path) -> None:
    audit = verify_run(folder, "trail.sqlite", "store")
    # The trail was signed for the folder's name.
    assert audit.exit_code == 2 and audit.entries == 1, audit.damage


def verify_exported(folder: Path) -> None:
    assert verify_export(folder).damage == []


MAKERS: dict[str, tuple[Callable[[Path, Path], Callable[[], object]], Callable[[Path], None]]] = {
    "start": (make_start, verify_start),
    "audit export": (make_export, verify_exported),
    "export": (make_format, lambda folder: None),
    "get": (make_copy, lambda folder: None),
}


@pytest.mark.parametrize(
    "name", ["start", "audit export", *(pytest.param(name, marks=pytest.mark.more) for name in ("export", "get"))]
)
def test_one_process_makes_it_and_the_others_say_so(name: str, closed_quick: Path, tmp_path: Path) -> None:
    make, verify = MAKERS[name]
    messages = together(make(closed_quick, tmp_path))
    assert messages[0] == "done" and all("already" in line for line in messages[1:]), messages
    verify(tmp_path / "made")
    remaining = [path.name for path in tmp_path.iterdir() if path.name.endswith(".partial")]
    assert remaining == []


def test_no_folder_is_made_under_a_shared_name() -> None:
    """Anyone who makes a folder in one step does so by new_folder, whose names are its own."""
    root = Path(__file__).parents[2]
    shared = re.compile(r"""with_name\(f?["']\.\{[a-z_.]+\}\.(?:partial|opening)["']\)""")
    files = (
        path for package in ("sessions", "reviews", "specs", "training") for path in (root / package).rglob("*.py")
    )
    assert [path.name for path in files if shared.search(path.read_text(encoding="utf-8"))] == []


def test_a_prune_next_to_a_verification_is_no_damage(
    closed_quick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights are pruned when the files are about to be compared, then while one of them is read."""
    digest_path: Callable[[Path], str] = audit_files.digest_path
    for number, when in enumerate(("before the files", "while a file is read")):
        runs = shutil.copytree(closed_quick.parent, tmp_path / str(number))
        run, pruned = runs / closed_quick.name, threading.Event()

        def pruning(path: Path, run: Path = run, pruned: Any = pruned, when: str = when) -> str:
            if not pruned.is_set() and (when == "before the files" or "checkpoint" in path.name):
                pruned.set()
                prune(run, "ada", (), silent)
            return digest_path(path)

        monkeypatch.setattr(audit_files, "digest_path", pruning)
        audit = verify_run(run, "trail.sqlite", "store")
        assert pruned.is_set() and (audit.damage, audit.exit_code) == ([], 0)
        monkeypatch.setattr(audit_files, "digest_path", digest_path)
        # The control: what is gone without an entry is damage, however often one looks.
        shutil.rmtree(next((run / "jobs").glob("*/out")))
        assert verify_run(run, "trail.sqlite", "store").exit_code == 1
