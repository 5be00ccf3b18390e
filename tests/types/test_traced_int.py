"""Numbers that know how they were computed from extents, and the conditions that code tested on them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mgx_core.types.dim import symbol
from mgx_core.types.traced_int import SMALLEST, SPAN, Trace, TracedInt, alignment, divides, larger, usual, value_of


def traced(*values: int) -> tuple[Trace, list[Any]]:
    trace = Trace()
    return trace, [trace.extent(n) for n in values]


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a + b, lambda a, b: a - b, lambda a, b: 7 - a + b, lambda a, b: a * b * 3, lambda a, b: a // 4 + b % 3,
        lambda a, b: 100 // a, lambda a, b: 100 % b, lambda a, b: -(-a // b), lambda a, b: math.prod([2, a, b]),
        lambda a, b: sum([a, b, 1]), lambda a, b: larger(a, b), lambda a, b: larger(1, 50 // a), lambda a, b: divmod(a, 5)[0] + b,
        lambda a, b: math.ceil(a) + math.floor(b),
    ],
)  # fmt: skip
def test_expressions_have_the_values_of_the_same_computation(function: Callable[[int, int], int]) -> None:
    trace, (a, b) = traced(13, 5)
    made = function(a, b)
    assert type(made) is TracedInt and value_of(made) == function(13, 5)
    evaluate = trace.evaluator([made])
    for x, y in [(13, 5), (2, 9), (64, 64), (1000, 3)]:
        assert evaluate(x, y) == [function(x, y)]
    assert not trace.conditions


@pytest.mark.parametrize(
    "relation", [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("value", [7, 8, 9])
def test_comparisons_are_conditions(relation: Callable[[int, int], bool], value: int) -> None:
    trace, (a,) = traced(value)
    holds = relation(a, 8)
    assert holds is relation(value, 8)
    test = trace.test()
    for x in range(SMALLEST, 20):
        assert test(x) is (relation(x, 8) is holds)


def test_comparisons_that_always_have_one_outcome_are_no_conditions() -> None:
    trace, (a, b) = traced(13, 5)
    assert a != 1 and a > 0 and bool(b) and a * b >= 4 and a == a and not -a >= 0 and 0 not in (a, b)
    assert (64 * a) % 16 == 0 and type((64 * a) % 16) is int and divides(16, 64 * a)
    assert not divides(16, 3 * a) and not trace.conditions
    assert trace.test()(SMALLEST, SMALLEST) and not trace.test()(SMALLEST - 1, SMALLEST)


@pytest.mark.parametrize(
    "divide",
    [lambda a: 100 // (a - 5), lambda a: 100 % (a - 5), lambda a: a // (a - 5), lambda a: a % (a - 5)],
)  # fmt: skip
def test_divisors_other_than_0_are_conditions(divide: Callable[[Any], Any]) -> None:
    trace, (a,) = traced(13)
    quotient = divide(a)
    assert quotient < 50
    test = trace.test()
    assert [x for x in range(SMALLEST, 12) if not test(x)] == [
        x for x in range(SMALLEST, 12) if x == 5 or divide(x) >= 50
    ]
    assert trace.evaluator([quotient])(7) == [divide(7)]


def test_the_extremes_of_sequences_are_conditions() -> None:
    trace, (a, b) = traced(13, 5)
    assert value_of(max(a, b)) == 13 and [*map(value_of, sorted([a, b]))] == [5, 13]
    test = trace.test()
    assert test(9, 4) and not test(4, 9)


@pytest.mark.parametrize(
    "use",
    [
        lambda a: a / 2, float, lambda a: a.bit_length(), lambda a: a & 3, lambda a: 1 << a, lambda a: a**2, lambda a: ~a,
        lambda a: 2**a, int, lambda a: a * 0.5, lambda a: a - 0.5, lambda a: a // 2.0, lambda a: a < 13.5, lambda a: a == 13.0,
        lambda a: int(np.asarray(a)), lambda a: int(np.int64(2) * a), lambda a: int(np.arange(a)[-1]),
    ],
)  # fmt: skip
def test_what_has_no_expression_is_valid_for_this_number_only(use: Callable[[Any], Any]) -> None:
    trace, (a,) = traced(13)
    assert use(a) == use(13)
    assert [x for x in range(2, 40) if trace.test()(x)] == [13]


def test_numbers_of_two_traces_are_different_keys() -> None:
    (_, (a,)), (_, (b,)) = traced(13), traced(13)
    assert len({a: 1, b: 2, 13: 3}) == 3 and {a: 1}[a + 0] == 1


def test_choices_are_repeated_for_other_values_and_valid_for_similar_ones() -> None:
    trace, (a,) = traced(100)
    assert usual(3 * a) == 300 and usual(7) == 7
    other = Trace(trace)
    b = other.extent(9)
    assert usual(3 * b) == 300 and trace.text(a * a + 1) == other.text(b * b + 1)
    for test in (trace.test(), other.test()):
        assert test(100 * SPAN) and test(100 // SPAN + 1) and not test(100 * SPAN + 1)


def test_symbols_of_a_file_are_never_compiled() -> None:
    trace, (a,) = traced(13)
    foreign = a + TracedInt.of(2, symbol("exit()", SMALLEST), trace)
    with pytest.raises(ValueError, match=r"exit\(\).*not traced"):
        trace.evaluator([foreign])
    assert foreign < 100
    with pytest.raises(ValueError, match=r"exit\(\).*not traced"):
        trace.test()


def test_choices_for_numbers_closer_to_each_other_have_narrower_conditions() -> None:
    trace, (a,) = traced(40)
    assert usual(a, 8) == 40
    test = trace.test()
    assert [test(x) for x in (4, 5, 320, 321)] == [False, True, True, False]


def test_alignments_hold_for_all_extents() -> None:
    trace, (a,) = traced(64)
    assert [alignment(n, 16) for n in (a, 2 * a, 48 * a, 48 * a + 8, 32 * (a // 3))] == [1, 2, 16, 8, 16]
    assert [alignment(n, 256) for n in (0, 1, 24, 512)] == [256, 1, 8, 256]
    assert not trace.conditions


def test_a_trace_decides_how_numbers_are_formatted() -> None:
    class Named(Trace):
        def formatted(self, number: int) -> str:
            return f"<{self.text(number)}>"

    plain, named = Trace().extent(7), Named().extent(7)
    assert (f"{plain + 1}", str(plain), repr(plain)) == ("8", "7", "7")
    assert (f"{named + 1}", str(named), repr(named), f"{named:3}") == ("<x0+1>", "<x0>", "7", "  7")
