"""Whole sessions whose builder is played over the wire: the real graph, gates, walls, ledger and trail."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.model_builder import ModelBuilder
from reviews.audit.verify import verify_run
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.run.run_layout import STORE, TRAIL
from sessions.runtime import runtime
from specs.system.errors import BuilderUnavailable, UserError
from specs.system.vendors import http_exchange
from specs.system.vendors.api_keys import ENDPOINT_KEYS, KEYS
from testing.factories.spec_files import write_spec
from testing.fixtures.command_sessions import environment
from testing.fixtures.loopback_api import ANTHROPIC, CHAT, OPENAI, failed
from testing.fixtures.quick_session import POWERED, Silent, drive, open_quick, quick_session
from testing.fixtures.scripted_builder import (
    Call,
    Played,
    Reply,
    Turn,
    as_step,
    call,
    calls,
    follows_the_spec,
    scripted_builder,
    texts_of,
)

pytestmark = pytest.mark.integration

KEY = "sk-ant-api03-CANARY-that-must-never-be-written"
MODELS = {OPENAI: "gpt-5.6-sol", CHAT: "local", ANTHROPIC: "claude-opus-5"}


@pytest.fixture(params=[ANTHROPIC, OPENAI])
def vendor(request: pytest.FixtureRequest) -> str:
    return request.param


def open_with(folder: Path, vendor: str, address: str = "", **limits: Any) -> Path:
    more = "".join(f", {name}: {value}" for name, value in limits.items())
    at = f", base_url: '{address}', usd_per_million_tokens: {{input: 1, output: 2}}" if vendor == CHAT else ""
    party = OPENAI if vendor == CHAT else vendor
    builder = f"builder: {{vendor: {party}, model: {MODELS[vendor]}{at}{more}}}"
    return open_quick(folder, ("builder: {vendor: playbook}", builder))


def play(run: Path, played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drive the session with the builder its spec names; only the address is the loopback server's."""
    monkeypatch.setattr(http_exchange, "BACKOFF_S", 0.01)
    name = ENDPOINT_KEYS["builder"] if played.vendor == CHAT else KEYS[played.vendor]
    if played.vendor != CHAT:
        monkeypatch.setitem(http_exchange.ADDRESSES, played.vendor, played.address)
    monkeypatch.setenv(name, KEY)
    session = quick_session(run, display=Silent())  # type: ignore[arg-type]
    session.builder = ModelBuilder(session.resolved.spec.builder, {name: KEY})
    drive(session)


def entries(run: Path, *kinds: str) -> list[RecordedEntry]:
    return [entry for entry in read_entries(run / "trail.sqlite") if entry.kind in kinds]


def builders_money(run: Path, what: str) -> dict[str, float]:
    spent = [entry.raw for entry in entries(run, "spend") if entry.raw["party"] == "builder"]
    return {row["job"]: row["usd"] for row in spent if row["what"] == what}


def written(run: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in run.rglob("*") if path.is_file())


def faults(vendor: str) -> list[Turn]:
    """Return everything that goes wrong once, on the wire and in the model's own calls."""
    return [
        failed(vendor, 429, retry_after="0.1"),
        failed(vendor, 529),
        failed(vendor, 500),
        Reply("I begin", cut=True),
        calls(Call("launch_stage", '{"stage": "base", "reas')),
        call("open_the_gate", verdict="approve"),
        calls(Call("read_artifact", {"name": "heldout"}), Call("list_artifacts", {}), text="Let me look."),
        Reply("The gate should simply approve this."),
        call("launch_stage", stage="base", reason="faster", changes={"max_new_tokens": 4}),
    ]


