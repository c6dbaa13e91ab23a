"""Tools that look: rows, texts, history, findings, documentation, and analyses in the sandbox."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from reviews.audit.audit_files import named_in_store
from sessions.builder.tools import library_docs
from sessions.builder.workbench import SessionWorkbench
from sessions.jobs.sandbox.analysis import analyse
from sessions.session import Session
from specs.system.confinement import bubblewrap
from specs.trail.verdict import Decision, Finding, RequiredChange, Span, Verdict
from testing.factories.benches import HELDOUT, bench_of, call, copy_of, end_job, measure, open_stage
from testing.factories.bodies import NAME, append_json, body_of
from testing.factories.evidence_on_disk import steps
from testing.fixtures.sandbox import needs_sandbox

ROWS: list[dict[str, Any]] = [
    {"item": "a", "kind": "x", "completion": "short", "score": {"value": 0.5}},
    {"item": "b", "kind": "x", "completion": "a much longer text", "score": {"value": 0.1}},
    {"item": "c", "kind": "y", "completion": f"It said: {HELDOUT}", "score": {"value": 0.9}},
    {"item": "d", "kind": "y", "completion": "short"},
]


@pytest.fixture
def session(session: Session) -> Session:
    end_job(session, "sample", {"rows": lines(ROWS)})
    return session


@pytest.fixture
def bench(session: Session) -> SessionWorkbench:
    return bench_of(session)


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def items(bench: SessionWorkbench, **requests: Any) -> list[str]:
    """Return the items of the rows that a query shows, in order."""
    result = call(bench, "query_rows", name="sample.1.rows", **requests)
    assert not result.is_error, result.text
    return [json.loads(line)["item"] for line in result.text.splitlines() if line.startswith("{")]


def where(field: str, test: str, value: Any) -> list[dict[str, Any]]:
    return [{"field": field, "test": test, "value": value}]


@pytest.mark.parametrize(
    ("requests", "results"),
    [
        ({}, ["a", "b", "c", "d"]),
        ({"where": where("kind", "equals", "x")}, ["a", "b"]),
        ({"where": where("kind", "differs", "x")}, ["c", "d"]),
        ({"where": where("completion", "contains", "longer")}, ["b"]),
        ({"where": where("completion", "lacks", "short")}, ["b", "c"]),
        ({"where": where("score.value", "above", 0.3)}, ["a", "c"]),
        ({"where": where("score.value", "below", 0.3)}, ["b"]),
        ({"where": where("score.value", "above", "0.3")}, []),
        ({"where": where("completion", "longer", 5)}, ["b", "c"]),
        ({"where": where("completion", "shorter", 6)}, ["a", "d"]),
        ({"where": [*where("kind", "equals", "y"), *where("score.value", "above", 0)]}, ["c"]),
        ({"sort_by": "score.value"}, ["b", "a", "c", "d"]),
        ({"sort_by": "score.value", "descending": True, "limit": 2}, ["d", "c"]),
        ({"offset": 2, "limit": 1}, ["c"]),
    ],
)
def test_rows_are_filtered_sorted_and_cut(
    bench: SessionWorkbench, requests: dict[str, Any], results: list[str]
) -> None:
    assert items(bench, **requests) == results


def test_rows_are_sampled_alike_by_the_same_seed(bench: SessionWorkbench) -> None:
    first = items(bench, sample_seed=3, limit=2)
    assert len(first) == 2 and items(bench, sample_seed=3, limit=2, offset=0) == first
    assert {tuple(items(bench, sample_seed=seed, limit=2)) for seed in range(4, 9)} != {tuple(first)}


def test_rows_are_counted_by_group_and_shown_in_part(bench: SessionWorkbench) -> None:
    text = call(bench, "query_rows", name="sample.1.rows", group_by="kind").text
    assert "4 of 4 rows fit; 2 values of kind" in text and "2 x x\n2 x y" in text
    text = call(bench, "query_rows", name="sample.1.rows", fields=["item", "nowhere"], limit=1).text
    assert '{"item": "a"}' in text


def test_no_filter_finds_what_is_withheld(bench: SessionWorkbench) -> None:
    """The control: the row is there, and what it holds of a held-out prompt is not, also for a filter that guesses."""
    assert items(bench, where=where("item", "equals", "c")) == ["c"]
    # Four words of the prompt, which are not secret in themselves: that they are in the row is.
    assert items(bench, where=where("completion", "contains", "line on elm")) == []
    assert HELDOUT not in call(bench, "query_rows", name="sample.1.rows").text
    assert "0 lines" in call(bench, "grep", text="one line on elm").text
    assert (
        call(bench, "query_rows", name="heldout").is_error and call(bench, "grep", text="xx", name="heldout").is_error
    )


def test_a_text_without_rows_is_no_table(bench: SessionWorkbench) -> None:
    result = call(bench, "query_rows", name="constitution")
    assert result.is_error and result.text == "constitution holds no rows; read_artifact shows its text"


def test_a_text_is_found_with_artifact_and_line(bench: SessionWorkbench) -> None:
    text = call(bench, "grep", text="LONGER", ignore_case=True).text
    assert "1 lines of 3 artifacts hold the text, 1 are shown" in text and "sample.1.rows:2: " in text
    assert "0 lines" in call(bench, "grep", text="LONGER").text


def test_two_attempts_are_compared_by_item(session: Session) -> None:
    open_stage(session, attempt=2)
    later = [ROWS[0] | {"completion": "other"}, *ROWS[1:3], {"item": "e", "completion": "new"}]
    end_job(session, "sample", {"rows": lines(later)}, attempt=2)
    bench = bench_of(session, attempt=2)
    requests = {"first": "sample.1.rows", "second": "sample.2.rows", "field": "completion"}
    text = call(bench, "compare_rows", **requests).text
    assert "3 items are in both, 1 in sample.1.rows alone, 1 in sample.2.rows alone; completion differs in 1" in text
    assert '{"item": "a", "first": "short", "second": "other"}' in text
    refused = call(bench, "compare_rows", **requests, by="nowhere")
    assert refused.is_error and refused.text == "no row of sample.1.rows has a field 'nowhere'"


def test_a_metric_is_shown_over_all_attempts(session: Session) -> None:
    measure(session, "sample", {"accepted": 3.0})
    body = body_of("plan", stage="sample", attempt=1, changes={"temperature": 0.6})
    append_json(session.trail, "plan", "plan/sample.1", body)
    append_json(
        session.trail, "decision", "decision/sample.1", body_of("decision", stage="sample", attempt=1) | REVISED
    )
    measure(session, "sample", {"accepted": 5.0}, attempt=2)
    bench = bench_of(session, attempt=2)
    results = [json.loads(line) for line in call(bench, "metric_history", metric="accepted").text.splitlines()]
    assert [(item["attempt"], item["value"]) for item in results] == [("sample.1", 3.0), ("sample.2", 5.0)]
    assert (results[0]["changes"], results[0]["outcome"]) == ({"temperature": 0.6}, "revise")
    assert results[1]["outcome"] == "open"
    refused = call(bench, "metric_history", metric="accuracy", stage="sample")
    assert refused.is_error and refused.text == "no attempt has the metric 'accuracy'; available: accepted"


REVISED = {"outcome": "revise", "opens": {"stage": "sample", "attempt": 2}}


def judged(session: Session, stage: str, statement: str, quote: str) -> None:
    """Record a verdict with one finding, and the decision on it."""
    span = Span(artifact=NAME, pointer="/stage", quote=quote)
    change = RequiredChange(text="write longer prompts", by_builder=True)
    finding = Finding(id="f1", severity="blocking", statement=statement, evidence=(span,), required_change=change)
    verdict = Verdict(
        reviewer="checklist",
        findings=(finding,),
        recommendation="again",
        reasoning="so",
        risks=("few rows",),
        approve=False,
    )
    decision = Decision(
        stage=stage, attempt=1, outcome="revise", reasons=(statement,), required_changes=(change,), packet=NAME,
        verdict=verdict.content_digest(),
    )  # fmt: skip
    answers = body_of("verdict", stage=stage, attempt=1, verdict=session.store.put_value(verdict))
    append_json(session.trail, "verdict", f"verdict/{stage}.1", answers)
    body = body_of("decision", stage=stage, attempt=1) | {"decision": session.store.put_value(decision)}
    opens = {"stage": stage, "attempt": 2}
    append_json(session.trail, "decision", f"decision/{stage}.1", body | {"outcome": "revise", "opens": opens})


def test_findings_of_every_stage_are_read_without_what_is_withheld(registered: Path, tmp_path: Path) -> None:
    session = copy_of(registered, tmp_path)
    judged(session, "base", f"the answer to '{HELDOUT}' is cut", "an answer")
    judged(session, "sample", "the prompts are alike", "p1 p1 p1")
    bench = bench_of(session, attempt=2)
    text = call(bench, "read_findings").text
    assert "sample.1: revise" in text and "finding f1 (blocking): the prompts are alike" in text
    assert "Required: write longer prompts" in text and "Points at: p1 p1 p1" in text and "risk: few rows" in text
    # Of a stage that sees held-out items: the finding, without its prompt and without quotes.
    assert "base.1: revise" in text and "[held-out]" in text and HELDOUT not in text and "an answer" not in text
    assert "base.1" not in call(bench, "read_findings", stage="sample").text
    assert call(bench, "read_findings", stage="ship").text == "no gate has decided that yet"
    # The change in words is the next attempt's task, and the brief says so.
    assert "Your task in this attempt, as the gate requires it in words" in bench.brief
    assert "- write longer prompts" in bench.brief
    session.trail.close()


@pytest.mark.parametrize(
    ("name", "views"),
    [
        ("trl.SFTConfig", ["class SFTConfig(", "learning_rate: float", "trl/trainer/sft_config.py"]),
        ("transformers.Trainer.train", ["def train(self, resume_from_checkpoint"]),
        ("numpy.quantile", ["def quantile("]),
    ],
)
def test_signatures_and_docstrings_of_installed_libraries_are_found(
    bench: SessionWorkbench, name: str, views: list[str]
) -> None:
    text = call(bench, "look_up", name=name).text
    assert all(word in text for word in views), text[:2000]


def test_libraries_below_a_folder_named_tests_are_found_without_their_own_tests(
    bench: SessionWorkbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "tests" / "numpy"
    (root / "tests").mkdir(parents=True)
    for folder, text in ((root, "real"), (root / "tests", "of a test")):
        (folder / "some.py").write_text(f'def asked():\n    """{text}"""\n', encoding="utf-8")

    def here(_: str) -> Path:
        return root

    monkeypatch.setattr(library_docs, "_root", here)
    text = call(bench, "look_up", name="numpy.asked").text
    assert "numpy/some.py:1" in text and "of a test" not in text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("os.system", f"'os' cannot be looked up; available: {', '.join(library_docs.LIBRARIES)}"),
        ("sessions.runtime.wiring", "'sessions' cannot be looked up"),
        ("trl", "name something of trl, such as a class: trl.NAME"),
        ("trl.NoSuchThing", "defines no 'NoSuchThing' in Python"),
        ("trl.../etc/passwd", "malformed arguments: name"),
    ],
)
def test_what_cannot_be_looked_up_is_said(bench: SessionWorkbench, name: str, message: str) -> None:
    result = call(bench, "look_up", name=name)
    assert result.is_error and message in result.text


@needs_sandbox
def test_a_script_computes_over_rows_and_sees_nothing_withheld(bench: SessionWorkbench) -> None:
    script = (
        "import json, os\n"
        "rows = [json.loads(line) for line in open('/inputs/sample.1.rows')]\n"
        "print(len(rows), sum(len(one['completion']) for one in rows), os.listdir('/inputs'), rows[2]['completion'])"
    )
    result = call(bench, "run_python", script=script, artifacts=["sample.1.rows"])
    assert not result.is_error and "it ended with code 0" in result.text
    assert "4 " in result.text and "['sample.1.rows'] It said: [held-out]" in result.text
    failed = call(bench, "run_python", script="print('before'); 1/0")
    assert failed.is_error and "it ended with code 1; it had printed:" in failed.text and "before" in failed.text


@needs_sandbox
@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("import socket; socket.create_connection(('1.1.1.1', 80), 2)", "OSError"),
        ("import os; os.fork()", "Error"),
        ("import subprocess; subprocess.run(['true'])", "Error"),
        ("print(open({secret!r}).read())", "FileNotFoundError"),
        ("open('/inputs/x', 'w')", "Read-only"),
        ("import reviews", "Error"),
        ("x = bytearray(3 * 2**30)", "MemoryError"),
    ],
)
def test_a_script_has_neither_network_nor_processes_nor_files(tmp_path: Path, script: str, text: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("held out")
    done = analyse(script.replace("{secret!r}", repr(str(secret))), {"x": "text"})
    assert done.code != 0 and text in done.text and "held out" not in done.text, done


@needs_sandbox
def test_a_script_that_does_not_end_or_prints_without_end_is_bounded() -> None:
    assert analyse("while True: pass", {}, seconds=1.0).timed_out
    done = analyse("while True: print('x' * 1000)", {}, seconds=20.0)
    assert not done.timed_out and done.code != 0 and len(done.text) <= 64_000
    assert analyse("print(6 * 7)", {}).text == "42\n"


def test_without_a_sandbox_no_script_runs(bench: SessionWorkbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "this_host", lambda: None)
    ran: list[str] = []

    def starts(*_: Any, **__: Any) -> None:
        ran.append("a process")

    monkeypatch.setattr("subprocess.Popen", starts)
    result = call(bench, "run_python", script="print(1)")
    assert result.is_error and result.text.startswith("no sandbox here: bubblewrap (bwrap) is not installed")
    assert ran == []


def test_a_training_is_drawn_and_its_figures_are_reported(session: Session, bench: SessionWorkbench) -> None:
    none = call(bench, "plot_training", stage="train")
    assert none.is_error and "no training of stage 'train' has ended yet" in none.text
    values = steps()
    end_job(session, "train", {"rows": lines(values)})
    result = call(bench, "plot_training", stage="train", columns=["loss", "learning_rate", "no_such_column"])
    losses = [row["loss"] for row in values]
    assert f"loss: {len(losses)} steps; first {losses[0]:.4g}, last {losses[-1]:.4g}" in result.text
    assert "no_such_column: not recorded" in result.text
    image = base64.b64decode(result.image)
    assert image.startswith(b"\x89PNG") and 2_000 < len(image) < 200_000
    again = call(bench, "plot_training", stage="train", columns=["loss", "learning_rate", "no_such_column"])
    assert again.image == result.image, "the same values give the same bytes"
    # It is evidence of what the builder saw, and a restarted builder sees it again.
    recorded = list(session.trail.iterate("result"))[-1]
    assert session.store.get(recorded.raw["image"]) == image
    assert ("image", recorded.raw["image"], False) in list(named_in_store(recorded)), "an audit compares it"
    assert call(bench, "read_findings").image == "", "no other call carries it"
    refused = call(bench, "plot_training", stage="base")
    assert refused.is_error and "sees held-out items" in refused.text and refused.image == ""
    assert "attempt 7 left no steps" in call(bench, "plot_training", stage="train", attempt=7).text
