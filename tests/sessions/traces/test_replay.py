"""Teachers over the wire: who may teach, what it costs, what is kept through a kill, and which pairs come of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from specs.data.conversion import convert
from specs.data.tables import TableRow
from specs.stages.traces.parameters import family_of
from specs.system.vendors import http_exchange
from testing.factories.transcripts import Transcript
from testing.fixtures.command_sessions import called, environment
from testing.fixtures.loopback_api import CHAT, Step, failed
from testing.fixtures.scripted_builder import Reply, scripted_builder
from training.rules.traces.rendering import INSTRUCTIONS, TraceAction, TraceCall, read_action, render_action

pytestmark = pytest.mark.integration

KEY = "sk-test-CANARY-that-must-never-be-written"
READ = '{"tool": "Read", "arguments": {"path": "0.txt"}}'
EDIT = '{"tool": "Edit", "arguments": {"path": "0.txt"}}'


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(http_exchange, "BACKOFF_S", 0.01)
    yield


def session() -> Transcript:
    """Return a session of three states: two of them call Edit and Read, one only writes."""
    made = Transcript()
    made.says("Change the file.")
    made.answers("I change it.", "Edit")
    made.answers("I read it.", "Read")
    made.answers("All done.")
    return made


def asks(model: Callable[[dict[str, Any]], str]) -> Callable[[dict[str, Any]], Reply]:
    """Return a vendor that answers each request with a text."""
    return lambda body: Reply(model(body))


def teachers(address: str, *models: tuple[str, str], student: str = "smollm", price: float = 1.0) -> str:
    """Return a file of teachers, each by model and family, at one address."""
    listed = "".join(
        f"  - id: t{number}\n    model: {model}\n    family: {family}\n    license: test\n    base_url: {address}\n"
        f"    key_variable: TEACHER_KEY\n    usd_per_million_tokens: {{input: {price}, output: {price}}}\n"
        for number, (model, family) in enumerate(models)
    )
    return f"student: {student}\nteachers:\n{listed}"


class ReplayDesk:
    """A folder with traces and teachers, in which the command is called."""

    def __init__(self, folder: Path, made: Transcript) -> None:
        self.folder = folder
        made.write(folder / "s.jsonl")
        done = called("traces", "ingest", folder / "s.jsonl", "--out", folder / "traces")
        assert done.returncode == 0, done

    def replay(self, file: str, *options: str, key: str = KEY) -> Any:
        """Call the command with a file of teachers."""
        path = self.folder / "teachers.yaml"
        path.write_text(file, encoding="utf-8")
        arguments = environment() | ({"TEACHER_KEY": key} if key else {})
        return called("traces", "replay", self.folder / "traces", "--teachers", path, *options, env=arguments)

    def read(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a file that was written."""
        return [json.loads(line) for line in (self.folder / "traces" / "replay" / name).read_bytes().splitlines()]

    def card(self) -> dict[str, Any]:
        return json.loads((self.folder / "traces" / "replay" / "card.json").read_bytes())


@pytest.fixture
def desk(tmp_path: Path) -> ReplayDesk:
    return ReplayDesk(tmp_path, session())


QWEN, LLAMA = ("qwen/qwen3-coder", "qwen"), ("meta/llama-4", "llama")
BUDGET = ("--budget", "5")


def serving(answer: Callable[[dict[str, Any]], str]) -> Any:
    """Serve an endpoint that answers every request, and knows what must be in none."""
    return scripted_builder(CHAT, [], canaries=(KEY,), then=asks(answer))


