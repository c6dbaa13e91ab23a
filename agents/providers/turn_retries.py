"""Asking for one turn through rate limits, outages and cut connections, with the money set aside before each call."""

from __future__ import annotations

import time

from agents.providers.turn_model import Answer, Counted, Model, NoAnswer
from agents.providers.turn_request import Asking
from agents.turns import Turn
from agents.workbench_protocol import Workbench
from specs.errors import BuilderUnavailable
from specs.vendors.http_exchange import RETRIES, backoff_s

LONGEST_WAIT_S = 60.0
"""Where the API does not say how long to wait."""


def take_turn(bench: Workbench, model: Model, asking: Asking, outage_s: float, before: Counted | None = None) -> Turn:
    """Return the model's next turn, recorded and paid for.

    Repeated is what may pass: at most ``outage_s`` long, and at most ``RETRIES`` times where the call may have been
    billed. A billed call's whole cap counts as spent, and its repeat has a reservation of its own.

    Raises:
        BuilderUnavailable: there is no turn in that time, or asking again cannot help.
        BudgetExceeded: the cap does not fit in what is left.
    """
    until = time.monotonic() + outage_s
    repeats = paid = 0
    cap = model.cap_usd(asking, before)
    reservation = bench.reserve(cap)
    while True:
        try:
            answer: Answer = model.call(asking, cap)
        except NoAnswer as none:
            paid += none.may_be_billed
            wait = backoff_s(repeats, none.told_s, LONGEST_WAIT_S)
            ends = not none.passes or paid > RETRIES or time.monotonic() + wait > until
            if ends or none.may_be_billed:
                bench.release(reservation, cap if none.may_be_billed else 0.0)
            if ends:
                hint = "`peergate resume` asks again" + ("" if none.passes else "; mend the cause first")
                raise BuilderUnavailable(_why(none, repeats), where=model.name, hint=hint) from none
            repeats += 1
            try:
                bench.wait(wait, str(none))
            except BaseException:
                if not none.may_be_billed:
                    bench.release(reservation, 0.0)
                raise
            if none.may_be_billed:
                reservation = bench.reserve(cap)
        else:
            bench.record(answer.turn, reservation, answer.request, answer.response)
            return answer.turn


def _why(none: NoAnswer, repeats: int) -> str:
    return f"{none} (asked {repeats + 1} times)" if repeats else str(none)
