"""The reading commands on every place a trail can lie in: a run folder, a folder of requested reviews, an export."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reviews.audit.export import export_run
from reviews.history.history import History
from reviews.trail.chain.store import Store
from reviews.trail.tables.query import TrailQuery
from sessions.commands.audit import list_command, timeline_command, verify_command
from sessions.commands.named_place import place_of
from sessions.pages.report.consult_context import ConsultContext
from sessions.requests.review_functions import ask_review
from sessions.run.run_layout import REVIEWS
from specs.system.errors import UserError
from specs.trail.requested_review import QuestionRequest
from testing.fixtures.command_sessions import called as peergate

QUESTION = QuestionRequest(topic="log \u001b[31mlevel", question="Which log level?", kind="trivial")
COMMANDS: dict[str, Callable[[Path], object]] = {
    "list": lambda place: list_command.list_entries(place, as_json=True),
    "search": lambda place: list_command.search(place, "log", limit=0, as_json=True),
    "show": lambda place: verify_command.show_entry(place, "question/1", as_json=True),
    "log": lambda place: timeline_command.log(place, as_json=True),
    "diff": lambda place: timeline_command.diff(place, "question/1", "question/2", as_json=True),
}


def no_page(_history: History) -> str:
    return "page"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    runs = tmp_path_factory.mktemp("placed") / "runs"
    for topic in (QUESTION.topic, "format"):
        folder = ask_review(QUESTION.model_copy(update={"topic": topic}), ConsultContext(runs=runs)).folder
    export_run(folder, REVIEWS, "store", runs / "out", no_page)
    yield {"requests": folder, "exported": runs / "out"}


def run_audit(command: str, place: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    COMMANDS[command](place)
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_export_says_what_the_trail_says(
    places: dict[str, Path], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    item, two = run_audit(command, places["requests"], capsys), run_audit(command, places["exported"], capsys)
    assert item == two and item["schema_version"]


def test_the_log_of_a_folder_of_requests_states_them(
    places: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    timeline_command.log(places["requests"], as_json=False)
    output = capsys.readouterr().out
    assert "question by checklist: log level" in output and "question by checklist: format" in output
    assert "no one is asked: " in output and "request 2 answered by policy" in output and "recommends: " in output
    assert "\u001b" not in output
    data = run_audit("log", places["requests"], capsys)
    assert [item["kind"] for item in data["log"]] == ["question", "answer"] * 2


def test_diff_and_show_follow_what_entries_point_to(
    places: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for place in places.values():
        where = {difference["where"]: difference for difference in run_audit("diff", place, capsys)["differences"]}
        assert where["request.topic"]["second"] == '"format"'
        assert run_audit("show", place, capsys)["points_to"]["request"]["question"] == "Which log level?"
        digest = run_audit("show", place, capsys)["body"]["request"]
        verify_command.show_entry(place, digest, as_json=True)
        data = json.loads(capsys.readouterr().out)
        assert data["digest"] == digest and data["value"]["question"] == "Which log level?"


@pytest.mark.parametrize(
    "wanted",
    [TrailQuery(), TrailQuery(kinds=("question", "answer")), TrailQuery(text="checklist"), TrailQuery(seqs=(1, 3))],
)
@pytest.mark.parametrize("limit", [None, 1, 3])
def test_an_export_is_searched_as_the_trail_is(places: dict[str, Path], wanted: TrailQuery, limit: int | None) -> None:
    result, two = (place_of(places[name]).find(wanted, limit) for name in ("requests", "exported"))
    assert result == two and result.total >= len(result.entries) > 0


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("what", ["not there", "empty", "a file"])
def test_a_folder_that_is_none_of_them_is_an_error(tmp_path: Path, command: str, what: str) -> None:
    place = tmp_path / "place"
    if what == "empty":
        place.mkdir()
    elif what == "a file":
        place.write_text("text", encoding="utf-8")
    with pytest.raises(UserError, match="no trail"):
        COMMANDS[command](place)
    assert not place.is_dir() or not list(place.iterdir())


@pytest.mark.parametrize("command", [["log"], ["list"], ["search", "x"], ["show", "0"], ["show", "claim"]])
def test_the_error_is_reported_on_stderr_and_json_stays_empty(tmp_path: Path, command: list[str]) -> None:
    done = peergate("audit", command[0], tmp_path, *command[1:], "--json")
    assert done.returncode == 2 and done.stdout == "" and "no trail" in done.stderr


def test_a_spoiled_export_is_damage_and_no_traceback(places: dict[str, Path], tmp_path: Path) -> None:

    copy = tmp_path / "out"
    shutil.copytree(places["exported"], copy)
    bundle = next(copy.glob("tile/entries/000.p/*"))
    for data in (b"", bundle.read_bytes()[:-1], b"\x00\x02{}" * 5, bundle.read_bytes().replace(b"payload", b"Payload")):
        bundle.write_bytes(data)
        done = peergate("audit", "log", copy)
        assert done.returncode == 5 and "Traceback" not in done.stderr, done.stderr


def test_what_a_server_sent_is_shown_even_if_it_is_no_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ask_review(QUESTION, ConsultContext(runs=tmp_path)).folder
    for data in (b"\xff\x00", b"NaN", b'{"a": Infinity}', b"[" * 100_000):
        verify_command.show_entry(folder, Store(folder / "store").put(data), as_json=True)
        assert json.loads(capsys.readouterr().out)["value"] == data.decode("utf-8", "replace")


@pytest.mark.parametrize("words", [["verify"], ["verify", "--again"]])
def test_verifying_what_is_not_there_says_so(tmp_path: Path, words: list[str]) -> None:
    done = peergate("audit", *words, "nothing", "--runs", tmp_path)
    assert done.returncode == 3 and done.stdout == ""
    assert done.stderr.splitlines()[0].endswith("nothing: not a session, export or workspace of reviews")
    assert "Traceback" not in done.stderr and not (tmp_path / "nothing").exists()
