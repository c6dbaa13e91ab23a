"""A diagnosis as lines of a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from sessions.diagnosis.causes import rows_in_words
from sessions.diagnosis.diagnosis import Diagnosis, Reading
from sessions.terminal import masked_line

NARROW, WIDE = 60, 120
_LONGEST = 2000


def lines_of(one: Diagnosis, columns: int) -> Iterator[str]:
    """Yield the lines of a diagnosis, none longer than a terminal of so many columns, as far as words allow it."""
    width = min(max(columns, NARROW), WIDE)

    def told(text: str, first: str = "", more: str | None = None) -> Iterator[str]:
        indent = " " * len(first) if more is None else more
        yield from wrap(
            masked_line(text, _LONGEST),
            width,
            initial_indent=first,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )

    yield from told(f"{one.place} ({one.state}): {one.told}", more="  ")
    if one.curves.steps:
        yield from told(_curve_in_words(one), "  ")
    yield from _heading("why", one.whys)
    for number, why in enumerate(one.whys, 1):
        yield from told(why.told, f"  {number}. ")
        yield from told("; ".join(why.cites), "     - ")
    fired = [each for each in one.readings if each.remedy or each.status in ("FAIL", "WARN", "ERROR")]
    yield from _heading("what was found", fired)
    for each in fired:
        advice = "" if each.blocking else ", advice"
        now = "" if each.recorded else ", computed now"
        yield from told(f"{each.check}: {each.detail}", f"  {each.status:<5} ")
        yield from told(f"{each.cause}{advice}{now}{_figures(each)}", " " * 8)
        yield from told(f"source: {each.source}", " " * 8)
    quiet = [each for each in one.readings if each not in fired]
    for status, title in (("PASS", "passed"), ("NOT_APPLICABLE", "does not apply"), ("BLOCKED", "not recorded")):
        some = [f"{each.check}{_figure(each)}" for each in quiet if each.status == status]
        if some:
            yield ""
            yield from told(", ".join(some), f"{title}: ", "  ")
    if one.absent:
        yield ""
        yield from told(", ".join(one.absent), "without a result: ", "  ")
    yield from _heading("what further attempts show", one.hypotheses)
    for each in one.hypotheses:
        yield from told(f"{each.conclusion}: {each.told}", "  ", "    ")
        yield from told(f"{each.before}; then {each.after}: {each.why} ({', '.join(each.cites)})", "    ")
    yield from _heading("what to do next, by gain over effort", one.actions)
    for number, action in enumerate(one.actions, 1):
        yield from told(f"{action.do} (against {action.against})", f"  {number}. ")
        minutes = f"{action.minutes:.1f} minutes{'' if action.measured else ' at most'} of {', '.join(action.again)}"
        yield from told(f"gain {action.gain:g} for {minutes}: {action.worth:.2g} an hour", "     - ")


def _heading(title: str, some: Sequence[object]) -> Sequence[str]:
    return ("", title) if some else ()


def _curve_in_words(one: Diagnosis) -> str:
    curves = one.curves
    by = " (the job's own word: it left no rows)" if curves.stated else ""
    planned = f" of {curves.planned}" if curves.planned else ""
    message = f"{curves.steps[-1]}{planned} steps{by}, loss {curves.losses[0]:.4g} to {curves.losses[-1]:.4g}"
    parts = [message]
    if curves.kept_out:
        before, lowest, last = curves.kept_out[0], min(curves.kept_out, key=lambda one: one[1]), curves.kept_out[-1]
        parts.append(
            f"on examples kept out {before[1]:.4g} to {last[1]:.4g}, lowest {lowest[1]:.4g} after step {lowest[0]}"
        )
    for name, values in (
        ("learning rate", curves.rates),
        ("gradient norm", curves.norms),
        ("loss tokens/s", curves.speeds),
    ):
        parts.append(f"{name} {min(values):.3g} to {max(values):.3g}" if values else f"{name} not recorded")
    return ", ".join(parts)


def _figures(one: Reading) -> str:
    limit = f", threshold {one.threshold}" if one.threshold else ""
    figure = f", figure {one.figure:.4g}" if one.figure is not None else ""
    rows = f", {rows_in_words(one.lines)}" if one.lines else ""
    return f"{figure}{limit}{rows}"


def _figure(one: Reading) -> str:
    return f" {one.figure:.3g}" if one.figure is not None else ""
