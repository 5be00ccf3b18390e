"""Selection of the runs that execute in the event loop."""

from __future__ import annotations

import math

from mgx_serve.run_times import LONG, SHORT, TRY_AFTER, RunTimes, Spent

QUICK, WAITED, WORKED, DEVICE = Spent(5e-5, 5e-5), Spent(8e-3, 5e-5), Spent(8e-3, 7e-3), Spent(0.2, 5e-5)
HALF = SHORT / 2


def kept(first: Spent, measured: float = math.inf) -> RunTimes:
    made = RunTimes()
    made.in_thread("k", first, lambda: measured)
    return made


def runs_before_a_try(paces: RunTimes, spent: Spent, most: int = 1000) -> int:
    """Returns how many runs had threads before one is tried in the loop."""
    for n in range(most):
        if paces.short("k"):
            return n
        paces.in_thread("k", spent, lambda: math.inf)
    return most


def test_the_first_run_of_a_kind_has_a_thread() -> None:
    assert not RunTimes().short("k")


def test_short_runs_are_made_in_the_loop() -> None:
    assert kept(QUICK).short("k")
    assert kept(WAITED, measured=HALF).short("k")  # measurements on a quiet machine have more weight
    assert not kept(WAITED).short("k")
    assert not kept(DEVICE, measured=HALF).short("k")


def test_runs_that_waited_for_the_interpreter_are_tried_in_the_loop() -> None:
    paces = kept(WAITED)
    assert runs_before_a_try(paces, WAITED) == TRY_AFTER
    paces.in_loop("k", QUICK)
    assert paces.short("k")
    for _ in range(100):
        paces.in_loop("k", QUICK)
    assert paces.short("k")


def test_tries_in_vain_get_rare() -> None:
    paces = kept(WAITED)
    for n in range(1, 5):
        runs_before_a_try(paces, WAITED)
        paces.in_loop("k", WAITED if n % 2 else None)
        assert runs_before_a_try(paces, WAITED) == TRY_AFTER << n
        assert paces.short("k")


def test_runs_that_end_together_are_followed_by_a_try() -> None:
    paces = kept(WAITED)
    for _ in range(TRY_AFTER + 1):  # the last two started before either had ended
        paces.in_thread("k", WAITED, lambda: math.inf)
    assert paces.short("k")


def test_long_runs_are_never_tried_in_the_loop() -> None:
    for spent in (WORKED, DEVICE):
        assert runs_before_a_try(kept(spent), spent) == 1000


def test_a_run_that_was_interrupted_stays_in_the_loop_and_slow_ones_leave_it() -> None:
    paces = kept(QUICK)
    paces.in_loop("k", WAITED)
    assert paces.short("k")
    for _ in range(8):
        paces.in_loop("k", WAITED)
    assert not paces.short("k")


def test_one_long_run_leaves_the_loop() -> None:
    paces = kept(QUICK)
    paces.in_loop("k", Spent(LONG, 0.0))
    assert not paces.short("k")
    assert runs_before_a_try(paces, WAITED) == TRY_AFTER


def test_failures_are_no_times() -> None:
    paces = kept(QUICK)
    for _ in range(100):
        paces.in_loop("k", None)
    assert paces.short("k")