@pytest.mark.parametrize(
    "vendor", [ANTHROPIC, *(pytest.param(text, marks=pytest.mark.more) for text in (OPENAI, CHAT))]
)
def test_a_session_is_worked_through_to_its_end_whatever_the_wire_and_the_model_do(
    tmp_path: Path, vendor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted_builder(vendor, faults(vendor), canaries=(KEY,), then=follows_the_spec) as played:
        run = open_with(tmp_path, vendor, played.address)
        play(run, played, monkeypatch)
        assert played.complaints() == []
        output = " ".join(texts_of(played.bodies()[-1]) + [text for body in played.bodies() for text in texts_of(body)])
    (close,) = entries(run, "close")
    assert close.raw["decision"] == "approve"
    assert KEY.encode() not in written(run) and KEY not in output
    # A plan and a submission of each of five stages, and the five turns of the script that were whole.
    turns = entries(run, "turn")
    assert len(turns) == 15 and {entry.raw["usd_is_measured"] for entry in turns} == {True}
    refused = Counter(entry.raw["is_error"] for entry in entries(run, "result"))
    assert refused[True] == 4, "malformed, unknown, held-out, outside its range"
    assert all(name in output for name in ("malformed arguments", "unknown tool", "Your answer called no tool"))
    assert verify_run(run, TRAIL, STORE).damage == []
    # One turn was cut off: it may have been billed, so its cap counts, and its repeat had a reservation of its own.
    reserved, settled = builders_money(run, "reserve"), builders_money(run, "settle")
    assert set(reserved) == set(settled) and len(reserved) == 16
    assert sum(settled[job] == reserved[job] for job in reserved) == 1
    assert all(0 < settled[job] <= reserved[job] for job in reserved)


@pytest.mark.parametrize("vendor", [ANTHROPIC, pytest.param(OPENAI, marks=pytest.mark.slow)])
def test_an_outage_pauses_the_session_and_it_goes_on_where_it_stopped(
    tmp_path: Path, vendor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_with(tmp_path, vendor, outage_s=0)
    with scripted_builder(vendor, [call("read_spec", section="/stages/0"), failed(vendor, 503)]) as played:
        with pytest.raises(BuilderUnavailable, match="status 503"):
            play(run, played, monkeypatch)
        before = texts_of(played.bodies()[-1])
    with scripted_builder(vendor, [], then=follows_the_spec, before=played) as played:
        play(run, played, monkeypatch)
        # The call that was made is known by the server before, and is not made again.
        again = texts_of(played.bodies()[0])
        assert played.complaints() == []
    assert again[1:] == before[1:] and len(again) == 3
    assert [entry.raw["tool"] for entry in entries(run, "call")].count("read_spec") == 1
    assert entries(run, "close")[0].raw["decision"] == "approve"
    reserved, settled = builders_money(run, "reserve"), builders_money(run, "settle")
    # What the API refused cost nothing.
    assert set(reserved) == set(settled) and sum(usd == 0 for usd in settled.values()) == 1


TWO_EFFECTS = calls(
    Call("write_note", {"text": "I was here"}), Call("read_spec", {}), Call("write_note", {"text": "and here"})
)


def drive_in_a_process(run: Path, played: Played, *killed: str) -> subprocess.Popen[bytes]:
    environ = environment() | {KEYS[played.vendor]: KEY}
    command = [sys.executable, "-m", "testing.fixtures.quick_built", str(run), played.vendor, played.address]
    return subprocess.Popen([*command, *killed], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "at",
    [
        pytest.param(("call", "2"), id="call-2"),
        pytest.param(("result", "3"), id="result-3"),
        pytest.param(("stream", "1"), id="stream-1"),
    ],
)
@pytest.mark.parametrize("vendor", [OPENAI])
def test_a_session_killed_in_the_middle_of_a_turn_repeats_no_call(
    tmp_path: Path, vendor: str, at: tuple[str, str]
) -> None:
    run = open_with(tmp_path, vendor)
    with scripted_builder(vendor, [TWO_EFFECTS], canaries=(KEY,), then=follows_the_spec) as played:
        if at[0] == "stream":
            # Half an answer, and then a byte now and again until no one listens any more.
            whole = as_step(vendor, TWO_EFFECTS, [])
            played.turns.insert(0, replace(whole, body=whole.body[: len(whole.body) // 2], drip_s=0.05))
        with drive_in_a_process(run, played, *(() if at[0] == "stream" else at)) as first:
            if at[0] == "stream":
                wait_until(lambda: bool(played.requests and played.requests[0].ended))
                first.kill()
            _, errors = first.communicate(timeout=120)
            assert first.returncode == -signal.SIGKILL, errors.decode()
        killed = len(played.requests)
        with drive_in_a_process(run, played) as second:
            _, errors = second.communicate(timeout=120)
            assert second.returncode == 0, errors.decode()
        complaints = played.complaints()
        lines = texts_of(played.bodies()[killed])
    # What was cut off is asked for again; a turn that is on record is not.
    assert (len(lines) == 1) == (at[0] == "stream")
    assert complaints == (["request 2: before the one before had ended"] if complaints and at[0] == "stream" else [])
    assert entries(run, "close")[0].raw["decision"] == "approve"
    notes = [Store(run / STORE).get(entry.raw["text"]) for entry in entries(run, "note")]
    assert notes == [b"I was here", b"and here"]
    made = [entry.raw["call_id"] for entry in entries(run, "call") if entry.raw["turn"] == 1][:3]
    assert len(set(made)) == 3 and len(entries(run, "result")) == len(entries(run, "call"))
    assert len(entries(run, "turn")) == 11 and verify_run(run, TRAIL, STORE).damage == []
    reserved, settled = builders_money(run, "reserve"), builders_money(run, "settle")
    assert set(reserved) == set(settled) and len(reserved) == 11 + (at[0] == "stream")


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_model_that_goes_silent_has_a_person_asked(
    tmp_path: Path, vendor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_with(tmp_path, vendor)
    with scripted_builder(vendor, [Reply("Done."), Reply("Done, I said.")]) as played:
        play(run, played, monkeypatch)
        assert played.complaints() == []
    assert entries(run, "close", "launch") == []
    (entry,) = entries(run, "call")
    assert entry.raw["tool"] == "ask_person"


def test_a_session_without_its_builders_key_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEYS[ANTHROPIC], raising=False)
    builder = "builder: {vendor: anthropic, model: claude-opus-5}"
    spec = write_spec(tmp_path, ("builder: {vendor: playbook}", builder), ("  minimum_effect: 0.1\n", POWERED[1]))
    with pytest.raises(UserError, match="ANTHROPIC_API_KEY is not set"):
        runtime.start(spec, tmp_path / "runs", None, Silent())  # type: ignore[arg-type]
    assert not (tmp_path / "runs").exists()


def test_a_session_is_cancelled_without_its_builders_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = open_with(tmp_path, ANTHROPIC)
    monkeypatch.delenv(KEYS[ANTHROPIC], raising=False)
    runtime.cancel(run, Silent())  # type: ignore[arg-type]
    assert entries(run, "close")[0].raw["decision"] == "cancelled"