def test_what_two_families_do_alike_is_chosen_over_what_the_trace_did(desk: ReplayDesk) -> None:
    with serving(lambda body: READ) as played:
        done = desk.replay(teachers(played.address, QWEN, LLAMA), *BUDGET)
        assert done.returncode == 0, done
        assert len(played.requests) == 6 and {item.headers["authorization"] for item in played.requests} == {
            f"Bearer {KEY}"
        }
        assert played.refused == []
    pairs = desk.read("pairs.jsonl")
    assert [pair["rejected"] for pair in pairs] == [f"I change it.\n{EDIT}", "All done."]
    assert {pair["chosen"] for pair in pairs} == {READ}
    assert pairs[0]["chosen_by"] == ["t0", "t1"] and pairs[0]["rejected_by"] == ["trace"]
    assert pairs[0]["taught"]["families"] == ["llama", "qwen"] and pairs[0]["taught"]["student"] == "smollm"
    assert pairs[0]["taught"]["licenses"] == ["llama: test", "qwen: test"] and pairs[0]["taught"]["circular"] == []
    assert pairs[0]["prompt"].startswith(INSTRUCTIONS) and "Change the file." in pairs[0]["prompt"]
    assert "I change it." not in pairs[0]["prompt"]
    agreement = desk.card()["agreement"]
    assert (agreement["states"], agreement["agreed"], agreement["unanimous"], agreement["split"]) == (3, 3, 1, 0)
    assert agreement["between"] == {"llama, qwen": 1.0} and agreement["with_trace"] == 0


def test_pairs_are_a_data_file_of_preferences(desk: ReplayDesk) -> None:
    with serving(lambda body: READ) as played:
        desk.replay(teachers(played.address, QWEN, LLAMA), *BUDGET)
    path = desk.folder / "traces" / "replay" / "pairs.jsonl"
    made = convert(path, [TableRow(number, row) for number, row in enumerate(desk.read("pairs.jsonl"), 1)], None)
    assert made.row_kind == "preferences" and made.problems == [] and len(made.rows) == 2
    assert made.rows[0].taught.families == ("llama", "qwen")  # pyright: ignore[reportAttributeAccessIssue]


def test_where_no_two_families_agree_there_is_no_pair(desk: ReplayDesk) -> None:
    with serving(lambda body: READ if "qwen" in body["model"] else "I would rather ask.") as played:
        desk.replay(teachers(played.address, QWEN, LLAMA), *BUDGET)
    card = desk.card()
    assert card["pairs"] == 0 and card["agreement"]["split"] == 3 and card["agreement"]["between"] == {"llama, qwen": 0}


def test_two_teachers_of_one_family_are_one_voice(desk: ReplayDesk) -> None:
    answers = {"qwen/qwen3-coder": READ, "qwen/qwen3-max": READ, "meta/llama-4": "I would rather ask."}
    with serving(lambda body: answers[body["model"]]) as played:
        desk.replay(teachers(played.address, QWEN, ("qwen/qwen3-max", "qwen"), LLAMA), *BUDGET)
    assert desk.card()["agreement"]["split"] == 3


def test_a_side_that_is_the_traces_own_is_counted(desk: ReplayDesk) -> None:
    answers = {"qwen/qwen3-coder": "Done.", "meta/llama-4": "Ready.", "gpt-oss-120b": READ}
    with serving(lambda body: answers[body["model"]]) as played:
        desk.replay(teachers(played.address, QWEN, LLAMA, ("gpt-oss-120b", "gpt-oss")), *BUDGET)
    card = desk.card()
    assert (card["pairs"], card["agreement"]["with_trace"]) == (3, 1)
    assert [row["rejected_by"] for row in desk.read("pairs.jsonl")] == [["trace"], ["t2", "trace"], ["t2"]]


@pytest.mark.parametrize(
    ("models", "student", "output"),
    [
        ([("claude-opus-5", "claude"), LLAMA], "smollm", "which wrote the traces"),
        ([QWEN, LLAMA], "llama", "of the student's own family 'llama'"),
        ([QWEN, ("qwen/qwen3-max", "qwen")], "smollm", "all teachers are of one family, 'qwen'"),
    ],
)
def test_teachers_that_imitate_in_a_circle_are_refused_unless_a_person_gives_a_reason(
    desk: ReplayDesk, models: list[tuple[str, str]], student: str, output: str
) -> None:
    with serving(lambda body: READ) as played:
        file = teachers(played.address, *models, student=student)
        refused = desk.replay(file, *BUDGET)
        assert refused.returncode == 2 and output in refused.stderr and "--circular REASON" in refused.stderr
        assert played.requests == [] and not (desk.folder / "traces" / "replay").exists()
        assert desk.replay(file, *BUDGET, "--circular", "only the wiring is tried").returncode == 0
    card = desk.card()
    assert card["override"] == "only the wiring is tried" and any(output in item for item in card["circular"])


