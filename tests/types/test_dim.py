"""Symbolic extents, compared with plain integers for random expressions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mgx_core import dim
from mgx_core.errors import ParseError, ShapeError
from mgx_core.types.dim import Dim, Sym
from mgx_core.types.dim_text import parse
from mgx_core.types.dynamic_dimension import DynamicDimension
from mgx_core.types.polynomial import Call, of_atom

SYMBOLS = {"a": (0, 9), "b": (1, 7), "c": (2, 12), "n?3": (0, 5)}
ATOMS = {name: dim.symbol(name, lo, hi) for name, (lo, hi) in SYMBOLS.items()}
VALUES = st.fixed_dictionaries({name: st.integers(lo, hi) for name, (lo, hi) in SYMBOLS.items()})


class Pair:
    """An expression as a Dim and as a function on integers."""

    def __init__(self, extent: Dim, value) -> None:
        self.extent = extent
        self.value = value


def _leaf(name: str) -> Pair:
    return Pair(ATOMS[name], lambda v: v[name])


def _binary(children):
    operators = {
        "+": (lambda x, y: x + y, lambda x, y: x + y),
        "-": (lambda x, y: x - y, lambda x, y: x - y),
        "*": (lambda x, y: x * y, lambda x, y: x * y),
        "max": (dim.maximum, max),
        "min": (dim.minimum, min),
    }

    def build(args) -> Pair:
        symbolic, plain = operators[args[0]]
        x, y = args[1:]
        return Pair(symbolic(x.extent, y.extent), lambda v: plain(x.value(v), y.value(v)))

    def divide(args) -> Pair:
        x, by, kind = args
        if kind == "//":
            return Pair(x.extent // by.extent, lambda v: x.value(v) // by.value(v))
        if kind == "%":
            return Pair(x.extent % by.extent, lambda v: x.value(v) % by.value(v))
        return Pair(dim.ceil_div(x.extent, by.extent), lambda v: -(-x.value(v) // by.value(v)))

    divisors = st.sampled_from([_leaf("b"), _leaf("c")]) | st.integers(1, 6).map(_constant)
    return st.tuples(st.sampled_from(sorted(operators)), children, children).map(build) | st.tuples(
        children, divisors, st.sampled_from(["//", "%", "ceil"])
    ).map(divide)


def _constant(n: int) -> Pair:
    return Pair(n, lambda v: n)


PAIRS = st.recursive(
    st.sampled_from(sorted(ATOMS)).map(_leaf) | st.integers(-4, 9).map(_constant), _binary, max_leaves=6
)


@given(PAIRS, VALUES)
def test_expressions_evaluate_like_integers(pair, values):
    assert dim.substitute(pair.extent, values) == pair.value(values)


@given(PAIRS, VALUES)
def test_bounds_are_sound(pair, values):
    lo, hi = dim.bounds(pair.extent)
    assert lo <= pair.value(values) <= hi


@given(PAIRS, PAIRS, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), VALUES)
def test_compare_is_sound(a, b, relation, values):
    verdict = dim.compare(a.extent, relation, b.extent)
    x, y = a.value(values), b.value(values)
    truth = {"==": x == y, "!=": x != y, "<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[relation]
    assert verdict in (None, truth)
    if x == y:
        assert dim.may_equal(a.extent, b.extent)


@given(PAIRS)
def test_text_round_trip(pair):
    again = parse(str(pair.extent), ATOMS)
    assert again == pair.extent
    assert hash(again) == hash(pair.extent)


@given(PAIRS, PAIRS, PAIRS)
def test_equal_expressions_have_one_form(a, b, c):
    x, y, z = a.extent, b.extent, c.extent
    assert x + y == y + x
    assert x * y == y * x
    assert (x + y) + z == x + (y + z)
    assert (x * y) * z == x * (y * z)
    assert x * (y + z) == x * y + x * z
    assert x - x == 0
    assert dim.maximum(x, y) == dim.maximum(y, x)


@given(PAIRS, PAIRS, VALUES)
def test_substituting_in_two_steps(a, b, values):
    lo, hi = SYMBOLS["b"]  # simplifications that use b's bounds hold only within them
    some = {"a": values["a"], "b": dim.maximum(lo, dim.minimum(b.extent, hi))}
    rest = {**values, "b": max(lo, min(b.value(values), hi))}
    assert dim.substitute(dim.substitute(a.extent, some), values) == a.value(rest)


@given(PAIRS, PAIRS, VALUES)
def test_broadcast_agrees_with_numpys_rule(a, b, values):
    x, y = a.value(values), b.value(values)
    assume(dim.bounds(a.extent)[0] >= 0)
    assume(dim.bounds(b.extent)[0] >= 0)
    assume(x == y or x == 1 or y == 1)
    joined = dim.broadcast(a.extent, b.extent)
    assert dim.substitute(joined, values) == (y if x == 1 else x)
    lo, hi = dim.bounds(joined)
    assert lo <= (y if x == 1 else x) <= hi


def test_constants_are_ints():
    a, b = ATOMS["a"], ATOMS["b"]
    assert isinstance(a - a + 3, int)
    assert (a * 0, (a * b) // b, (4 * a + 8) // 4, (4 * a + 7) % 4) == (0, a, a + 2, 3)
    assert (4 * a + 5) // 4 == a + 1
    assert (a - 1) // 2 == (a + 1) // 2 - 1  # constants are factored out too

    assert dim.symbol("k", 3, 3) == 3
    assert str(2 * a * b - a + 1) == "2*a*b-a+1" or parse(str(2 * a * b - a + 1), ATOMS) == 2 * a * b - a + 1


def test_quotients_of_quotients_are_one():
    """A backbone that halves an image five times: one division instead of five nested ones."""
    a = dim.symbol("a", 1, 4096)
    halved: dim.Dim = a
    for _ in range(5):
        halved = (halved - 1) // 2 + 1
    assert str(32 * halved) == "32*((a+31)//32)"
    assert halved == dim.ceil_div(a, 32)
    assert (a // 2 // 3, (a // 2 + 5) // 3) == (a // 6, (a + 4) // 6 + 1)
    assert str((2 * (a // 2) + 1) // 3) == "((2*(a//2)+1)//3)"  # not only a quotient


def test_values_are_not_known_before_running():
    a = ATOMS["a"]
    with pytest.raises(ShapeError, match="whether the symbolic extent a is 0"):
        bool(a)
    with pytest.raises(ShapeError, match="no value before running"):
        range(a)
    with pytest.raises(ShapeError, match="no value before running"):
        [1, 2][a]


def test_maximum_and_minimum_decide_by_bounds():
    a, c = ATOMS["a"], ATOMS["c"]
    assert dim.maximum(a, 9) == 9
    assert dim.maximum(c, 2) == c
    assert dim.minimum(c, 1) == 1
    assert isinstance(dim.maximum(a, c), Sym)
    assert dim.bounds(dim.maximum(a, c)) == (2, 12)


def test_a_maximum_within_a_minimum_and_the_other_way_round():
    n, m = dim.fresh("n", 0, 20), dim.fresh("m", 0, 20)
    rest = dim.maximum(n - 1, 0)
    assert dim.minimum(rest, n) == rest  # a slice that ends one before the end, of an axis that may be empty
    assert dim.minimum(dim.maximum(n + 1, m), n) == n
    more = dim.minimum(n + 1, 30)
    assert dim.maximum(more, n) == more
    assert dim.maximum(dim.minimum(n - 1, m), n) == n
    assert dim.minimum(dim.maximum(m, 1), n) not in (n, dim.maximum(m, 1))


def test_broadcast_of_extents():
    a, b, c = ATOMS["a"], ATOMS["b"], ATOMS["c"]
    far = dim.symbol("far", 20, 30)
    assert dim.broadcast(a, a) == a
    assert dim.broadcast(1, b) == b
    assert dim.broadcast(b, 1) == b
    assert dim.broadcast(b, 5) == 5
    assert dim.broadcast(b, c) == c  # c is never 1, so b is 1 or equal to it
    assert dim.bounds(dim.broadcast(a, b)) == (0, 9)
    for x, y in ((2, 3), (c, 13), (0, c), (c, far)):
        with pytest.raises(ShapeError, match="do not broadcast"):
            dim.broadcast(x, y)
    assert dim.broadcast(b, far) == far


def test_broadcasts_of_broadcasts():
    a, b, d = ATOMS["a"], ATOMS["b"], dim.symbol("d")
    joined = dim.broadcast(a, b)
    assert dim.broadcast(joined, a) == dim.broadcast(b, joined) == joined
    assert dim.broadcast(dim.broadcast(a, d), b) == dim.broadcast(a, dim.broadcast(d, b))
    assert dim.broadcast(dim.minimum(32, d), d) == d  # where d is larger than 32, they do not broadcast
    assert dim.broadcast(dim.broadcast(dim.minimum(32, d), a), d) == dim.broadcast(a, d)
    low = dim.minimum(a, d)  # a can be 0, and then 0 against d = 1 is 0
    assert dim.broadcast(low, d) != d
    assert parse(str(dim.broadcast(joined, d)), {"a": a, "b": b, "d": d}) == dim.broadcast(joined, d)


def test_truncating_division():
    a, b = ATOMS["a"], ATOMS["b"]
    assert [dim.trunc_div(x, y) for x, y in ((7, 2), (-7, 2), (7, -2), (-7, -2))] == [3, -3, -3, 3]
    assert dim.trunc_div(a, 2) == a // 2
    with pytest.raises(ShapeError, match="sign of the quotient"):
        dim.trunc_div(b, a - 5)
    with pytest.raises(ShapeError, match="divided by zero"):
        dim.trunc_div(3, 0)


@given(PAIRS, st.integers(1, 5), VALUES)
def test_truncating_division_with_unknown_sign(pair, by, values):
    value = pair.value(values)
    assert dim.substitute(dim.trunc_div(pair.extent, by), values) == abs(value) // by * (1 if value > 0 else -1)


@pytest.mark.parametrize("expression", [lambda a: a // 0, lambda a: a % 0, lambda a: dim.ceil_div(4, 0)])
def test_division_by_zero(expression):
    with pytest.raises(ShapeError, match="divided by zero"):
        expression(ATOMS["a"])


@pytest.mark.parametrize("by", [-3, -1])
def test_bounds_with_negative_divisors(by):
    for value in range(10):
        for extent, got in ((ATOMS["a"] // by, value // by), (ATOMS["a"] % by, value % by)):
            lo, hi = dim.bounds(extent)
            assert lo <= got <= hi
            assert dim.substitute(extent, {"a": value}) == got


@pytest.mark.parametrize(
    "text",
    ["", "a+", "a**2", "a/b", "f(a)", "max(a)", "a b", "[a]", "a.b()", "1 if a else 2", "3//0", "a%0", "(" * 500, "\0"],
)
def test_text_that_is_no_extent(text):
    with pytest.raises(ParseError, match="is not an extent"):
        parse(text, ATOMS)


def test_unknown_names_become_unbounded_symbols():
    batch = parse("2*batch", {})
    assert dim.bounds(batch) == (0, 2 * dim.UNBOUNDED)
    assert {s.name for s in dim.symbols_of(batch)} == {"batch"}


def test_fresh_symbols_differ_and_are_bounded():
    x, y = dim.fresh("n", 0, ATOMS["a"] * 3), dim.fresh("n", 0, ATOMS["a"] * 3)
    assert x != y
    assert dim.bounds(x) == (0, 27)
    assert dim.fresh("n", 0, 0) == 0


def test_fresh_symbols_are_not_bounded_by_products_of_open_extents():
    found = dim.fresh("n", 0, dim.symbol("a") * dim.symbol("b") * dim.symbol("c"))
    assert dim.bounds(found) == (0, dim.UNBOUNDED)


def test_symbols_state_possible_bounds():
    for lo, hi in ((-1, 3), (4, 3)):
        with pytest.raises(ShapeError, match=r"0 <= min <= max, got min -?\d, max 3"):
            dim.symbol("n", lo, hi)


def test_dynamic_dimensions_from_user_notation():
    assert DynamicDimension.of(4) == 4
    assert DynamicDimension.of((1, 8, {2, 4})) == DynamicDimension(1, 8, [4, 2])
    assert DynamicDimension.of({"min": 1, "max": 8, "optimals": [2]}) == DynamicDimension(1, 8, [2])
    assert DynamicDimension.of(dim.symbol("n", 1, 8, [2])) == DynamicDimension(1, 8, [2])
    assert DynamicDimension.of(ATOMS["a"] - 4) == DynamicDimension(0, 5)
    assert DynamicDimension(3, 3).is_fixed()
    assert DynamicDimension(3, 3).named("n") == 3
    assert dim.bounds(DynamicDimension(1, 8).named("n")) == (1, 8)
    assert str(DynamicDimension(1, 8, [4, 2])) == "[1, 8, {2, 4}]"


@pytest.mark.parametrize("pick", [dim.minimum, dim.maximum])
def test_an_extent_picked_twice_is_picked_once(pick: Any):
    """A slice clamps its bounds to the axis' extent, whether or not they were clamped before: an extent has one form."""
    a, b = dim.symbol("a"), dim.symbol("b", 0, 100)
    for other in (b, 7):
        once = pick(a, other)
        assert pick(once, a) == pick(a, once) == once
        assert pick(pick(once, other), a) == once


