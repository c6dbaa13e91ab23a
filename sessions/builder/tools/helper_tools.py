"""The tool that hands tasks to helpers: in parallel, each bounded, each leaving one note."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from agents.builder import Delegating
from sessions.builder.tools.tool_context import HelperBench, Refused, Work
from specs.errors import BudgetExceeded, BuilderUnavailable
from specs.text import plain
from specs.trail.builder_tools import Delegate


def delegate(work: Work, arguments: Delegate) -> str:
    """Have every task worked on at once and say what each left."""
    builder = work.session.builder
    if not isinstance(builder, Delegating):
        raise Refused(f"the builder '{builder.name}' has no helpers; only one that asks a model has")
    if work.open_helper is None:
        raise Refused("nobody may delegate here")
    benches = [work.open_helper(work, number, task) for number, task in enumerate(arguments.tasks, 1)]

    def carry_out(bench: HelperBench) -> str:
        try:
            builder.help(bench)
        except (BudgetExceeded, BuilderUnavailable) as error:
            return plain(error.message, 300)
        return ""

    with ThreadPoolExecutor(max_workers=len(benches)) as threads:
        errors = list(threads.map(carry_out, benches))
    told: list[str] = []
    for number, (bench, error) in enumerate(zip(benches, errors, strict=True), 1):
        why = error or bench.ended_by or "it ended without handing anything in"
        told.append(f"task {number}: {bench.work.handed_in or f'nothing was handed in: {why}'}")
    return "\n".join(told)
