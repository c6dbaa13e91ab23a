"""Plots of the report, as SVG, and curves of pages, as shapes: the same data gives the same bytes."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from sessions.pages.diagnosis import curve_plots
from specs.system.text import one_line

NAMES = ("effect.svg", "arms.svg", "curve.svg", "loss.svg", "accuracy.svg", "pairs.svg")
"""The first is the headline: what the session was registered to find."""
NAME_CHARACTERS = 40
FLAT_CHARACTERS = 60
"""The limit for all names below an axis together: more are slanted, so that they do not overlap."""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 600, 180, 56, 22, 10
MOST_POINTS = 600
"""A longer line is thinned to this many points, and keeps the last."""


def select_plots(files: Collection[str], folder: str) -> list[str]:
    """Return the plots among the recorded files of a report, in the order in which they are drawn."""
    names = [name.removeprefix(f"{folder}/") for name in files]
    training = [name for name in names if name.startswith(curve_plots.PREFIX) and name.endswith(".svg")]
    return [*(name for name in NAMES if name in names), *sorted(training)]


def draw(
    folder: Path,
    report: dict[str, Any],
    losses: dict[str, list[float]],
    trained: Sequence[curve_plots.AttemptCurves] = (),
    form: curve_plots.Form = "svg",
) -> list[str]:
    """Draw what a report, the losses (nats per token and step, by attempt) and the curves hold; return the names."""
    folder.mkdir(parents=True, exist_ok=True)
    return [*_draw(folder, report, losses, form), *sorted(curve_plots.draw(folder, trained, form))]


def _draw(
    folder: Path, report: dict[str, Any], losses: dict[str, list[float]], form: curve_plots.Form = "svg"
) -> list[str]:
    effect = _effect_of(report)
    if not losses and not report["accuracy_by_kind"] and effect is None:
        return []
    curve_plots.set_up()
    files: list[Path] = []
    if effect is not None:
        files.append(folder / f"effect.{form}")
        _effect(files[-1], *effect)
    if arms := (report.get("comparison") or {}).get("arms"):
        files.append(folder / f"arms.{form}")
        _arms(files[-1], arms)
    if learning_curve := (report.get("comparison") or {}).get("curve"):
        files.append(folder / f"curve.{form}")
        _learning_curve(files[-1], learning_curve["points"])
    if losses:
        files.append(folder / f"loss.{form}")
        _loss(files[-1], losses)
    if report["accuracy_by_kind"]:
        files += [folder / f"accuracy.{form}", folder / f"pairs.{form}"]
        _accuracy(files[-2], report["accuracy_by_kind"])
        _pairs(files[-1], report["accuracy_by_kind"])
    return [file.name for file in files]


def _effect_of(report: dict[str, Any]) -> tuple[str, float, tuple[float, float], float] | None:
    """Return the compared metric, its gain with the interval, and the registered minimum; None without a comparison."""
    compared = report.get("comparison")
    gain = compared["metrics"].get("accuracy_gain") if compared else None
    if compared is None or gain is None or not gain["interval"]:
        return None
    low, high = gain["interval"]
    return compared["primary_metric"], gain["value"], (low, high), compared["registered"]["minimum_effect"]


def _effect(path: Path, metric: str, gain: float, interval: tuple[float, float], minimum: float) -> None:
    """Gain with its 95 % interval on a line, next to no difference and the registered minimum effect."""
    figure, axes = _axes("gain (treatment - baseline)", "", height=2.2)
    low, high = interval
    axes.axvline(0, color="#555555", linewidth=0.8)
    axes.axvline(minimum, color="#d62728", linewidth=1.2, linestyle="--", label=f"registered minimum {minimum:+g}")
    errors = [[max(0.0, gain - low)], [max(0.0, high - gain)]]
    axes.errorbar([gain], [0], xerr=errors, fmt="o", color="#1f77b4", capsize=4, label="gain, 95 % interval")
    least, most = min(0.0, low, minimum), max(0.0, high, minimum)
    room = 0.08 * (most - least or 1.0)
    axes.set_xlim(least - room, most + room)
    axes.set_ylim(-1, 1)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    named = one_line(metric.replace("_", " "), NAME_CHARACTERS)
    _title(axes, f"Gain in held-out {named}: {gain:+.3f} [{low:+.3f}, {high:+.3f}]")
    _legend(figure)
    curve_plots.save(figure, path)


def _arms(path: Path, arms: Sequence[dict[str, Any]]) -> None:
    """Accuracy of every arm with its 95 % Wilson interval, the baseline on top."""
    figure, axes = _axes("share of right items", "", height=1.6 + 0.35 * len(arms))
    colors = {"baseline": "#9aa5b1", "treatment": "#1f77b4", "further arm": "#2ca02c"}
    for place, arm in enumerate(arms):
        share, role = arm["accuracy"], arm["name"] if arm["name"] in colors else "further arm"
        errors = [[max(0.0, share - arm["low"])], [max(0.0, arm["high"] - share)]]
        # One line of the legend for all further arms.
        label = role if role != "further arm" or place == 2 else None
        axes.errorbar([share], [place], xerr=errors, fmt="o", color=colors[role], capsize=4, label=label)
    axes.set_yticks(range(len(arms)), [one_line(arm["name"], NAME_CHARACTERS) for arm in arms], parse_math=False)
    axes.set_ylim(len(arms) - 0.5, -0.5)
    axes.set_xlim(0, 1)
    _title(axes, "Held-out accuracy of every arm (95 % Wilson)")
    _legend(figure)
    curve_plots.save(figure, path)


def _learning_curve(path: Path, points: Sequence[dict[str, Any]]) -> None:
    """Accuracy over the number of examples, and the forecast, each with its 95 % interval."""
    figure, axes = _axes("training examples", "share of right items")
    for place, point in enumerate(points):
        ahead = point["name"] == "forecast"
        errors = [[max(0.0, point["accuracy"] - point["low"])], [max(0.0, point["high"] - point["accuracy"])]]
        label = "forecast" if ahead else "trained" if not place else None
        axes.errorbar([point["examples"]], [point["accuracy"]], yerr=errors, fmt="o", capsize=4, label=label,
                      color="#d62728" if ahead else "#1f77b4")  # fmt: skip
    axes.set_xscale("log")
    axes.set_ylim(0, 1)
    _title(axes, "Held-out accuracy by training data")
    _legend(figure)
    curve_plots.save(figure, path)


def _loss(path: Path, losses: dict[str, list[float]]) -> None:
    figure, axes = _axes("optimizer step", "loss (nats per token)")
    for name, values in losses.items():
        axes.plot(range(1, len(values) + 1), values, marker=".", label=name)
    _whole_numbers(axes.xaxis)
    _title(axes, "Training loss of each attempt")
    _legend(figure)
    curve_plots.save(figure, path)


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
    _title(axes, "Held-out accuracy by kind of constraint (95 % Wilson)")
    _legend(figure)
    curve_plots.save(figure, path)


def _pairs(path: Path, kinds: dict[str, dict[str, Any]]) -> None:
    """Items gained and lost by kind: what the paired test counts."""
    figure, axes = _axes("", "items")
    axes.bar(range(len(kinds)), [kind["gained"] for kind in kinds.values()], 0.6, label="gained", color="#2ca02c")
    axes.bar(range(len(kinds)), [-kind["lost"] for kind in kinds.values()], 0.6, label="lost", color="#d62728")
    axes.axhline(0, color="#555555", linewidth=0.8)
    _name(axes, kinds)
    _whole_numbers(axes.yaxis)
    _title(axes, "Items gained (up) and lost (down) against the baseline")
    _legend(figure)
    curve_plots.save(figure, path)


def _name(axes: Any, kinds: dict[str, dict[str, Any]]) -> None:
    # Kinds are words of a data file: no formulas in them, and no line ends.
    names = [one_line(kind, NAME_CHARACTERS) for kind in kinds]
    slant: dict[str, Any] = {"rotation": 30, "ha": "right"} if sum(map(len, names)) > FLAT_CHARACTERS else {}
    axes.set_xticks(range(len(kinds)), names, parse_math=False, **slant)


def _whole_numbers(axis: Any) -> None:
    """Put ticks at whole numbers, without a sign: counts have no fractions, and downwards is not negative."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    # Where there is one number alone the locator has ticks between as well.
    axis.set_major_formatter(FuncFormatter(_count))


