"""Plots of the report, as SVG: the same data gives the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specs.text import one_line

NAMES = ("loss.svg", "accuracy.svg", "pairs.svg")
NAME_CHARACTERS = 40


def draw(folder: Path, report: dict[str, Any], losses: dict[str, list[float]]) -> list[str]:
    """Draw what a report and the losses (nats per token and step, by attempt) hold; returns the file names."""
    folder.mkdir(parents=True, exist_ok=True)
    if not losses and not report["accuracy_by_kind"]:
        return []
    import matplotlib as mpl

    mpl.use("svg")
    # Ids in an SVG are random unless salted, and its date is the moment of drawing.
    mpl.rcParams.update({"svg.hashsalt": "peergate", "axes.spines.top": False, "axes.spines.right": False})
    drawn: list[str] = []
    if losses:
        _loss(folder / "loss.svg", losses)
        drawn.append("loss.svg")
    if report["accuracy_by_kind"]:
        _accuracy(folder / "accuracy.svg", report["accuracy_by_kind"])
        _pairs(folder / "pairs.svg", report["accuracy_by_kind"])
        drawn += ["accuracy.svg", "pairs.svg"]
    return drawn


def _loss(path: Path, losses: dict[str, list[float]]) -> None:
    figure, axes = _axes("optimizer step", "loss (nats per token)")
    for name, values in losses.items():
        axes.plot(range(1, len(values) + 1), values, marker=".", label=name)
    axes.set_title("Training loss of each attempt")
    axes.legend(frameon=False)
    _save(figure, path)


def _accuracy(path: Path, kinds: dict[str, dict[str, Any]]) -> None:
    """Accuracy of both arms by constraint kind, with 95 % Wilson intervals."""
    from reviews.statistics.mcnemar import wilson

    figure, axes = _axes("", "share of items with the right form")
    for shift, arm, color in ((-0.2, "baseline", "#9aa5b1"), (0.2, "treatment", "#1f77b4")):
        shares = [kind[arm] / kind["items"] for kind in kinds.values()]
        intervals = [wilson(kind[arm], kind["items"]) for kind in kinds.values()]
        lows, highs = zip(*intervals, strict=True)
        errors = [
            [max(0.0, share - low) for share, low in zip(shares, lows, strict=True)],
            [max(0.0, high - share) for share, high in zip(shares, highs, strict=True)],
        ]
        places = [index + shift for index in range(len(kinds))]
        axes.bar(
            places,
            shares,
            0.38,
            yerr=errors,
            label=arm,
            color=color,
            ecolor="#555555",
            capsize=2,
        )
    _name(axes, kinds)
    axes.set_ylim(0, 1)
    axes.set_title("Held-out accuracy by kind of constraint (95 % Wilson)")
    axes.legend(frameon=False)
    _save(figure, path)


def _pairs(path: Path, kinds: dict[str, dict[str, Any]]) -> None:
    """Items gained and lost by kind: what the paired test counts."""
    figure, axes = _axes("", "items")
    axes.bar(range(len(kinds)), [kind["gained"] for kind in kinds.values()], 0.6, label="gained", color="#2ca02c")
    axes.bar(range(len(kinds)), [-kind["lost"] for kind in kinds.values()], 0.6, label="lost", color="#d62728")
    axes.axhline(0, color="#555555", linewidth=0.8)
    _name(axes, kinds)
    axes.set_title("Items gained and lost against the baseline")
    axes.legend(frameon=False)
    _save(figure, path)


def _name(axes: Any, kinds: dict[str, dict[str, Any]]) -> None:
    # Kinds are words of a data file: no formulas in them, and no line ends.
    names = [one_line(kind, NAME_CHARACTERS) for kind in kinds]
    axes.set_xticks(range(len(kinds)), names, parse_math=False)


def _axes(x: str, y: str) -> tuple[Any, Any]:
    # Not pyplot: it keeps figures alive and wants a main thread.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, format="svg", metadata={"Date": None})
