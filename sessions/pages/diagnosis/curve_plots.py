"""The curves of a training as one SVG: loss, learning rate, gradient norm, throughput, with what was found marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sessions.pages.diagnosis.attempts import Curves
from specs.system.text import one_line

Form = Literal["svg", "pdf"]
"""The form of a plot's file: SVG for pages, PDF for LaTeX."""
PREFIX = "training-"
NAME_CHARACTERS = 30
MARKS = ("#d62728", "#ff7f0e", "#9467bd", "#8c564b")
"""Colours of the marked detectors; further ones are not drawn."""
_POINTS = 60
"""Steps: more of them get no dot each."""


class AttemptCurves(NamedTuple):
    """What is drawn of one attempt."""

    stage: str
    attempt: int
    curves: Curves
    marks: list[tuple[str, tuple[int, ...]]]

    def file(self, form: Form) -> str:
        """Return the file's name."""
        return f"{PREFIX}{self.stage}.{form}"


def draw(folder: Path, visible: Sequence[AttemptCurves], form: Form = "svg") -> list[str]:
    """Draw each attempt that has points; returns the file names."""
    folder.mkdir(parents=True, exist_ok=True)
    every = [value for value in visible if value.curves.steps]
    if every:
        set_up()
    for value in every:
        save(_figure(value), folder / value.file(form))
    return [value.file(form) for value in every]


def set_up() -> None:
    """Have matplotlib draw for a report: the same data give the same bytes."""
    import matplotlib as mpl
    from matplotlib import artist

    # Listing the properties of each class in its docstring is a quarter of the import of figures.
    artist.kwdoc = lambda _: ""
    mpl.use("svg")
    # Ids in an SVG are random unless salted.
    mpl.rcParams.update({"svg.hashsalt": "peergate", "axes.spines.top": False, "axes.spines.right": False})


def save(figure: Any, path: Path) -> None:
    """Write a figure as SVG or PDF, as its name says, without the moment at which it was drawn."""
    if path.suffix == ".pdf":
        from matplotlib.backends.backend_pdf import FigureCanvasPdf

        FigureCanvasPdf(figure).print_pdf(path, metadata={"CreationDate": None})
        return
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    # Not savefig, which draws everything once before only for the layout: a canvas of SVG has that in its one pass.
    FigureCanvasSVG(figure).print_svg(path, metadata={"Date": None})


def _figure(value: AttemptCurves) -> Any:
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    curves = value.curves
    panels = [
        ("loss", curves.losses),
        ("learning rate", curves.rates),
        ("gradient norm", curves.norms),
        ("loss tokens/s", curves.speeds),
    ]
    figure = Figure(figsize=(7, 7.6), layout="constrained")
    every: Any = figure.subplots(len(panels), 1, sharex=True)
    for axes, (name, values) in zip(every, panels, strict=True):
        steps = curves.steps[len(curves.steps) - len(values) :]
        if values:
            axes.plot(steps, values, marker="." if len(values) <= _POINTS else "", linewidth=1.2, color="#1f77b4")
        else:
            axes.text(0.5, 0.5, "not recorded", transform=axes.transAxes, ha="center", va="center", color="#777777")
            axes.set_yticks([])
        axes.set_ylabel(name)
    if curves.kept_out:
        every[0].plot(*zip(*curves.kept_out, strict=True), marker="o", color="#2ca02c", label="loss, kept out")
    for (check, lines), colour in zip(value.marks, MARKS, strict=False):
        for place, axes in enumerate(every):
            for begin, end in _spans(lines):
                label = check if place == 0 and begin == _spans(lines)[0][0] else None
                axes.axvspan(begin - 0.5, end + 0.5, color=colour, alpha=0.18, linewidth=0, label=label)
    last: Any = every[-1]
    last.set_xlabel("optimizer step")
    last.set_xlim(-0.5 if curves.kept_out else 0.5, max(curves.steps) + 0.5)
    last.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    last.xaxis.set_major_formatter(FuncFormatter(_whole))
    own = ", as the job states it" if curves.stated else ""
    figure.suptitle(f"Training of {one_line(value.stage, NAME_CHARACTERS)}, attempt {value.attempt}{own}", fontsize=11)
    if value.marks or curves.kept_out:
        figure.legend(frameon=False, ncols=2, loc="outside lower center")
    return figure


def _spans(steps: Sequence[int]) -> list[tuple[int, int]]:
    """Return runs of steps that follow each other, as their first and last."""
    pairs: list[tuple[int, int]] = []
    for step in sorted(set(steps)):
        if pairs and step == pairs[-1][1] + 1:
            pairs[-1] = (pairs[-1][0], step)
        else:
            pairs.append((step, step))
    return pairs


def _whole(value: float, _: object) -> str:
    return f"{value:.0f}" if float(value).is_integer() else ""
