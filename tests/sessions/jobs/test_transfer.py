"""Jobs without a shared disk: what moves is compared by digest on both sides, and goes on where it broke off."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sessions.jobs.engine_launcher import EngineLauncher, EngineUnavailable, Hint, key_of
from sessions.jobs.launcher import JobState
from sessions.jobs.transfer import job_transfer
from sessions.jobs.transfer.job_transfer import Transfer, place_of
from sessions.jobs.transfer.remote_entry import carry_out, prepare
from sessions.jobs.transfer.shared_place import Piece, SharedPlace, table_of
from specs.jobs.job_records import ExitRecord, JobOrder
from specs.system.digests import digest_bytes, digest_file, digest_path
from specs.system.errors import AuditDamage, EvidenceMissing, UserError
from specs.system.resources import Resources
from testing.factories.sessions_on_disk import open_session
from testing.fixtures.houses import IMPATIENT, House, ended, is_gone, settled, until
from testing.fixtures.process_engine import ProcessEngine

pytestmark = pytest.mark.integration

LEAVES = """
import json, os, sys
from pathlib import Path
folder = Path(sys.argv[1])
run = folder.parent.parent
order = json.loads((folder / "order.json").read_bytes())
print("reads", sorted(order["inputs"]), flush=True)
for role, artifact in order["inputs"].items():
    assert not artifact["path"].startswith("/"), artifact
    print(role, (run / artifact["path"]).exists())
(folder / "began").touch()
(folder / "progress.jsonl").write_text('{"time": 1.0, "done": 1, "total": 2, "unit": "items"}\\n')
out = folder / "out"
(out / "checkpoint" / "deep").mkdir(parents=True)
(out / "checkpoint" / "deep" / "weights").write_bytes(b"w" * 100_000)
(out / "rows.jsonl").write_text("{}\\n")
(folder / "manifest.json").write_text("{}")
"""


RECORD: dict[str, Any] = {
    "code": 0, "reason": "exited", "started": 1.0, "ended": 2.0, "host": "x", "log": digest_bytes(b"")
}  # fmt: skip


@pytest.fixture(scope="module")
def order(tmp_path_factory: pytest.TempPathFactory) -> JobOrder:
    session = open_session(tmp_path_factory.mktemp("session") / "run")
    session.decide(None, 1, "approve")
    order = session.order(session.mint())
    session.trail.close()
    # Absolute, as the start model is: the other machine has to be told another path.
    inputs = {
        role: artifact.model_copy(update={"path": str(session.run / artifact.path)})
        for role, artifact in order.inputs.items()
    }
    return order.model_copy(update={"inputs": inputs})


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_transfer, "FETCH_EVERY_S", 0.1)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """Jobs run with another root; the run folder is another one, and neither holds a path of the other."""
    extra = f"""
import os
from sessions.jobs.transfer import remote_entry
remote_entry.LOOK_S = 0.2
os.environ["PEERGATE_JOB_ROOT"] = {str(tmp_path / "elsewhere")!r}
"""
    made = House("processes", tmp_path, extra=extra)
    yield made
    made.folder = tmp_path / "elsewhere" / "x"
    for beat in tmp_path.glob("elsewhere/*/jobs/*/heartbeat.json"):
        made.folder = beat.parents[3]
    made.close()


def exit_of(key: str) -> bytes:
    return ExitRecord.model_validate(RECORD | {"key": key}).canonical()


def launcher(house: House, url: str, patience: dict[Hint, float] = IMPATIENT) -> EngineLauncher:
    engine = house.engine()
    assert isinstance(engine, ProcessEngine)
    return EngineLauncher(engine, Transfer(SharedPlace(url)), house.python, patience, 0.1)


def session_of(order: JobOrder) -> Path:
    """Return the folder the inputs come from."""
    return Path(order.inputs["model"].path).parent


def far(house: House, folder: Path) -> Path:
    """Return the job's folder on the other machine."""
    return house.folder / "elsewhere" / key_of(folder) / "jobs" / folder.name


