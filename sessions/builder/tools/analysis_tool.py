"""The tool ``run_python``: a script of the builder over artifacts that it may read."""

from __future__ import annotations

from sessions.builder.tools.reading_tools import MOST_READABLE, require_artifact
from sessions.builder.tools.tool_context import PhaseWork, ToolCallRefusal
from sessions.jobs.sandbox.analysis import SECONDS, analyse
from specs.system.errors import BlockedError
from specs.system.text import enclose
from specs.trail.builder_tools import RunPython

PRINTED = 12_000


def run_python(work: PhaseWork, arguments: RunPython) -> str:
    """Return what the script prints. It gets the texts as the wall lets them through."""
    names = dict.fromkeys(arguments.artifacts)
    inputs = {name: work.wall.readable(require_artifact(work.session, name).digest, MOST_READABLE) for name in names}
    try:
        done = analyse(arguments.script, inputs)
    except BlockedError as error:
        raise ToolCallRefusal(f"{error.message}; {error.hint}") from error
    ended = f"it was ended after {SECONDS:.0f} s" if done.timed_out else f"it ended with code {done.code}"
    text = enclose("printed", work.wall.clean(done.text, PRINTED))
    if done.timed_out or done.code:
        raise ToolCallRefusal(f"{ended}; it had printed:\n{text}")
    return f"{ended}\n{text}"
