"""Jobs that move over `s3://`, on a real server of this machine: what only a folder and memory are asked elsewhere."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessions.jobs.engine_launcher import EngineLauncher, EngineUnavailable, key_of
from sessions.jobs.transfer import job_transfer
from sessions.jobs.transfer.job_transfer import Transfer
from sessions.jobs.transfer.shared_place import SharedPlace, table_of
from specs.jobs.job_records import JobOrder
from specs.system.digests import digest_path
from specs.system.errors import AuditDamage
from specs.system.resources import Resources
from testing.factories.sessions_on_disk import first_order
from testing.fixtures import s3_server
from testing.fixtures.houses import IMPATIENT, House, ended
from testing.fixtures.process_engine import ProcessEngine

pytestmark = [
    pytest.mark.integration,
    pytest.mark.nightly,
    pytest.mark.skipif(bool(s3_server.missing()), reason=s3_server.MISSING),
    # Of botocore and of the sockets that aiohttp leaves to the end of the process.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]
URL = f"s3://{s3_server.BUCKET}/of/a/workspace"


@pytest.fixture(scope="module")
def order(tmp_path_factory: pytest.TempPathFactory) -> JobOrder:
    session = tmp_path_factory.mktemp("session") / "run"
    order = first_order(session)
    inputs = {
        role: artifact.model_copy(update={"path": str(session / artifact.path)})
        for role, artifact in order.inputs.items()
    }
    return order.model_copy(update={"inputs": inputs})


@pytest.fixture(scope="module", autouse=True)
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, s3_server.running(tmp_path_factory.mktemp("s3"), patch) as address:
        yield address


def test_a_file_is_created_only_where_there_is_none() -> None:
    place = SharedPlace(URL)
    assert [place.create("jobs/k/claim.json", b"%d" % n) for n in range(4)] == [True, False, False, False]
    assert place.read("jobs/k/claim.json", 100) == b"0"
    # Another process, with nothing looked at before.
    code = (
        "import sys\nfrom sessions.jobs.transfer.shared_place import SharedPlace\n"
        "print(SharedPlace(sys.argv[1]).create('jobs/k/claim.json', b'x'))"
    )
    done = subprocess.run([sys.executable, "-c", code, URL], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False\n" and place.read("jobs/k/claim.json", 100) == b"0"


def test_processes_that_race_for_a_claim_leave_one_winner() -> None:
    code = (
        "import sys, time\nfrom sessions.jobs.transfer.shared_place import SharedPlace\n"
        "place = SharedPlace(sys.argv[1])\nplace.read('x', 1)\n"
        "time.sleep(max(0, float(sys.argv[2]) - time.time()))\n"
        "print(sum(place.create(f'claims/{n}', sys.argv[3].encode()) for n in range(30)))"
    )
    start = str(time.time() + 8)
    racing = [
        subprocess.Popen([sys.executable, "-c", code, URL, start, str(n)], stdout=subprocess.PIPE) for n in range(3)
    ]
    assert sum(int(process.communicate(timeout=120)[0]) for process in racing) == 30


def test_a_folder_goes_and_comes_back_and_changed_bytes_are_not_used(tmp_path: Path) -> None:
    place, source = SharedPlace(URL), tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "weights").write_bytes(b"w" * 9_000_000)
    (source / "config.json").write_text("{}")
    table = place.send_tree(source)
    place.take_tree(table, tmp_path / "back")
    assert digest_path(tmp_path / "back") == digest_path(source)
    # Broken off, and gone on with.
    again = tmp_path / "again" / "deep" / ".weights.part"
    again.parent.mkdir(parents=True)
    again.write_bytes(b"w" * 4_000_000)
    place.take_tree(table, tmp_path / "again")
    assert digest_path(tmp_path / "again") == digest_path(source)
    piece = table_of(source / "config.json").files[""]
    name = piece.digest.removeprefix("sha256:")
    place.write(f"blobs/{name[:2]}/{name[2:]}", b"[]")
    with pytest.raises(AuditDamage, match="the bytes under"):
        place.take(piece, tmp_path / "changed")
    place.send(source / "config.json", piece)
    place.take(piece, tmp_path / "changed")
    assert (tmp_path / "changed").read_text() == "{}"
    assert place.read("nowhere", 10) is None


def test_a_bucket_that_is_not_there_is_reported_and_not_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    for _ in range(2):
        place = SharedPlace("s3://no-such-bucket/x")
        with pytest.raises(EngineUnavailable, match="the place cannot be used: The specified bucket"):
            place.write("a", b"a")
        with pytest.raises(EngineUnavailable, match="the place cannot be used"):
            place.create("b", b"b")
        with pytest.raises(EngineUnavailable, match="the place cannot be used"):
            place.send_tree(tmp_path / "file")


def test_a_job_runs_elsewhere_and_comes_back_over_s3(
    tmp_path: Path, order: JobOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_transfer, "FETCH_EVERY_S", 0.5)
    monkeypatch.setenv("PEERGATE_JOB_ROOT", str(tmp_path / "elsewhere"))
    house = House("processes", tmp_path)
    leaves = (
        "import os, sys\nfrom pathlib import Path\nout = Path(sys.argv[1]) / 'out'\nout.mkdir()\n"
        "(out / 'rows.jsonl').write_text('{}\\n')\n(Path(sys.argv[1]) / 'manifest.json').write_text('{}')\n"
        "print(dict(os.environ))"
    )
    folder = house.job(order, leaves)
    engine = house.engine()
    assert isinstance(engine, ProcessEngine)
    launcher = EngineLauncher(engine, Transfer(SharedPlace(URL)), house.python, {**IMPATIENT, "exited": 20.0}, 0.5)
    launcher.start(folder)
    assert ended(launcher, folder, 120).code == 0
    assert (folder / "out" / "rows.jsonl").read_text() == "{}\n"
    # The place's credentials are for what brings things there, not for the job.
    assert "canary" not in (folder / "log.txt").read_text()
    house.wait()
    # A second machine finds the claim.
    engine.forget()
    argv = [house.python, "-P", "-m", "sessions.jobs.transfer.remote_entry", "--place", URL, key_of(folder)]
    engine.submit(key_of(folder), argv, Resources())
    house.wait()
    assert b"already claimed" in engine.logs(engine.find(key_of(folder)) or "")