@pytest.mark.parametrize(
    ("change", "output"),
    [
        (("family: qwen", "family: gpt"), "teachers.yaml:5:13: teachers[0].family: is 'gpt'"),
        (
            ("    usd_per_million_tokens: {input: 1.0, output: 1.0}\n", ""),
            "no price is known of a model at an endpoint",
        ),
        (("id: t1", "id: t0"), "'t0' is the id of another teacher"),
        (("license: test\n", "licence: test\n"), "did you mean 'license'?"),
        (("key_variable: TEACHER_KEY", "key_variable: TEACHER"), "key_variable"),
    ],
)
def test_a_file_of_teachers_with_a_mistake_is_refused_at_its_place(
    desk: ReplayDesk, change: tuple[str, str], output: str
) -> None:
    done = desk.replay(teachers("http://127.0.0.1:9", QWEN, LLAMA).replace(*change, 1), *BUDGET)
    assert done.returncode == 2 and output in done.stderr and "nothing was started" in done.stderr


def test_a_key_that_is_not_set_is_named(desk: ReplayDesk) -> None:
    done = desk.replay(teachers("http://127.0.0.1:9", QWEN, LLAMA), *BUDGET, key="")
    assert done.returncode == 2 and "TEACHER_KEY is not set" in done.stderr


def test_the_price_is_known_before_a_call_and_no_budget_means_no_call(desk: ReplayDesk) -> None:
    with serving(lambda body: READ) as played:
        file = teachers(played.address, QWEN, LLAMA)
        planned = json.loads(desk.replay(file, "--dry-run", "--json").stdout)
        assert planned["calls"] == planned["left"] == 6 and planned["most_usd"] > 0
        refused = desk.replay(file)
        assert refused.returncode == 2 and f"--budget {planned['most_usd']:.2f}" in refused.stderr
        assert played.requests == []


def test_a_budget_that_ends_keeps_what_was_answered_and_the_next_call_goes_on_there(desk: ReplayDesk) -> None:
    with serving(lambda body: READ) as played:
        file = teachers(played.address, QWEN, LLAMA)
        cap = json.loads(desk.replay(file, "--dry-run", "--json").stdout)["most_usd"] / 6
        ended = desk.replay(file, "--budget", str(cap * 1.6))
        assert ended.returncode == 6 and "calls are left" in ended.stderr
        before = len(played.requests)
        assert 0 < before < 6 and not (desk.folder / "traces" / "replay" / "pairs.jsonl").exists()
        assert desk.replay(file, *BUDGET).returncode == 0
        assert len(played.requests) == 6
        assert desk.replay(file, *BUDGET).returncode == 0
        assert len(played.requests) == 6, "a call was made twice"


def test_a_call_that_a_kill_left_open_counts_as_spent_and_is_made_again(desk: ReplayDesk) -> None:
    with serving(lambda body: READ) as played:
        file = teachers(played.address, QWEN, LLAMA)
        desk.replay(file, *BUDGET)
        usd = desk.card()["usd"]
        path = desk.folder / "traces" / "replay" / "replies.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
        assert desk.replay(file, *BUDGET).returncode == 0
        assert len(played.requests) == 7
    assert desk.card()["usd"] == pytest.approx(usd + json.loads(lines[-2])["usd"], abs=2e-6)


def test_replies_that_were_changed_are_not_read(desk: ReplayDesk) -> None:
    with serving(lambda body: READ) as played:
        file = teachers(played.address, QWEN, LLAMA)
        desk.replay(file, *BUDGET)
        path = desk.folder / "traces" / "replay" / "replies.jsonl"
        path.write_bytes(path.read_bytes().replace(b'"usd":', b'"cost":', 1))
        done = desk.replay(file, *BUDGET)
    assert done.returncode == 5 and "replies.jsonl:1" in done.stderr