# ---- a whole job ----------------------------------------------------------------------------------------------


def test_a_job_runs_elsewhere_and_what_it_leaves_comes_back(house: House, order: JobOrder) -> None:
    folder = house.job(order, LEAVES)
    key = key_of(folder)
    url = (house.folder / "place").as_uri()
    engine_launcher = launcher(house, url)
    engine_launcher.start(folder)
    engine_launcher.start(folder)
    # Until it has ended there is neither a run folder nor an input where they were.
    away = [(house.folder / "run", house.folder / "away"), (session_of(order), house.folder / "inputs-away")]
    for here, there in away:
        here.rename(there)
    until(lambda: SharedPlace(url).read(f"jobs/{key}/exit.json", 65_536) is not None)
    for here, there in away:
        there.rename(here)
    record = ended(launcher(house, url), folder)
    assert (record.code, record.reason, record.key) == (0, "exited", order.key)
    assert (folder / "log.txt").read_text().splitlines()[0] == f"reads {sorted(order.inputs)}"
    assert "False" not in (folder / "log.txt").read_text()
    assert record.log == digest_file(folder / "log.txt")
    assert digest_path(folder / "out") == digest_path(far(house, folder) / "out")
    assert (folder / "out" / "checkpoint" / "deep" / "weights").stat().st_size == 100_000
    assert engine_launcher.poll(folder) == JobState("exited", record)
    # The order here is the one that was granted; that there names the inputs where they lie there.
    assert JobOrder.model_validate_json((folder / "order.json").read_bytes()).inputs == order.inputs
    assert str(house.folder / "run") not in (far(house, folder) / "order.json").read_text()
    # Found again without the environment's help.
    carrier = place_of(house.folder / "run")
    assert carrier is not None and carrier.place.url == url


def test_a_job_reports_its_state_and_is_cancelled_from_here(house: House, order: JobOrder) -> None:
    folder = house.job(order, f"{LEAVES}\nimport time; time.sleep(60)")
    engine_launcher = launcher(house, str(house.folder / "place"))
    engine_launcher.start(folder)
    until(lambda: engine_launcher.poll(folder).state == "running" and (folder / "progress.jsonl").exists())
    assert json.loads((folder / "progress.jsonl").read_text())["done"] == 1
    until(lambda: engine_launcher.poll(folder).state == "running" and b"reads" in (folder / "log.txt").read_bytes())
    engine_launcher.cancel(folder, "enough")
    assert ended(engine_launcher, folder).reason == "cancelled"


def test_presence_is_handed_on(house: House, order: JobOrder) -> None:
    folder = house.job(order, f"{LEAVES}\nimport time; time.sleep(60)")
    engine_launcher = launcher(house, str(house.folder / "place"))
    engine_launcher.start(folder)
    (house.folder / "run" / "lease.beat").touch()
    there = house.folder / "elsewhere" / key_of(folder) / "lease.beat"
    until(lambda: engine_launcher.poll(folder).state == "running" and there.exists())
    before = there.stat().st_mtime_ns
    os.utime(house.folder / "run" / "lease.beat")
    until(lambda: engine_launcher.poll(folder).state == "running" and there.stat().st_mtime_ns > before)
    engine_launcher.cancel(folder, "enough")
    ended(engine_launcher, folder)


def test_a_second_machine_finds_the_job_claimed(house: House, order: JobOrder, capfd: Any) -> None:
    folder = house.job(order, LEAVES)
    url = str(house.folder / "place")
    engine_launcher = launcher(house, url)
    engine_launcher.start(folder)
    ended(engine_launcher, folder)
    assert carry_out(url, key_of(folder), house.folder / "third") == 0
    assert "already claimed" in capfd.readouterr().err
    assert not (house.folder / "third").exists()


