"""The builder outside: its place in a spec, its calls' way through the exchange, and who may judge it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agents.external_builder import STOPPED, AbsentBuilder, BuilderExchange, CallAnswer, ExternalBuilder
from agents.workbench_protocol import Workbench
from reviews.gate.design_checks import DESIGN_CHECKS, DesignEvidence
from specs.system.errors import BuilderUnavailable
from specs.system.vendors.conversation import ToolCall, ToolResult
from specs.system.vendors.parties import BuilderSpec
from testing.factories.spec_files import list_problems, loads, write_spec

BOTH = "builder: {vendor: playbook}\nreviewer: {vendor: checklist}"
JUDGED = ("review: 0.05", "review: 0.6"), ("evaluation: 0.2", "evaluation: 0.05")


def parties(builder: str, reviewer: str = "{vendor: checklist}") -> tuple[str, str]:
    return BOTH, f"builder: {builder}\nreviewer: {reviewer}"


@dataclass
class Bench:
    """A workbench that ends when told, and remembers what it was called with."""

    phase: str = "plan"
    ends_with: str = "launch_stage"
    done: bool = False
    brief: str = "# title\n\nwhat to do\n\nmore"
    called: list[ToolCall] = field(default_factory=list[ToolCall])
    fails: BaseException | None = None
    view: Any = field(default_factory=lambda: SimpleNamespace(stage="base", attempt=1))

    def call(self, call: ToolCall) -> ToolResult:
        if self.fails is not None:
            raise self.fails
        self.called.append(call)
        self.done = call.name == self.ends_with
        return ToolResult(call=call.id, text=f"did {call.name}")


def call(name: str, arguments: str = "{}") -> ToolCall:
    return ToolCall(id=f"client #{name}", name=name, arguments=arguments)


def work(exchange: BuilderExchange, bench: Bench, goes_on: bool = True) -> None:
    ExternalBuilder(exchange, lambda _: goes_on).work(cast(Workbench, bench))


def test_calls_are_carried_out_in_order_by_the_thread_that_works_and_the_last_one_ends_the_phase() -> None:
    exchange, bench = BuilderExchange(), Bench()
    first, brief, last, late = (
        exchange.ask(call(name)) for name in ("read_spec", "brief", "launch_stage", "read_spec")
    )
    work(exchange, bench)
    assert [tool_call.name for tool_call in bench.called] == ["read_spec", "launch_stage"]
    assert first.answer.result(0) == CallAnswer(ToolResult(call="client #read_spec", text="did read_spec"))
    assert brief.answer.result(0).result.text == bench.brief
    assert last.answer.result(0).ended == 1
    # What came too late waits for the next phase.
    assert not late.answer.done()
    work(exchange, Bench(phase="submit", ends_with="read_spec"))
    assert late.answer.result(0).ended == 2


def test_while_a_phase_is_open_its_title_is_known_and_afterwards_none() -> None:
    exchange, seen = BuilderExchange(), list[str]()
    bench = Bench()

    def goes_on(_: Workbench) -> bool:
        seen.append(exchange.heading)
        return True

    exchange.ask(call("launch_stage"))
    ExternalBuilder(exchange, goes_on).work(cast(Workbench, bench))
    assert seen == ["# title\n\nwhat to do"] and exchange.heading == ""


def test_a_withdrawn_call_is_not_carried_out() -> None:
    exchange, bench = BuilderExchange(), Bench()
    gone = exchange.ask(call("write_note"))
    assert gone.answer.cancel()
    exchange.ask(call("launch_stage"))
    work(exchange, bench)
    assert [tool_call.name for tool_call in bench.called] == ["launch_stage"]


def test_a_job_that_ends_without_a_client_ends_the_watch() -> None:
    exchange, bench = BuilderExchange(), Bench(phase="watch")
    work(exchange, bench, goes_on=False)
    assert not bench.done and bench.called == []


def test_a_wait_that_is_over_before_the_job_is_recorded_as_one_that_does_not_wait() -> None:
    exchange, bench = BuilderExchange(), Bench(phase="watch", ends_with="job_logs")
    waited = exchange.ask(call("job_status", '{"wait_seconds": 1}'))
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work, exchange, bench)
        assert waited.answer.result(30).result.text == "did job_status"
        exchange.ask(call("job_logs"))
        working.result(30)
    assert [tool_call.arguments for tool_call in bench.called] == ['{"wait_seconds":0}', "{}"]


def test_waits_that_are_withdrawn_are_forgotten_and_those_a_phase_leaves_behind_go_to_the_next() -> None:
    exchange, bench = BuilderExchange(), Bench(phase="watch", ends_with="job_logs")
    gone, pending_call = (exchange.ask(call("job_status", f'{{"wait_seconds": {n}}}')) for n in (1, 900))
    taken: list[bool] = []

    def goes_on(_: Workbench) -> bool:
        taken.append(gone.answer.cancel() if len(taken) == 2 else False)
        if len(taken) == 12:
            exchange.ask(call("job_logs"))
        return True

    # Twelve looks take longer than the wait that was withdrawn.
    ExternalBuilder(exchange, goes_on).work(cast(Workbench, bench))
    assert [tool_call.name for tool_call in bench.called] == ["job_logs"] and gone.answer.cancelled()
    assert exchange.take(0) is pending_call


@pytest.mark.parametrize("arguments", ['{"wait_seconds": "long"}', "not json", '{"wait_seconds": 10, "more": 1}'])
def test_a_malformed_wait_goes_to_the_workbench_at_once(arguments: str) -> None:
    exchange, bench = BuilderExchange(), Bench(phase="watch", ends_with="job_status")
    exchange.ask(call("job_status", arguments))
    work(exchange, bench)
    assert bench.called[0].arguments == arguments


def test_whoever_waits_is_answered_when_the_session_stops() -> None:
    exchange, bench = BuilderExchange(), Bench(phase="watch", fails=KeyboardInterrupt())
    waiting = exchange.ask(call("job_status", '{"wait_seconds": 900}'))
    failing = exchange.ask(call("read_spec"))
    with pytest.raises(KeyboardInterrupt):
        work(exchange, bench)
    for pending_call in (waiting, failing):
        assert pending_call.answer.result(0).result.text == STOPPED
    assert failing.answer.result(0).result.is_error


def test_calls_from_many_threads_are_carried_out_one_at_a_time() -> None:
    exchange, bench = BuilderExchange(), Bench()
    threads = {threading.get_ident()}
    plain = bench.call

    def noted(tool_call: ToolCall) -> ToolResult:
        threads.add(threading.get_ident())
        return plain(tool_call)

    bench.call = noted  # type: ignore[method-assign]
    with ThreadPoolExecutor(8) as pool:
        calls = list(pool.map(exchange.ask, [call(f"note{n}") for n in range(50)]))
    exchange.ask(call("launch_stage"))
    work(exchange, bench)
    assert len(bench.called) == 51 and threads == {threading.get_ident()}
    assert all(pending_call.answer.done() for pending_call in calls)


def test_without_a_client_the_builder_cannot_be_reached() -> None:
    bench: Any = type("B", (), {"view": type("V", (), {"stage": "base", "attempt": 1})()})()
    with pytest.raises(BuilderUnavailable, match="no client is connected"):
        AbsentBuilder().work(bench)


@pytest.mark.parametrize("builder", ["{vendor: external}", "{vendor: external, model_vendor: anthropic}"])
@pytest.mark.parametrize("reviewer", ["{vendor: checklist}", "{vendor: person}"])
def test_who_asks_no_model_may_judge_any_external_builder(tmp_path: Path, builder: str, reviewer: str) -> None:
    resolved = loads(write_spec(tmp_path, parties(builder, reviewer)))
    assert resolved.spec.builder.vendor == "external"


@pytest.mark.parametrize("stated", ["other", "anthropic"])
def test_a_model_of_another_vendor_than_the_stated_one_may_judge_with_a_warning(tmp_path: Path, stated: str) -> None:
    judge = "{vendor: openai, model: gpt-5-mini}"
    builder = f"{{vendor: external, model_vendor: {stated}}}"
    resolved = loads(write_spec(tmp_path, parties(builder, judge), *JUDGED))
    (independence,) = [check for check in DESIGN_CHECKS if check.id == "design.independence"]
    outcome = independence.run(DesignEvidence(resolved=resolved, heldout=(), data={}, costs={}))
    assert outcome.status == "WARN" and "its user stated" in outcome.detail


@pytest.mark.parametrize(
    ("stated", "status"), [(None, "FAIL"), ("openai", "FAIL"), ("anthropic", "WARN"), ("other", "WARN")]
)
def test_the_design_check_does_not_rest_on_the_rule_alone(tmp_path: Path, stated: Any, status: str) -> None:
    judge = "{vendor: openai, model: gpt-5-mini}"
    resolved = loads(write_spec(tmp_path, parties("{vendor: external, model_vendor: other}", judge), *JUDGED))
    builder = BuilderSpec(vendor="external", model_vendor=stated)
    changed = resolved.model_copy(update={"spec": resolved.spec.model_copy(update={"builder": builder})})
    (independence,) = [check for check in DESIGN_CHECKS if check.id == "design.independence"]
    assert independence.run(DesignEvidence(resolved=changed, heldout=(), data={}, costs={})).status == status


@pytest.mark.parametrize(
    ("builder", "reviewer", "message"),
    [
        ("{vendor: external}", "{vendor: openai, model: gpt-5-mini}", "does not state whose model"),
        (
            "{vendor: external, model_vendor: openai}",
            "{vendor: openai, model: gpt-5-mini}",
            "of the builder's model vendor 'openai'",
        ),
        ("{vendor: external, model: claude}", "{vendor: checklist}", "'external' works without a model"),
        ("{vendor: external, timeout_s: 5}", "{vendor: checklist}", "'external' asks no model"),
        ("{vendor: playbook, model_vendor: other}", "{vendor: checklist}", "model_vendor is for 'external'"),
    ],
)
def test_whose_model_an_external_builder_is_has_to_be_said_and_fit(
    tmp_path: Path, builder: str, reviewer: str, message: str
) -> None:
    problems = list_problems(write_spec(tmp_path, parties(builder, reviewer), *JUDGED))
    assert any(message in problem for problem in problems), problems
