"""What a job, a stranger's trail or a pod leaves in the place of a file: an output that was not left, or damage."""

from __future__ import annotations

import base64
import os
import shutil
import socket
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.attack.strangers import FOREIGN, SEALS
from reviews.audit.export import export_run, verify_export
from reviews.audit.verify import verify_run
from reviews.trail.file_seal import seal_path
from reviews.trail.tables.open_table import read_entries, read_trail
from reviews.trail.trail import Trail
from sessions.mcp.transports import parse_address
from sessions.nodes import job_end
from sessions.pages.report.trail_page import page_damage, trail_page
from sessions.pods import pull
from sessions.pods.pod_record import PodPlace
from specs.system.errors import AuditDamage, UserError
from testing.fixtures.quick_session import QuickLauncher, drive, open_quick, quick_session


def make_socket(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


def make_sparse(path: Path) -> None:
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(100 * 10**9)


PLANTED: dict[str, Callable[[Path], None]] = {
    "a link": lambda folder: (folder / "more").symlink_to("/etc/passwd"),
    "a link to a folder": lambda folder: (folder / "more").symlink_to("/etc", target_is_directory=True),
    "a broken link": lambda folder: (folder / "more").symlink_to("nowhere"),
    "a FIFO": lambda folder: os.mkfifo(folder / "more"),
    "a socket": lambda folder: make_socket(folder / "more"),
    "a FIFO in a folder": lambda folder: ((folder / "deep").mkdir(), os.mkfifo(folder / "deep" / "more"))[0],
}
FEW = ("a link", "a FIFO in a folder")
"""In `make test`; the others are in `make test-more`."""


class Planting(QuickLauncher):
    """Puts something into the checkpoint of the first training."""

    plant: Callable[[Path], None] | None = None
    where: str = "checkpoint"

    def start(self, folder: Path) -> None:
        super().start(folder)
        if folder.name == "small.train.1" and self.plant is not None:
            self.plant(folder / "out" / self.where)


@pytest.mark.parametrize(
    "planted", [name if name in FEW else pytest.param(name, marks=pytest.mark.more) for name in PLANTED]
)
def test_a_checkpoint_with_what_is_no_file_is_an_output_that_was_not_left(planted: str, tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    launcher = Planting()
    launcher.plant = PLANTED[planted]
    for _ in range(2):  # And again at every resume.
        drive(quick_session(run, launcher=launcher))
    ended = next(entry for entry in read_entries(run / "trail.sqlite") if entry.key == "exit/small.train.1")
    assert "checkpoint" not in ended.raw["outputs"] and "rows" in ended.raw["outputs"]
    assert verify_run(run, "trail.sqlite", "store").damage == []


def test_rows_of_100_gb_are_an_output_that_was_not_left(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    launcher = Planting()
    launcher.plant, launcher.where = make_sparse, "rows.jsonl"
    drive(quick_session(run, launcher=launcher))
    ended = next(entry for entry in read_entries(run / "trail.sqlite") if entry.key == "exit/small.train.1")
    assert "rows" not in ended.raw["outputs"]


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_trail_with_what_no_trail_has_is_damage_and_nothing_of_it_runs(
    foreign: str, closed_quick: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(closed_quick.parent, tmp_path / "runs") / closed_quick.name
    with sqlite3.connect(run / "trail.sqlite") as connection:
        connection.executescript(FOREIGN[foreign])
    connection.close()
    if foreign == "no trigger":
        assert verify_run(run, "trail.sqlite", "store").exit_code == 1, "the seal"
        return
    with pytest.raises(sqlite3.DatabaseError, match=r"no trail has|is not that of a trail"):
        read_trail(run / "trail.sqlite")
    with pytest.raises(AuditDamage):
        Trail(run / "trail.sqlite", run.name)
    audit = verify_run(run, "trail.sqlite", "store")
    assert audit.exit_code == 1 and "the database is damaged" in audit.damage[0]


@pytest.mark.parametrize("seal", SEALS)
def test_a_hostile_seal_is_unreadable_and_nothing_worse(seal: str, closed_quick: Path, tmp_path: Path) -> None:
    run = shutil.copytree(closed_quick.parent, tmp_path / "runs") / closed_quick.name
    seal_path(run / "trail.sqlite").write_bytes(SEALS[seal])
    assert verify_run(run, "trail.sqlite", "store").damage == ["seal: unreadable"]


SENT: dict[str, object] = {
    **{name: base64.b64encode(seal).decode() for name, seal in SEALS.items()},
    **{"no base64": "%%%", "half a group": "AAA", "no ASCII": "ä", "a number": 5, "texts": ["e30="], "none": None},
    "more than the limit": "A" * 4 * pull.MAX_SEAL,
}


@pytest.mark.parametrize(
    "sent", [name if name in ("no base64", "none") else pytest.param(name, marks=pytest.mark.more) for name in SENT]
)
def test_a_hostile_seal_of_a_pod_is_damage_and_nothing_worse(sent: str, closed_quick: Path, tmp_path: Path) -> None:
    place = PodPlace(tmp_path, "small")
    shutil.copytree(closed_quick, place.run)
    seal, data = seal_path(place.run / pull.TRAIL).read_bytes(), (place.run / pull.TRAIL).read_bytes()
    pull.keep_trail(place, data, base64.b64encode(seal).decode())
    assert pull.verify(place).damage == []
    pull.keep_trail(place, data, SENT[sent])
    (damage,) = pull.verify(place).damage
    assert damage in ("seal: unreadable", "seal: the session is closed but its seal is gone")


def test_a_manifest_above_its_limit_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = open_quick(tmp_path)
    monkeypatch.setattr(job_end, "MANIFEST_BYTES", 10)
    drive(quick_session(run))
    ended = next(entry for entry in read_entries(run / "trail.sqlite") if entry.kind == "exit")
    assert ended.raw["manifest"] is None and ended.raw["outputs"] == {}


def test_a_page_without_its_mark_is_damage(closed_quick: Path, tmp_path: Path) -> None:
    export_run(closed_quick, "trail.sqlite", "store", tmp_path / "export", trail_page)
    page = tmp_path / "export" / "report.html"
    assert page_damage(tmp_path / "export", []) == []
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace("page code", "page  code"), encoding="utf-8")
    assert "does not name the code that made it" in page_damage(tmp_path / "export", [])[0]
    notes: list[str] = []
    at = text.index("page code ") + len("page code ")
    page.write_text(text[:at] + "0" * 64 + text[at + 64 :], encoding="utf-8")
    assert page_damage(tmp_path / "export", notes) == [] and "another version" in notes[0]
    assert verify_export(tmp_path / "export").damage == []


@pytest.mark.parametrize(
    "address", ["0:0", "0:80", "0.0.0.0:0", "0.0:0", "0x0:0", "00:0", "000.0.0.0:1", "[::]:0", "[::0]:0", "[0::0]:0",
                "[0:0:0:0:0:0:0:0]:0", "*:0"],
)  # fmt: skip
def test_no_spelling_of_every_address_is_listened_at(address: str) -> None:
    with pytest.raises(UserError, match=r"would listen on every network|invalid address"):
        parse_address(address)


def test_an_address_of_this_machine_is_listened_at() -> None:
    assert parse_address("127.0.0.1:0") == ("127.0.0.1", 0) and parse_address("[::1]:1") == ("::1", 1)
