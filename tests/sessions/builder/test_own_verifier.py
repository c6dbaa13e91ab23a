"""The builder reads the file of the user's own task where the spec says so, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sessions.builder.redaction import PRIVATE, Redactor
from sessions.session import Session
from testing.factories.benches import bench_of, call, new_session, open_stage
from testing.factories.bodies import append_json, body_of
from testing.fixtures.sandbox import needs_sandbox

CODE = '''"""A secret rule: the answer names the third planet and nothing else at all."""

from specs.stages.base.artifacts import Item

def verify(item, answer):
    return answer.strip().lower() == "earth"

def worked_example(item):
    return "Name the fourth planet.", "Mars"

def known_answers():
    item = Item(id="a", group="g", kind="k", prompt="p", constraint={})
    return [(item, text, text.strip() == "earth") for text in ("earth", " earth", "earth ", "2", "10", "-1")]
'''
QUOTED = "the answer names the third planet and nothing else at all"
TASK = "task: format_instructions"


def session_with(folder: Path, task: str) -> Session:
    (folder / "verify.py").write_text(CODE, encoding="utf-8")
    return new_session(folder, (TASK, task))


def all_that_is_read(session: Session) -> str:
    """Return what the tools that read answer, the file's text in a note of the builder's own among it."""
    text = session.store.put(f"someone wrote: {QUOTED}".encode())
    append_json(session.trail, "note", "note/x", body_of("note") | {"text": text, "stage": "sample", "attempt": 1})
    open_stage(session)
    bench = bench_of(session)
    names = [line.partition(":")[0] for line in call(bench, "list_artifacts").text.splitlines()]
    lines = [call(bench, "read_artifact", name=name).text for name in ("verifier", "verify.py", "task", *names)]
    return json.dumps([*lines, call(bench, "read_spec").text, bench.brief])


@needs_sandbox
def test_it_is_not_there_unless_the_spec_says_so(tmp_path: Path) -> None:
    session = session_with(tmp_path, "task: ./verify.py")
    read = all_that_is_read(session)
    assert "third planet" not in read and "no artifact 'verifier' may be read" in read
    assert PRIVATE in Redactor(session, {}).clean(f"an error quotes it: {QUOTED}")
    # Nor can anybody read it out of the store by its digest, which the spec names.
    assert not session.store.path(session.resolved.spec.task.partition("@")[2]).exists()
    session.trail.close()


@needs_sandbox
def test_it_is_there_where_the_spec_says_so(tmp_path: Path) -> None:
    session = session_with(tmp_path, "task: ./verify.py\nverifier: {builder_reads: true}")
    read = all_that_is_read(session)
    assert "A secret rule" in read and QUOTED in read
    session.trail.close()


@pytest.mark.parametrize("field", ["seconds: 0", "memory_mb: 1", "sandbox: maybe", "builder_read: true"])
def test_a_wrong_field_is_a_problem_of_the_spec(tmp_path: Path, field: str) -> None:
    from specs.system.errors import SpecError

    with pytest.raises(SpecError, match="verifier"):
        session_with(tmp_path, f"task: ./verify.py\nverifier: {{{field}}}")
