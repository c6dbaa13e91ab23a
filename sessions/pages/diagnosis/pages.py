"""A diagnosis as lines of a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from textwrap import wrap

from sessions.pages.diagnosis.causes import rows_in_words
from sessions.pages.diagnosis.diagnosis import DetectorReading, Diagnosis
from sessions.run.terminal import masked_line

NARROW, WIDE = 60, 120
_LONGEST = 2000
_SHORT = 12
"""Characters of a limit that is shown next to a check that passed."""


def lines_of(diagnosis: Diagnosis, columns: int) -> Iterator[str]:
    """Yield the lines of a diagnosis, none longer than a terminal of so many columns, as far as words allow it."""
    width = min(max(columns, NARROW), WIDE)

    def wrap_text(text: str, first: str = "", more: str | None = None) -> Iterator[str]:
        indent = " " * len(first) if more is None else more
        yield from wrap(
            masked_line(text, _LONGEST),
            width,
            initial_indent=first,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )

    yield from wrap_text(f"{diagnosis.place} ({diagnosis.state}): {diagnosis.description}", more="  ")
    if diagnosis.curves.steps:
        yield from wrap_text(_curve_in_words(diagnosis), "  ")
    yield from _heading("why", diagnosis.whys)
    for number, why in enumerate(diagnosis.whys, 1):
        yield from wrap_text(why.description, f"  {number}. ")
        yield from wrap_text("; ".join(why.cites), "     - ")
    fired = [reading for reading in diagnosis.readings if reading.remedy or reading.status in ("FAIL", "WARN", "ERROR")]
    yield from _heading("what was found", fired)
    for reading in fired:
        advice = "" if reading.blocking else ", advice"
        now = "" if reading.recorded else ", computed now"
        yield from wrap_text(f"{reading.check}: {reading.detail}", f"  {reading.status:<7} ")
        for line in (str(row["log"]) for row in reading.rows if "log" in row):
            yield from wrap_text(line, " " * 10 + "log: ", " " * 15)
        yield from wrap_text(f"{reading.cause}{advice}{now}{_figures(reading)}", " " * 10)
        yield from wrap_text(f"source: {reading.source}", " " * 10)
    quiet = [reading for reading in diagnosis.readings if reading not in fired]
    passed = [reading for reading in quiet if reading.status == "PASS"]
    yield from _heading("passed", passed)
    longest = max((len(reading.check) for reading in passed), default=0)
    for reading in passed:
        yield from wrap_text(f"{reading.title}{_format_figure(reading)}", f"  {reading.check.ljust(longest)}  ")
    for status, title in (("NOT_APPLICABLE", "does not apply"), ("BLOCKED", "not recorded")):
        checks = [reading.check for reading in quiet if reading.status == status]
        if checks:
            yield ""
            yield from wrap_text(", ".join(checks), f"{title}: ", "  ")
    if diagnosis.absent:
        yield ""
        yield from wrap_text(", ".join(diagnosis.absent), "without a result: ", "  ")
    yield from _heading("what further attempts show", diagnosis.hypotheses)
    for hypothesis in diagnosis.hypotheses:
        yield from wrap_text(f"{hypothesis.conclusion}: {hypothesis.description}", "  ", "    ")
        yield from wrap_text(
            f"{hypothesis.before}; then {hypothesis.after}: {hypothesis.why} ({', '.join(hypothesis.cites)})", "    "
        )
    yield from _heading("what to do next, by gain over effort", diagnosis.actions)
    for number, action in enumerate(diagnosis.actions, 1):
        yield from wrap_text(f"{action.do} (against {action.against})", f"  {number}. ")
        minutes = f"{action.minutes:.1f} minutes{'' if action.measured else ' at most'} of {', '.join(action.again)}"
        yield from wrap_text(f"gain {action.gain:g} for {minutes}: {action.worth:.2g} an hour", "     - ")


def _heading(title: str, content: Sequence[object]) -> Sequence[str]:
    return ("", title) if content else ()


def _curve_in_words(diagnosis: Diagnosis) -> str:
    curves = diagnosis.curves
    by = " (claimed by the job, which left no rows)" if curves.stated else ""
    planned = f" of {curves.planned}" if curves.planned else ""
    fifth = max(1, len(curves.losses) // 5)
    first, last = fmean(curves.losses[:fifth]), fmean(curves.losses[-fifth:])
    parts = [
        f"{curves.steps[-1]}{planned} steps{by}, mean loss {first:.4g} in the first fifth and {last:.4g} in the last"
    ]
    if curves.kept_out:
        lowest = min(curves.kept_out, key=lambda pair: pair[1])
        parts.append(
            f"on examples kept out {curves.kept_out[0][1]:.4g} before and {curves.kept_out[-1][1]:.4g} in the end, "
            f"lowest {lowest[1]:.4g} after step {lowest[0]}"
        )
    for name, values in (
        ("learning rate", curves.rates),
        ("gradient norm", curves.norms),
        ("loss-carrying tokens/s", curves.speeds),
    ):
        between = f"between {min(values):.3g} and {max(values):.3g}" if values else "not recorded"
        parts.append(f"{name} {between}")
    return "; ".join(parts)


def _figures(reading: DetectorReading) -> str:
    limit = f", threshold {reading.threshold}" if reading.threshold else ""
    figure = f", figure {reading.figure:.4g}" if reading.figure is not None else ""
    rows = f", {rows_in_words(reading.lines)}" if reading.lines else ""
    return f"{figure}{limit}{rows}"


def _format_figure(reading: DetectorReading) -> str:
    """Return the figure with its limit, where both fit into a few words."""
    known = reading.figure is not None and reading.threshold is not None and len(reading.threshold) <= _SHORT
    return f" ({reading.figure:.3g}, limit {reading.threshold})" if known else ""