def _count(value: float, _: object) -> str:
    return f"{abs(value):.0f}" if float(value).is_integer() else ""


def _legend(figure: Any) -> None:
    """Explain the marks below the plot, where they cover nothing."""
    figure.legend(frameon=False, ncols=2, loc="outside lower center")


def _title(axes: Any, text: str) -> None:
    axes.set_title(text, fontsize=11, parse_math=False)


def _axes(x: str, y: str, height: float = 3.6) -> tuple[Any, Any]:
    # Not pyplot: it keeps figures alive and wants a main thread.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return figure, axes


def curve(values: Sequence[float], name: str) -> dict[str, Any] | None:
    """Return a line through values by their number as a shape for a page; None with fewer than two finite values."""
    points = [(place, value) for place, value in enumerate(values, 1) if math.isfinite(value)]
    if len(points) < 2:
        return None
    low, high = min(value for _, value in points), max(value for _, value in points)
    step = -(-len(points) // MOST_POINTS)
    pairs = points[::step] if points[-1] in points[::step] else [*points[::step], points[-1]]
    first, last = points[0][0], points[-1][0]
    span = (high - low) or 1.0

    def at(point: tuple[int, float]) -> str:
        x = _LEFT + (_WIDTH - _LEFT - 8) * (point[0] - first) / (last - first)
        y = _TOP + (_HEIGHT - _TOP - _BOTTOM) * (high - point[1]) / span
        return f"{x:.1f},{y:.1f}"

    return {
        "name": name,
        "points": " ".join(map(at, pairs)),
        "low": f"{low:.4g}",
        "high": f"{high:.4g}",
        "first": first,
        "last": last,
        "count": len(points),
        "begin": f"{points[0][1]:.4g}",
        "end": f"{points[-1][1]:.4g}",
    }
