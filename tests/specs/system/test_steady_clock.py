"""A clock that goes on evenly while the system's is set, and says by how much it was."""

from __future__ import annotations

import pytest

from specs.system import steady_clock
from specs.system.steady_clock import SteadyClock

HOUR = 3600 * 10**9


class Machine:
    """What the clocks of a machine say."""

    system = 10**18
    ticks = 0

    def pass_time(self, ns: int) -> None:
        self.system += ns
        self.ticks += ns


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(steady_clock, "ticks_ns", lambda: machine.ticks)
    monkeypatch.setattr(steady_clock.time, "time_ns", lambda: machine.system)
    monkeypatch.setattr(steady_clock.time, "time", lambda: machine.system / 1e9)
    return machine


def test_it_goes_on_evenly_and_names_each_jump_once(machine: Machine) -> None:
    clock = SteadyClock()
    machine.pass_time(HOUR)
    assert (clock.now_ns(), clock.jump()) == (10**18 + HOUR, "")
    machine.system += 3 * HOUR
    assert clock.now_ns() == 10**18 + HOUR and clock.earliest_s() == pytest.approx((10**18 + HOUR) / 1e9)
    assert "set forward by 3.0 h" in clock.jump() and clock.jump() == ""
    machine.system -= 3 * HOUR
    assert "set back by 3.0 h" in clock.jump() and clock.jump() == ""
    machine.system += 5 * 10**9
    assert clock.jump() == "", "a clock that is kept right"
    machine.system -= 2 * HOUR
    assert clock.earliest_s() < (10**18 + HOUR) / 1e9


def test_it_goes_on_from_a_later_time(machine: Machine) -> None:
    clock = SteadyClock()
    assert clock.after(10**18 + HOUR) == 10**18 + HOUR
    machine.pass_time(7)
    assert clock.after(10**18 + HOUR) == 10**18 + HOUR + 7