def test_a_machine_that_is_gone_is_a_lost_job(house: House, order: JobOrder) -> None:
    folder = house.job(order, f"{LEAVES}\nimport time; time.sleep(60)")
    engine_launcher = launcher(house, str(house.folder / "place"))
    engine_launcher.start(folder)
    until(lambda: engine_launcher.poll(folder).state == "running" and (folder / "heartbeat.json").exists())
    engine = house.made[-1]
    assert isinstance(engine, ProcessEngine)
    (process,) = engine.started()
    pids = json.loads((folder / "heartbeat.json").read_bytes())
    process.kill()
    assert settled(engine_launcher, folder) == JobState("lost")
    # No one is there to bring anything back, so it does not go on spending.
    until(lambda: is_gone(pids["wrapper"]) and is_gone(pids["child"]))


def test_a_job_no_one_took_is_withdrawn_in_the_place(house: House, order: JobOrder) -> None:
    folder = house.job(order, LEAVES)
    url = str(house.folder / "place")
    engine_launcher = launcher(house, url)
    assert isinstance(engine_launcher.engine, ProcessEngine)
    engine_launcher.engine.queue = True
    engine_launcher.start(folder)
    engine_launcher.cancel(folder, "enough")
    assert engine_launcher.poll(folder) == JobState("lost")
    assert carry_out(url, key_of(folder), house.folder / "third") == 0
    assert not (house.folder / "third").exists()


# ---- hours ----------------------------------------------------------------------------------------------------


def hourly(order: JobOrder, seconds: float) -> JobOrder:
    resources = Resources(max_hours=seconds / 3600)
    return order.model_copy(update={"grant": order.grant.model_copy(update={"resources": resources})})


def test_a_machine_is_let_go_when_its_hours_are_over_though_no_one_watches(house: House, order: JobOrder) -> None:
    folder = house.job(hourly(order, 5), f"{LEAVES}\nimport time; time.sleep(60)")
    url = str(house.folder / "place")
    engine_launcher = launcher(house, url)
    engine_launcher.start(folder)
    house.wait()
    record = json.loads(SharedPlace(url).read(f"jobs/{key_of(folder)}/exit.json", 65_536) or b"{}")
    assert record["reason"] == "cancelled" and record["ended"] - record["started"] < 30
    assert ended(engine_launcher, folder).reason == "cancelled"


def test_a_transfer_that_hangs_ends_with_the_hours_too(house: House, order: JobOrder) -> None:
    folder = house.job(hourly(order, 2), LEAVES)
    url = house.folder / "place"
    engine_launcher, carrier = launcher(house, str(url)), Transfer(SharedPlace(str(url)))
    engine = engine_launcher.engine
    assert isinstance(engine, ProcessEngine)
    carrier.send(folder)
    model = table_of(Path(order.inputs["model"].path)).files
    blob = url / "blobs" / (name := next(iter(model.values())).digest.removeprefix("sha256:"))[:2] / name[2:]
    blob.unlink()
    # Reading it waits for someone who writes.
    os.mkfifo(blob)
    argv = [house.python, "-P", "-m", "sessions.jobs.transfer.remote_entry", *carrier.argv(folder)]
    engine.submit(key_of(folder), argv, Resources())
    house.wait()
    (process,) = engine.started()
    assert process.returncode == -signal.SIGTERM
    assert settled(engine_launcher, folder) == JobState("lost")
    assert "which is what max_hours allow" in (folder / "wrapper.log").read_text()


