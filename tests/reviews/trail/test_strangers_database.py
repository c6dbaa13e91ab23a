"""Reading a stranger's folder connects to no database that it names, sends no password and makes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bench.attack.strangers import READING, read_served, strangers_run, words_of
from reviews.trail.tables.open_table import read_trail
from reviews.trail.tables.pointer import PARAMETERS, check_address, database_file, database_of, keep_database
from specs.system.errors import UserError
from testing.fixtures.command_sessions import called
from testing.fixtures.postgres_server import Server
from testing.fixtures.sink import Sink

PASSWORD = "canary-of-PGPASSWORD"
ACTING = ("resume RUN", "cancel RUN", "pause RUN", "prune RUN")
"""They leave a request in the folder."""


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sink]:
    made = Sink()
    monkeypatch.delenv("PEERGATE_DATABASE", raising=False)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    monkeypatch.setattr("reviews.trail.tables.postgres_connection.PATIENCE_S", 0.0)
    yield made
    made.close()


def test_no_command_connects_to_a_database_that_a_strangers_folder_names(tmp_path: Path, sink: Sink) -> None:
    address = f"postgresql://me@127.0.0.1:{sink.port}/peergate?sslmode=disable"
    folder, here = tmp_path / "stranger", tmp_path / "here"
    here.mkdir()
    run = strangers_run(folder, address)
    before = sorted(folder.rglob("*"))
    for command in (*READING, *ACTING):
        if command == ACTING[0]:
            assert sorted(folder.rglob("*")) == before
        done = called(*words_of(command, run, folder / "spec.yaml", here), cwd=here)
        assert not sink.heard, command
        assert not re.search("Traceback|Usage:", done.stderr), (command, done.stderr)
    read_served(run)
    assert not sink.heard
    with pytest.raises(UserError, match="which you have not recorded for it"):
        read_trail(run / "trail.sqlite")
    # What they would have done, once this user has recorded it.
    keep_database(folder / "runs", address)
    called("status", run)
    assert sink.heard and b"peergate" in sink.heard[0]


def test_another_address_in_a_known_workspace_is_not_known(tmp_path: Path, sink: Sink) -> None:
    run = strangers_run(tmp_path, f"postgresql://me@127.0.0.1:{sink.port}/other")
    keep_database(tmp_path / "runs", f"postgresql://me@127.0.0.1:{sink.port}/own")
    database_of(run / "trail.sqlite")
    database_file(tmp_path / "runs").write_text(f"postgresql://me@127.0.0.1:{sink.port}/other\n", encoding="utf-8")
    with pytest.raises(UserError, match="which you have not recorded for it"):
        database_of(run / "trail.sqlite")
    assert not sink.heard


@pytest.mark.parametrize(
    "parameter",
    ["passfile=/home/you/.pgpass", "service=own", "servicefile=x", "sslkey=x", "sslcert=x", "password=x", "user=x",
     "options=-csearch_path%3Dx", "hostaddr=127.0.0.1", "sslpassword=x", "sslrootcert=y&passfile=x", "requirepeer="],
)  # fmt: skip
def test_an_address_sets_only_what_names_no_password(parameter: str) -> None:
    name = parameter.rpartition("&")[2].partition("=")[0]
    with pytest.raises(UserError, match=f"the address may not set {name}"):
        check_address(f"postgresql://me@db.example/peergate?{parameter}", "here")


def test_the_parameters_of_a_list_are_accepted() -> None:
    query = "&".join(f"{name}=1" for name in sorted(PARAMETERS))
    assert check_address(f"postgresql://me@db.example/peergate?{query}", "here").endswith(query)


def test_reading_makes_no_tables(
    tmp_path: Path, postgres: Server, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = strangers_run(tmp_path, database)
    monkeypatch.setenv("PEERGATE_DATABASE", database)
    with pytest.raises(UserError, match="holds no trails"):
        read_trail(run / "trail.sqlite")
    for command in (("list", "--everywhere"), ("list",)):
        called(*command, "--runs", tmp_path / "runs")
    name = urlsplit(database).path.strip("/")
    assert postgres.sql(name, "SELECT count(*) FROM pg_namespace WHERE nspname = 'peergate'") == "0"