def test_symbols_are_replaced_at_once_and_not_by_what_replaced_others():
    a, b, c = dim.symbol("a", 1, 100), dim.symbol("b", 1, 100), dim.symbol("c", 1, 100)
    renamed: dict[str, Dim] = {"a": b, "b": c, "c": a}
    for made in (lambda x, y: x, lambda x, y: 2 * x + 3 * y, lambda x, y: x // 2 + y, lambda x, y: x * y):
        assert dim.substitute(made(a, b), renamed) == made(b, c)
    assert dim.substitute(a * b, {"a": b, "b": 1}) == b


@pytest.mark.parametrize("function", ["bounds", "symbols_of"])
def test_a_shared_subexpression_is_visited_once(monkeypatch, function):
    """Extents of windowed attention contain others twice, which contain others twice: a tree with 2^18 leaves."""

    def counted(d: Dim) -> Any:
        asked.append(d)
        return ours(d)

    asked: list[Dim] = []
    ours = getattr(dim, function)
    monkeypatch.setattr(dim, function, counted)
    found = getattr(dim, function)(doubled(18))
    assert found == ((3, 9) if function == "bounds" else {dim.symbol("n", 3, 9).symbol})
    assert len(asked) < 100


def test_the_replacement_of_a_shared_subexpression_is_created_once(monkeypatch):
    def counted(a: Dim, b: Dim) -> Dim:
        asked.append((a, b))
        return max(a, b)

    asked: list[tuple[Dim, Dim]] = []
    monkeypatch.setitem(dim.FUNCTIONS, "max", counted)
    assert dim.substitute(doubled(18), {"n": 5}) == 5
    assert len(asked) == 18


def test_extents_with_parts_that_occur_many_times_are_compared_once(monkeypatch):
    def counted(one: Call, other: object) -> bool:
        asked.append(one)
        return ours(one, other)

    asked: list[Call] = []
    ours = Call.__eq__
    one, other, longer = doubled(18), doubled(18), doubled(19)
    monkeypatch.setattr(Call, "__eq__", counted)
    assert one == other
    assert one != longer
    assert len(asked) < 100


def doubled(depth: int) -> Dim:
    """Returns an extent that contains another one twice, recursively."""
    d: Dim = dim.symbol("n", 3, 9)
    for _ in range(depth):
        d = of_atom(Call("max", (d, of_atom(Call("floordiv", (d, 2))))))
    return d


def test_comparing_changes_nothing():
    """Comparing equal extents made them share parts, including the preferred values of one of them."""
    preferred, plain = (dim.symbol("n", 1, 8, optimals) for optimals in ([4], []))
    for one, other in ((preferred, plain), ((preferred + 1) // 2, (plain + 1) // 2)):
        assert one == other
    assert (preferred.symbol.optimals, plain.symbol.optimals) == ((4,), ())
    assert [s.optimals for s in dim.symbols_of((plain + 1) // 2)] == [()]


@given(st.lists(PAIRS, min_size=1, max_size=4), VALUES, st.sets(st.sampled_from(sorted(SYMBOLS))))
def test_replacements_in_many_extents_are_those_in_each(pairs, values, names):
    some = {name: values[name] for name in names}
    replaced = dim.Replacements(some)
    for pair in pairs * 2:
        made = dim.substitute(pair.extent, replaced)
        assert made == dim.substitute(pair.extent, some)
        if isinstance(pair.extent, Sym) and made == pair.extent and not pair.extent.marked:
            assert made is dim.substitute(made, replaced)


def test_replacements_keep_what_the_user_wrote_about_equal_extents():
    plain, tuned = dim.symbol("n", 1, 9) + 1, dim.symbol("n", 1, 9, optimals=[4]) + 1
    assert plain == tuned
    replaced = dim.Replacements({"m": 3})
    dim.substitute(plain, replaced)
    found = dim.substitute(tuned, replaced)
    assert isinstance(found, Sym)
    assert [s.optimals for s in dim.symbols_of(found)] == [(4,)]


def test_replacements_by_an_equal_extent_add_what_the_user_wrote():
    replaced = dim.Replacements({"n": dim.symbol("n", 1, 9, optimals=[4])})
    found = dim.substitute(dim.symbol("n", 1, 9) + 1, replaced)
    assert isinstance(found, Sym)
    assert [s.optimals for s in dim.symbols_of(found)] == [(4,)]


def test_an_unknown_relation_is_named() -> None:
    with pytest.raises(ValueError, match="relation must be one of == != < <= > >=, got '=<'"):
        dim.compare(1, "=<", 2)