def test_what_does_not_end_when_it_is_asked_is_ended() -> None:
    code = (
        "import signal, time; from sessions.jobs.transfer import remote_entry as f; f.TERM_S = 0.2\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('asked', flush=True)); f.end_within(0.2)\n"
        "until = time.monotonic() + 60\nwhile time.monotonic() < until: time.sleep(0.1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (1, "asked\n")


# ---- digests --------------------------------------------------------------------------------------------------


def urls(tmp_path: Path) -> tuple[str, str]:
    return f"memory://{tmp_path.name}", (tmp_path / "place").as_uri()


@pytest.mark.parametrize("number", [0, 1])
def test_changed_bytes_in_the_place_are_not_used_and_can_be_sent_again(tmp_path: Path, number: int) -> None:
    place = SharedPlace(urls(tmp_path)[number])
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"weights" * 1000)
    piece = table_of(source).files[""]
    place.send(source, piece)
    name = piece.digest.removeprefix("sha256:")
    place.write(f"blobs/{name[:2]}/{name[2:]}", b"WEIGHTS" * 1000)
    with pytest.raises(AuditDamage, match="have the digest"):
        place.take(piece, target)
    assert not target.exists()
    place.send(source, piece)
    place.take(piece, target)
    assert target.read_bytes() == source.read_bytes()


@pytest.mark.parametrize("number", [0, 1])
def test_a_transfer_goes_on_where_it_broke_off(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    place = SharedPlace(urls(tmp_path)[number])
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(300_000))
    piece = table_of(source).files[""]
    place.send(source, piece)
    half = tmp_path / ".target.part"
    half.write_bytes(source.read_bytes()[:200_000])
    sought: list[int] = []
    opened = place._fs.open  # pyright: ignore[reportPrivateUsage]

    def watching(*arguments: Any, **more: Any) -> Any:
        handle = opened(*arguments, **more)
        seek = handle.seek

        def noting(at: int, *rest: int) -> int:
            sought.append(at)
            return seek(at, *rest)

        monkeypatch.setattr(handle, "seek", noting, raising=False)
        return handle

    if number == 1:
        monkeypatch.setattr(place._fs, "open", watching)  # pyright: ignore[reportPrivateUsage]
    place.take(piece, target)
    assert target.read_bytes() == source.read_bytes() and not half.exists()
    assert sought[:1] == ([200_000] if number == 1 else [])
    # Half of something else is noticed, and the whole is brought anew.
    half.write_bytes(b"x" * 1000)
    target.unlink()
    place.take(piece, target)
    assert target.read_bytes() == source.read_bytes()


@pytest.mark.parametrize("number", [0, 1])
def test_what_is_there_already_is_not_sent_again(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    place = SharedPlace(urls(tmp_path)[number])
    folder = tmp_path / "tree"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a").write_bytes(b"a")
    (folder / "b").write_bytes(b"b")
    table = place.send_tree(folder)
    assert table.digest() == digest_path(folder)
    sent: list[str] = []
    put = place._fs.put_file  # pyright: ignore[reportPrivateUsage]

    def noting(text: str, to: str) -> None:
        sent.append(text)
        put(text, to)

    monkeypatch.setattr(place._fs, "put_file", noting)  # pyright: ignore[reportPrivateUsage]
    (folder / "b").write_bytes(b"c")
    place.send_tree(folder)
    assert sent == [str(folder / "b")]
    place.take_tree(table, tmp_path / "back")
    assert digest_path(tmp_path / "back") == table.digest()


@pytest.mark.parametrize("number", [0, 1])
def test_of_many_who_create_one_file_one_does(tmp_path: Path, number: int) -> None:
    place = SharedPlace(urls(tmp_path)[number])
    assert [place.create("jobs/k/claim.json", b"%d" % n) for n in range(5)] == [True, False, False, False, False]
    assert place.read("jobs/k/claim.json", 100) == b"0"
    with pytest.raises(AuditDamage, match="larger"):
        SharedPlace(urls(tmp_path)[number]).write("big", b"x" * 101)
        place.read("big", 100)


def test_a_file_that_appears_after_a_look_is_not_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = SharedPlace(str(tmp_path / "place"))
    assert place.create("claim", b"first")
    monkeypatch.setattr(place._fs, "exists", lambda path: False)  # pyright: ignore[reportPrivateUsage, reportUnknownLambdaType]
    assert not place.create("claim", b"second")
    assert place.read("claim", 100) == b"first"


def test_processes_that_race_for_a_claim_leave_one_winner(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom sessions.jobs.transfer.shared_place import SharedPlace\n"
        "place = SharedPlace(sys.argv[1])\n"
        "time.sleep(max(0, float(sys.argv[2]) - time.time()))\n"
        "print(sum(place.create(f'claims/{n}', sys.argv[3].encode()) for n in range(100)))"
    )
    start = str(time.time() + 2)
    racing = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "place"), start, str(n)], stdout=subprocess.PIPE)
        for n in range(3)
    ]
    assert sum(int(process.communicate(timeout=300)[0]) for process in racing) == 100


