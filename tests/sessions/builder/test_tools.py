"""What tools do with arguments of any kind, and what each of them leaves."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sessions.builder.tools import CARRY_OUT
from sessions.builder.tools.tool_context import MOST_ARGUMENTS, ToolCallRefusal, read_arguments
from sessions.builder.workbench import MOST_RESULT
from sessions.jobs.launcher import JobState
from sessions.session import Session
from specs.system.errors import AuditDamage
from specs.system.vendors.conversation import ToolCall
from specs.trail.builder_tools import HELPER_TOOLS, TOOLS
from specs.trail.tool_arguments import Phase, Tool
from testing.factories.benches import bench_of, call, end_job, job_folder, measure, open_stage, rows

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
SLOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
FIELDS = sorted({name for tool in TOOLS for name in tool.arguments.model_fields})


def tool_named(name: str) -> Tool:
    return next(tool for tool in (*TOOLS, *HELPER_TOOLS) if tool.name == name)


def entries(session: Session, kind: Any) -> int:
    return sum(1 for _ in session.trail.iterate(kind))


BROKEN = {
    "{": "invalid JSON",
    "[]": "expected one JSON object, got a list",
    "null": "expected one JSON object",
    '"text"': "expected one JSON object",
    "[" * 100_000: "malformed arguments",
    '{"a": ' * 10_000: "malformed arguments",
    '{"name": "constitution", "name": "data.prompts"}': "duplicate key 'name'",
    '{"name": "constitution", "limit": NaN}': "NaN is not a JSON number",
    '{"name": "constitution", "limit": 1e999}': "malformed arguments",
    '{"name": "constitution", "limit": -Infinity}': "-Infinity is not a JSON number",
    '{"name": "constitution", "limit": true}': "limit: Input should be a valid integer",
    '{"name": "constitution", "limit": "5"}': "limit: Input should be a valid integer",
    '{"name": "constitution", "limit": 5.5}': "limit: Input should be a valid integer",
    '{"name": "constitution", "limit": 0}': "limit: Input should be greater than or equal to 1",
    '{"name": "constitution", "offset": 1' + "0" * 5000 + "}": "malformed arguments",
    '{"name": "constitution", "more": 1}': "more: Extra inputs are not permitted",
    '{"name": ["constitution"]}': "name: Input should be a valid string",
    "{}": "name: Field required",
    "": "name: Field required",
    '{"name": "constitution"} {}': "invalid JSON",
    "\ufeff{}": "invalid JSON",
    '{"' + "x" * 90_000 + '": 1}': "malformed arguments",
    " " * (MOST_ARGUMENTS + 1): f"the arguments have {MOST_ARGUMENTS + 1} characters",
}


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: ascii(text[:30]))
def test_malformed_arguments_are_one_short_error_and_on_record(session: Session, text: str) -> None:
    bench = bench_of(session)
    result = bench.call(ToolCall(id="x", name="read_artifact", arguments=text))
    assert result.is_error and BROKEN[text] in result.text and len(result.text) < 1000 and "\n" not in result.text
    assert (entries(session, "call"), entries(session, "result")) == (1, 1)
    assert bench.history() == ()


@pytest.mark.parametrize("phase", ["plan", "watch", "submit"])
@settings(max_examples=25, deadline=None, suppress_health_check=SLOW)
@given(data=st.data())
def test_whatever_a_model_calls_has_one_result_and_no_exception(session: Session, phase: Phase, data: Any) -> None:
    session.launcher.poll = lambda _: JobState("lost")  # type: ignore[method-assign]
    name = data.draw(
        st.sampled_from([*(tool.name for tool in TOOLS), "hand_in", "ask", "", "\x00", "read_spec ", "__class__"])
    )
    fields = (list(tool_named(name).arguments.model_fields) if name in {tool.name for tool in TOOLS} else []) or FIELDS
    object_of = st.dictionaries(st.sampled_from(fields) | st.text(max_size=5), JSON, max_size=4)
    text = data.draw(object_of.map(json.dumps) | JSON.map(json.dumps) | st.text(max_size=60))
    id = data.draw(st.text(max_size=30))
    bench = bench_of(session, phase)
    # The session is that of the examples before too, and one of them may have ended the phase.
    if bench.done:
        return
    before = entries(session, "call"), entries(session, "result")
    result = bench.call(ToolCall(id=id, name=name, arguments=text))
    assert (entries(session, "call"), entries(session, "result")) == (before[0] + 1, before[1] + 1)
    assert len(result.text) <= MOST_RESULT and "\x1b" not in result.text
    assert "Traceback" not in result.text and "this tool failed" not in result.text


def test_an_unknown_tool_and_one_that_is_not_open_are_reported(session: Session) -> None:
    bench = bench_of(session)
    assert "unknown tool 'run_shell'; the tools are read_spec, list_artifacts" in call(bench, "run_shell").text
    assert call(bench, "submit_stage").text == "submit_stage is not open now: this is the phase 'plan'"
    assert call(bench, "\x1b[2Jx\u200by").text.startswith("unknown tool 'xy'")


def test_a_fault_of_a_tool_is_a_result_and_damage_stops_the_session(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(error: Exception) -> Any:
        def tool(*_: Any) -> str:
            raise error

        return tool

    bench = bench_of(session)
    for error in (KeyError("secret"), OSError("disk"), ValueError("x"), RecursionError("deep")):
        monkeypatch.setitem(CARRY_OUT, "read_spec", breaks(error))
        result = call(bench, "read_spec", section=f"/{type(error).__name__}")
        assert result.text == f"this tool failed ({type(error).__name__}) and did nothing that counts"
    monkeypatch.setitem(CARRY_OUT, "read_spec", breaks(AuditDamage("the trail was changed")))
    with pytest.raises(AuditDamage):
        call(bench, "read_spec", section="/damage")


def test_every_tool_has_a_function_and_a_schema_without_surprises() -> None:
    assert set(CARRY_OUT) == {tool.name for tool in (*TOOLS, *HELPER_TOOLS)}
    for tool in TOOLS:
        assert tool.schema()["additionalProperties"] is False
        required = tool.schema().get("required", [])
        if required:
            with pytest.raises(ToolCallRefusal):
                read_arguments(tool, "{}")


def test_pages_of_an_artifact_join_to_the_whole(session: Session) -> None:
    end_job(session, "sample", {"rows": rows("first", "second", "third")})
    bench = bench_of(session)
    whole = call(bench, "read_artifact", name="sample.1.rows", limit=20_000).text
    size = int(whole.split(" of ")[1].split("\n")[0])
    body = whole.split("-----\n", 1)[1].rsplit("\n----- END", 1)[0]
    pages: list[str] = []
    for offset in range(0, size, 333):
        text = call(bench, "read_artifact", name="sample.1.rows", offset=offset, limit=333).text
        assert (f"continue with offset {offset + 333}" in text) == (offset + 333 < size)
        pages.append(text.split("-----\n", 1)[1].rsplit("\n----- END", 1)[0])
    assert "".join(pages) == body and len(body) == size
    past = call(bench, "read_artifact", name="sample.1.rows", offset=size)
    assert past.is_error and f"has {size} characters" in past.text


def test_artifacts_are_listed_with_names_that_read(session: Session) -> None:
    end_job(session, "sample", {"rows": rows("x"), "accepted": rows("x")})
    bench = bench_of(session)
    call(bench, "write_note", text="one")
    listed = [line.split(":")[0] for line in call(bench, "list_artifacts").text.splitlines()[:-1]]
    assert listed == ["constitution", "data.prompts", "sample.1.rows", "sample.1.accepted", "note.1"]
    assert all(not call(bench, "read_artifact", name=name).is_error for name in listed)


def test_the_end_of_a_long_log_is_shown_and_a_cut_line_is_not(session: Session) -> None:
    lines = [f"line {number} {'x' * 80}" for number in range(3000)]
    (job_folder(session) / "log.txt").write_text("\n".join(lines))
    text = call(bench_of(session, "watch"), "job_logs", lines=500).text
    views = [line for line in text.splitlines() if line.startswith("line ")]
    assert views == lines[-len(views) :] and len(views) > 150
    (job_folder(session) / "log.txt").write_text("\n".join(f"line {number} {'x' * 20_000}" for number in range(9)))
    text = call(bench_of(session, "watch"), "job_logs", lines=500).text
    views = [line[:6] for line in text.splitlines() if "x" * 100 in line]
    assert views == ["line 6", "line 7", "line 8"]


def test_job_status_waits_shows_progress_and_ends_the_watch(session: Session) -> None:
    seen: list[Any] = []
    session.display.progress = lambda *lines: seen.append(lines)  # type: ignore[method-assign]
    states: Iterator[Literal["running", "lost"]] = iter(("running", "lost"))
    session.launcher.poll = lambda _: JobState(next(states))  # type: ignore[method-assign]
    progress = {"time": 1.0, "done": 2, "total": 9, "unit": "steps", "note": {"loss": 1.5}}
    (job_folder(session) / "progress.jsonl").write_text(json.dumps(progress) + "\n" + '{"half')
    bench = bench_of(session, "watch")
    assert call(bench, "job_status").text == "small.sample.1 is lost: its process is gone and left no exit record"
    assert bench.done and [(stage, item.done) for stage, item in seen] == [("sample", 2)]
    assert call(bench, "job_status").text.startswith("this phase has ended")


def test_launch_is_refused_outside_of_ranges_and_for_other_stages(session: Session) -> None:
    bench = bench_of(session)
    for changes, why in (
        ({"temperature": 1.5}, "temperature = 1.5 leaves the allowed range [0.5, 1]"),
        ({"seed": 8}, "'seed' has no allowed range in stage 'sample'"),
        ({"temperature": "0.9"}, "temperature = '0.9' leaves the allowed range"),
        ({"temperature": True}, "temperature = True leaves the allowed range"),
    ):
        result = call(bench, "launch_stage", stage="sample", reason="r", changes=changes)
        assert result.is_error and why in result.text
    result = call(bench, "launch_stage", stage="train", reason="r")
    assert result.is_error and "stage 'train' has no grant: only 'sample' (attempt 1) is open" in result.text
    assert not bench.done
    long = call(bench, "launch_stage", stage="sample", reason="r", answers={f"f{n}": "x" * 2000 for n in range(20)})
    assert long.is_error and "at most 32000" in long.text
    assert call(bench, "launch_stage", stage="sample", reason="r", answers={"f" * 101: "x"}).is_error
    assert not call(bench, "launch_stage", stage="sample", reason="r", changes={"temperature": 0.9}).is_error
    assert bench.done and bench.work.launch is not None and bench.work.launch.changes == {"temperature": 0.9}


def test_a_launch_without_a_change_that_the_gate_required_by_number_is_refused(session: Session) -> None:
    open_stage(session, attempt=2, required={"temperature": 0.6})
    bench = bench_of(session, attempt=2)
    for changes, now in (({}, "0.8"), ({"temperature": 0.7}, "0.7")):
        result = call(bench, "launch_stage", stage="sample", reason="r", changes=changes)
        output = f"the gate requires temperature = 0.6, and this launch has {now}: put it into changes"
        assert result.is_error and result.text == f"{output}, or end with ask_person" and not bench.done
    assert not call(bench, "launch_stage", stage="sample", reason="r", changes={"temperature": 0.6}).is_error
    assert bench.done


@pytest.mark.parametrize(
    ("stated", "requests", "output"),
    [
        ({"loss": 900.0}, [{"figure": "loss", "above": 10}], "ALARM: loss is 900, above 10. cancel_job ends the job."),
        ({"loss": "nan"}, [{"figure": "loss"}], "ALARM: loss is not a finite number"),
        ({"loss": "inf"}, [{"figure": "loss", "above": 10}], "ALARM: loss is not a finite number"),
        ({"speed": 0.5}, [{"figure": "speed", "below": 1}], "ALARM: speed is 0.5, below 1"),
        ({"loss": 9.0}, [{"figure": "loss", "above": 10}], ""),
        ({"loss": 900.0}, [{"figure": "other", "above": 10}], ""),
    ],
)
def test_an_alarm_ends_a_wait(session: Session, stated: Any, requests: list[dict[str, Any]], output: str) -> None:
    session.launcher.poll = lambda _: JobState("running")  # type: ignore[method-assign]
    progress = {"time": 1.0, "done": 2, "total": 9, "unit": "steps", "note": stated}
    (job_folder(session) / "progress.jsonl").write_text(json.dumps(progress) + "\n")
    bench = bench_of(session, "watch")
    began = time.monotonic()
    result = call(bench, "job_status", wait_seconds=30 if output else 0, alarms=requests)
    assert time.monotonic() - began < 10 and not bench.done
    assert result.text.startswith(output or "small.sample.1 is running. Stated by the job")


def test_a_job_that_stalls_ends_a_wait(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]

    def sleep(seconds: float) -> None:
        now[0] += 3.0

    monkeypatch.setattr("sessions.builder.tools.job_tools.time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    session.launcher.poll = lambda _: JobState("running")  # type: ignore[method-assign]
    text = call(bench_of(session, "watch"), "job_status", wait_seconds=600, stalled_seconds=20).text
    assert text.startswith("ALARM: no progress for 21 s. ") and "no progress yet" in text and now[0] < 1030


@pytest.mark.parametrize(
    ("answers", "limit", "output"),
    [
        ({"gpu_idle_s": 75.0}, 60, "ALARM: its GPU has been idle for 75 s. cancel_job ends the job.\n"),
        ({"gpu_idle_s": 0.0}, 60, "small.sample.1 is running; no progress yet"),
        ({"gpu_idle_s": 75.0}, None, "small.sample.1 is running; no progress yet"),
        ({}, 60, "How busy its GPU is, is not known: nvidia-smi says nothing.\nsmall.sample.1 is running"),
    ],
)
def test_a_gpu_that_idles_ends_a_wait(
    session: Session, answers: dict[str, Any], limit: int | None, output: str
) -> None:
    session.launcher.poll = lambda _: JobState("running")  # type: ignore[method-assign]
    (job_folder(session) / "heartbeat.json").write_text(json.dumps({"time": 1.0} | answers))
    wait = 600 if output.startswith("ALARM") else 0
    result = call(bench_of(session, "watch"), "job_status", wait_seconds=wait, gpu_idle_seconds=limit)
    assert result.text.startswith(output)


def test_a_job_is_ended_by_its_builder_and_not_one_that_sees_heldout_items(session: Session) -> None:
    lines: list[str] = []
    states: Iterator[Literal["running", "lost"]] = iter(("running", "lost"))
    session.launcher.poll = lambda _: JobState(next(states))  # type: ignore[method-assign]
    session.launcher.cancel = lambda _, reason: lines.append(reason)  # type: ignore[method-assign]
    refused = call(bench_of(session, "watch", "base"), "cancel_job", reason="it looks bad")
    assert refused.is_error and refused.text.startswith("stage 'base' sees held-out items") and lines == []
    bench = bench_of(session, "watch")
    assert call(bench, "cancel_job", reason="").is_error
    assert "small.sample.1 has ended; this attempt counts" in call(bench, "cancel_job", reason="the loss is nan").text
    assert bench.done and lines == ["playbook: the loss is nan"]


@pytest.mark.parametrize(
    ("cancelled_first", "ended", "withdrawn"),
    [
        (True, "cancelled", "the loss is nan"),
        # It had ended by itself when the call came, or someone else ended it: its gate judges it.
        (True, "exited", ""),
        (False, "cancelled", ""),
    ],
)
def test_an_attempt_is_withdrawn_by_its_builders_call_and_the_exit_record_together(
    session: Session, cancelled_first: bool, ended: Literal["cancelled", "exited"], withdrawn: str
) -> None:
    session.launcher.poll = lambda _: JobState("lost")  # type: ignore[method-assign]
    call(bench_of(session, "watch"), "write_note", text="no call to end it")
    if cancelled_first:
        call(bench_of(session, "watch", "base"), "cancel_job", reason="not this one")
        call(bench_of(session, "watch"), "cancel_job", reason="the loss is nan")
    end_job(session, "sample", {"rows": rows("x")}, reason=ended)
    assert session.evidence("sample", 1).withdrawn == withdrawn


def claim(value: float, metric: str = "accepted", stage: str = "sample", tolerance: float = 0.0) -> dict[str, Any]:
    return {"stage": stage, "metric": metric, "value": value, "tolerance": tolerance}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (claim(4), "contradicted: sample accepted = 4"),
        (claim(3.0000001), "contradicted"),
        (claim(0.05, "accuracy", "base") | {"value": 0.9}, "contradicted: base accuracy = 0.9"),
        (claim(3, tolerance=-1), "states no number"),
        (claim(3, "m" * 101), "names nothing"),
        (claim(3, stage="s" * 101), "names nothing"),
    ],
)
def test_a_claim_the_rows_contradict_is_sent_back_and_counted(session: Session, value: Any, why: str) -> None:
    measure(session, "base", {"accuracy": 0.05})
    measure(session, "sample", {"accepted": 3.0})
    bench = bench_of(session, "submit")
    result = call(bench, "submit_stage", claims=[claim(3), value])
    assert result.is_error and result.text.startswith("sent back") and why in result.text
    assert not bench.done and bench.work.submission is None and bench.sent_back == 1
    assert bench_of(session, "submit").sent_back == 1
    assert call(bench, "submit_stage", claims="x").is_error and bench.sent_back == 1
    assert not call(bench, "submit_stage", claims=[claim(3)]).is_error and bench.done


@pytest.mark.parametrize("value", [claim(9, tolerance=8), claim(3, stage="nowhere"), claim(3, "invented")])
def test_claims_that_nothing_supports_are_reported_and_handed_on(session: Session, value: Any) -> None:
    measure(session, "sample", {"accepted": 3.0})
    bench = bench_of(session, "submit")
    result = call(bench, "submit_stage", claims=[value])
    assert not result.is_error and result.text.startswith("unsupported: ") and bench.work.submission is not None


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", '"3"', "true", "null"])
def test_a_claim_without_a_number_is_malformed(session: Session, number: str) -> None:
    bench = bench_of(session, "submit")
    text = '{"claims": [{"stage": "sample", "metric": "accepted", "value": %s, "tolerance": %s}]}'
    for word in (text % (number, 0), text % (3, number)):
        assert "malformed arguments" in bench.call(ToolCall(id="c", name="submit_stage", arguments=word)).text
    assert not bench.done


def test_the_same_note_is_kept_once(session: Session) -> None:
    bench = bench_of(session)
    lines = [call(bench, "write_note", text=text).text for text in ("a", "b", "a")]
    assert lines == ["kept as note.1", "kept as note.2", "note.1 holds this already; nothing was added"]
    assert call(bench, "propose_plan", plan="a").text == "kept as note.3"
    changes = [{"pointer": "/budget/max_cost_usd", "value": 99}]
    told_person = call(bench, "propose_amendment", changes=changes, reason="more").text
    assert told_person.startswith("kept as note.4; a person adopts it") and entries(session, "amendment") == 0
    assert "/budget/max_cost_usd = 99" in call(bench, "read_artifact", name="note.4").text


def test_checks_of_an_attempt_without_evidence_say_what_is_missing(session: Session) -> None:
    text = call(bench_of(session, "submit"), "run_checks").text
    assert "BLOCKED jobs.granted, keeps the gate closed: " in text and text.count("----- ") == 2


def test_metrics_of_what_was_not_measured_are_refused(session: Session) -> None:
    bench = bench_of(session)
    assert call(bench, "read_metrics", stage="\x1b[31mbase").text == "nothing was measured of stage 'base' yet"
    measure(session, "sample", {"accepted": 3.0})
    report = json.loads(call(bench, "read_metrics", stage="sample").text)
    assert report["metrics"]["accepted"]["value"] == 3.0 and report["attempt"] == 1
    assert call(bench, "read_metrics", stage="sample", attempt=2).is_error