@pytest.mark.parametrize(("status", "calls", "output"), [(401, 1, "fixed"), (500, 4, "repeat the command")])
def test_a_teacher_that_gives_no_answer_ends_the_command_and_costs_nothing(
    desk: ReplayDesk, status: int, calls: int, output: str
) -> None:
    steps: list[Step] = [failed(CHAT, status)] * calls
    with scripted_builder(CHAT, steps, canaries=(KEY,)) as played:
        done = desk.replay(teachers(played.address, QWEN, LLAMA), *BUDGET)
        assert done.returncode == 4 and "teacher 't0'" in done.stderr and output in done.stderr
        assert len(played.requests) == calls and KEY not in done.stderr
    assert sum(row["usd"] for row in desk.read("replies.jsonl") if row["type"] == "failure") == 0


def test_an_answer_that_is_cut_off_or_calls_what_is_not_there_makes_no_pair(desk: ReplayDesk) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        if "qwen" in body["model"]:
            return Reply(READ)
        return Reply(READ[:20], stop="length") if "I read it." in str(body) else Reply(READ.replace("Read", "Format"))

    with scripted_builder(CHAT, [], then=answer) as played:
        desk.replay(teachers(played.address, QWEN, LLAMA), *BUDGET)
    card = desk.card()
    assert card["pairs"] == card["agreement"]["states"] == 0 and card["cut_off"] == 1


def test_secrets_that_are_known_now_leave_in_no_prompt_and_stay_in_no_reply(tmp_path: Path) -> None:
    made = session()
    made.records[0]["message"]["content"] = f"My deploy password is {'Zq8' * 6}x."
    desk = ReplayDesk(tmp_path, made)
    secret = "Zq8" * 6 + "x"
    with serving(lambda body: f"It is {secret}.") as played:
        path = desk.folder / "teachers.yaml"
        path.write_text(teachers(played.address, QWEN, LLAMA), encoding="utf-8")
        arguments = environment() | {"TEACHER_KEY": KEY, "DEPLOY_TOKEN": secret}
        done = called("traces", "replay", desk.folder / "traces", "--teachers", path, *BUDGET, env=arguments)
        assert done.returncode == 0, done
        assert secret.encode() not in b"".join(item.body for item in played.requests)
    for file_path in (desk.folder / "traces" / "replay").iterdir():
        assert secret not in file_path.read_text(encoding="utf-8")


def test_states_are_drawn_by_a_seed(desk: ReplayDesk) -> None:
    with serving(lambda body: READ) as played:
        file = teachers(played.address, QWEN, LLAMA)
        desk.replay(file, *BUDGET, "--states", "1", "--seed", "3")
        first = {row["state"] for row in desk.read("replies.jsonl") if row["type"] == "reply"}
        desk.replay(file, *BUDGET, "--states", "1", "--seed", "3")
        assert len(played.requests) == 2 and len(first) == 1


def test_an_action_is_read_as_it_is_written() -> None:
    action = TraceAction(
        "I do both.", (TraceCall("Read", {"path": "a b"}), TraceCall("Bash", {"command": 'echo "{}"\n'}))
    )
    assert read_action(render_action(action)) == action
    assert read_action(f"Sure.\n```json\n{READ}\n```") == TraceAction("Sure.", (TraceCall("Read", {"path": "0.txt"}),))
    for text in ('{"tool": "Read"}', '{"tool": 3, "arguments": {}}', "{" * 5000, '{"tool": "R", "arguments": []}'):
        assert read_action(text) == TraceAction(text, ())


@pytest.mark.parametrize(
    ("model", "family"),
    [("anthropic/claude-opus-5", "claude"), ("gpt-5.4", "gpt"), ("openai/gpt-oss-120b", "gpt-oss"), ("o3-mini", "gpt")]
    + [("Qwen/Qwen3-32B", "qwen"), ("HuggingFaceTB/SmolLM2-135M-Instruct", "smollm"), ("my-own", None)],
)
def test_a_name_shows_its_family(model: str, family: str | None) -> None:
    assert family_of(model) == family