# ---- what is refused ------------------------------------------------------------------------------------------


def sent(house: House, order: JobOrder, url: str) -> tuple[Transfer, Path, str]:
    folder = house.job(order, LEAVES)
    carrier = Transfer(SharedPlace(url))
    carrier.send(folder)
    return carrier, folder, key_of(folder)


def test_an_order_or_input_that_was_changed_on_the_way_is_not_run(house: House, order: JobOrder) -> None:
    url = str(house.folder / "place")
    carrier, _, key = sent(house, order, url)
    tables = json.loads(carrier.place.read(f"jobs/{key}/sent.json", 1 << 20) or b"")
    other = house.folder / "other"
    other.write_bytes(b"other weights")
    carrier.place.send(other, Piece(digest=digest_file(other), bytes=13))
    changed = json.loads(json.dumps(tables))
    changed["input/model"]["files"][""] = {"digest": digest_file(other), "bytes": 13}
    carrier.place.write(f"jobs/{key}/sent.json", json.dumps(changed).encode())
    with pytest.raises(EvidenceMissing, match=", expected sha256:"):
        prepare(carrier.place, key, house.folder / "a", house.folder / "blobs")
    longer = house.folder / "order"
    longer.write_bytes(order.model_copy(update={"max_seconds": 10_000.0}).canonical())
    piece = Piece(digest=digest_file(longer), bytes=longer.stat().st_size)
    carrier.place.send(longer, piece)
    tables["job"]["files"]["order.json"] = piece.model_dump()
    carrier.place.write(f"jobs/{key}/sent.json", json.dumps(tables).encode())
    with pytest.raises(EvidenceMissing, match="the order is"):
        prepare(carrier.place, key, house.folder / "b", house.folder / "blobs")


@pytest.mark.parametrize(
    "path", ["order.json", "../../run/trail.sqlite", "out/../order.json", "/etc/passwd", "claim/claim.json", "out/a\\b"]
)
def test_a_machine_can_leave_nothing_but_a_jobs_files(house: House, order: JobOrder, path: str) -> None:
    url = str(house.folder / "place")
    carrier, folder, key = sent(house, order, url)
    before = (folder / "order.json").read_bytes()
    bad = house.folder / "bad"
    bad.write_bytes(b"bad")
    piece = Piece(digest=digest_file(bad), bytes=3)
    carrier.place.send(bad, piece)
    carrier.place.create(f"jobs/{key}/claim.json", b"{}")
    carrier.place.write(f"jobs/{key}/left.json", json.dumps({"job": {"files": {path: piece.model_dump()}}}).encode())
    carrier.place.write(f"jobs/{key}/exit.json", exit_of(order.key))
    with pytest.raises(AuditDamage):
        carrier.fetch(folder)
    assert (folder / "order.json").read_bytes() == before and not (folder / "exit.json").exists()
    assert not list(house.folder.glob("run/trail*"))


