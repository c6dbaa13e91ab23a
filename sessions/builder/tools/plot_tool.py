"""A tool that draws the steps of a training, for builders that see; its text has the same in figures."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence

from sessions.builder.redaction import sees_heldout
from sessions.builder.tools.tool_context import PhaseWork, ToolCallRefusal
from sessions.pages.report.report import steps_of
from specs.system.text import one_line
from specs.trail.builder_tools import PlotTraining

TITLE = 60
DOTS_PER_INCH = 80
_POINTS = 60
"""Steps: more of them get no dot each."""


def plot_training(work: PhaseWork, arguments: PlotTraining) -> str:
    """Draw the columns of an attempt, and return their figures."""
    session = work.session
    stage = next((stage for stage in session.resolved.spec.stages if stage.name == arguments.stage), None)
    if stage is not None and sees_heldout(session.resolved.spec, stage):
        raise ToolCallRefusal(f"stage '{stage.name}' sees held-out items, so its rows are not drawn")
    history = session.history
    columns = {name: steps_of(history, name) for name in arguments.columns}
    attempts = sorted({attempt for column in columns.values() for at, attempt in column if at == arguments.stage})
    if not attempts:
        raise ToolCallRefusal(f"no training of stage '{arguments.stage[:TITLE]}' has ended yet")
    attempt = attempts[-1] if arguments.attempt is None else arguments.attempt
    if attempt not in attempts:
        raise ToolCallRefusal(f"attempt {attempt} left no steps; there are {', '.join(map(str, attempts))}")
    drawn = {name: _numbers(column.get((arguments.stage, attempt), [])) for name, column in columns.items()}
    work.image = draw(f"{one_line(arguments.stage, TITLE)}, attempt {attempt}", drawn)
    return "\n".join(
        [f"{arguments.stage}.{attempt}, by step", *(_figures(name, values) for name, values in drawn.items())]
    )


def _numbers(values: Sequence[object]) -> list[float]:
    """Return the numbers of a column, not a number in place of anything else: a step keeps its place."""
    return [float(value) if isinstance(value, int | float) else math.nan for value in values]


def _figures(name: str, values: Sequence[float]) -> str:
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return f"{name}: not recorded"
    low, high = min(known), max(known)
    lost = f"; {len(values) - len(known)} of them no finite number" if len(known) < len(values) else ""
    return (
        f"{name}: {len(values)} steps; first {values[0]:.4g}, last {values[-1]:.4g}; "
        f"lowest {low:.4g} at step {values.index(low) + 1}, highest {high:.4g} at step {values.index(high) + 1}{lost}"
    )


def draw(title: str, columns: Mapping[str, Sequence[float]]) -> bytes:
    """Return a PNG with a panel for each column; the same values give the same bytes."""
    # Imported here: no other tool draws.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 1 + 2 * len(columns)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(columns), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, values) in zip(panels, columns.items(), strict=True):
        axes.plot(range(1, len(values) + 1), values, marker="." if len(values) <= _POINTS else "", linewidth=1.2)
        axes.set_ylabel(name)
    panels[-1].set_xlabel("optimizer step")
    figure.suptitle(title, fontsize=11)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
    return out.getvalue()