def test_a_job_that_leaves_what_is_none_of_its_is_lost_and_says_why(house: House, order: JobOrder) -> None:
    carrier, folder, key = sent(house, order, str(house.folder / "place"))
    carrier.place.create(f"jobs/{key}/claim.json", b"{}")
    carrier.place.write(f"jobs/{key}/exit.json", exit_of("other.base.1"))
    engine_launcher = launcher(house, str(house.folder / "place"))
    # Not at once: it may have been damaged on the way.
    assert engine_launcher.poll(folder) == JobState("running")
    assert settled(engine_launcher, folder) == JobState("lost")
    assert "belongs to 'other.base.1'" in (folder / "wrapper.log").read_text()


def test_an_exit_record_of_another_job_is_none(house: House, order: JobOrder) -> None:
    carrier, folder, key = sent(house, order, str(house.folder / "place"))
    carrier.place.create(f"jobs/{key}/claim.json", b"{}")
    carrier.place.write(f"jobs/{key}/exit.json", b'{"key":"other.base.1"}')
    with pytest.raises(AuditDamage, match="malformed"):
        carrier.fetch(folder)
    again = Transfer(carrier.place)
    carrier.place.write(f"jobs/{key}/exit.json", exit_of("other.base.1"))
    with pytest.raises(AuditDamage, match=r"belongs to 'other\.base\.1'"):
        again.fetch(folder)
    assert not (folder / "exit.json").exists()


def test_an_input_that_is_not_what_was_granted_is_not_sent(house: House, order: JobOrder, tmp_path: Path) -> None:
    folder = house.job(order, LEAVES)
    changed = tmp_path / "model"
    changed.write_bytes(b"other")
    model = order.inputs["model"].model_copy(update={"path": str(changed)})
    (folder / "order.json").write_bytes(
        order.model_copy(update={"inputs": {**order.inputs, "model": model}}).canonical()
    )
    carrier = Transfer(SharedPlace(str(tmp_path / "place")))
    with pytest.raises(EvidenceMissing, match="input 'model' has the digest"):
        carrier.send(folder)
    assert carrier.place.read(f"jobs/{key_of(folder)}/sent.json", 1 << 20) is None


def test_a_place_that_cannot_be_reached_is_reported_and_loses_nothing(house: House, order: JobOrder) -> None:
    folder = house.job(order, f"{LEAVES}\nimport time; time.sleep(2)")
    where = house.folder / "place"
    # What the job leaves is sent to the place, which takes more than a second on a busy machine.
    engine_launcher = launcher(house, str(where), {**IMPATIENT, "exited": 60.0, "unreachable": 60.0, "unknown": 60.0})
    engine_launcher.start(folder)
    until(lambda: engine_launcher.poll(folder).state == "running" and (folder / "heartbeat.json").exists())
    # Gone for less than the patience: a file in the folder's place.
    where.rename(house.folder / "away")
    where.touch()
    assert engine_launcher.poll(folder).state == "running"
    with pytest.raises(EngineUnavailable):
        Transfer(SharedPlace(str(where))).send(folder)
    where.unlink()
    (house.folder / "away").rename(where)
    assert ended(engine_launcher, folder).code == 0


@pytest.mark.parametrize(
    ("url", "output"),
    [
        ("https://user:secret@host/x", "password"),
        ("s3://bucket/x?token=secret", "password"),
        ("https://host/x", "cannot create a file exclusively"),
        ("ftp://host/x", "cannot create a file exclusively"),
    ],
)
def test_what_cannot_be_a_place(url: str, output: str) -> None:
    with pytest.raises(UserError, match=output) as caught:
        SharedPlace(url)
    assert "secret" not in str(caught.value)


def test_nothing_is_a_place_unless_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PEERGATE_PLACE", raising=False)
    assert place_of(tmp_path) is None
    monkeypatch.setenv("PEERGATE_PLACE", str(tmp_path / "place"))
    transfer = place_of(tmp_path)
    assert transfer is not None and transfer.place.url == str(tmp_path / "place")
    shutil.rmtree(tmp_path / "place", ignore_errors=True)
