"""All rules together: each has a text case, random programs keep their results, and options select rules as documented."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgx_core import dim
from mgx_core.compile.stages import RULES, optimize_module, stages
from mgx_core.errors import MgxError, No, ParameterError
from mgx_core.ir.instruction import Instruction
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ir.module import Module, nested
from mgx_core.ir.text.parser import parse_module
from mgx_core.ir.verify import verify
from mgx_core.ops import STANDARD
from mgx_core.options import CompileOptions
from mgx_core.rules.engine import EXACT, RANGE, ROUNDING, Builder, Rewriter, Rule, Rules
from mgx_core.rules.outline import through_views
from mgx_core.rules.selection import FUSIONS, OPTIONAL, PASSES, RuleSelection
from mgx_core.types.shape import Shape


def make(name: str, **attributes):
    return STANDARD.make(name, **attributes)


def test_every_rule_has_a_case_and_a_docstring():
    tested = "\n".join(p.read_text() for p in Path(__file__).parents[1].glob("[rp]*s/test_*.py"))
    rules = RULES.rules
    assert len({r.name for r in rules}) == len(rules)
    for rule in rules:
        assert f'"{rule.name}"' in tested, rule.name
        assert len(rule.says) > 8, rule.name
        assert rule.says.endswith("."), rule.name


# random programs ------------------------------------------------------------------------------------------------------

UNARY = ["relu", "neg", "abs", "exp", "sigmoid", "tanh", "floor", "sqrt", "recip"]
BINARY = ["add", "sub", "mul", "div", "max", "min", "sqdiff", "pow"]
KINDS = ["unary", "binary", "number", "number", "view", "view", "reduce", "slice", "split", "concat", "gather", "dot"]
KINDS += ["convolution"]
NUMBERS = [0.0, 1.0, -1.0, 2.0, 0.5, 3.0, -0.25]


class Maker:
    """Generates one program: views, pointwise ops, reductions, products, slices and concatenations of a few tensors."""

    def __init__(self, draw: st.DrawFn, symbolic: bool, dtype: str = "float") -> None:
        self.draw = draw
        self.main = Module()
        n = dim.symbol("n", 2, 6) if symbolic else 2
        self.pool = [
            self.main.add_parameter("x", Shape(dtype, [n, 3, 4])),
            self.main.add_parameter("y", Shape(dtype, [4, 3])),
            self.main.add_parameter("z", Shape(dtype, [n, 3, 4])),
        ]

    def one(self) -> Instruction:
        return self.draw(st.sampled_from(self.pool[-6:]))

    def number(self, x: Instruction) -> Instruction:
        value = self.draw(st.sampled_from(NUMBERS))
        literal = self.main.add_literal(np.asarray(value, x.shape.dtype.numpy))
        if x.shape.rank and isinstance(x.shape.dims[-1], int) and self.draw(st.booleans()):
            row = np.full(x.shape.dims[-1], value) + self.draw(st.sampled_from([0, 1])) * np.arange(x.shape.dims[-1])
            literal = self.main.add_literal(row.astype(x.shape.dtype.numpy))
        return self.main.add(make("multibroadcast", out_lens=x.shape.dims), literal)

    def step(self) -> None:
        x = self.one()
        draw, add, rank = self.draw, self.main.add, x.shape.rank
        kind = draw(st.sampled_from(KINDS))
        match kind:
            case "unary":
                made = add(make(draw(st.sampled_from(UNARY))), x)
            case "binary":
                others = [y for y in self.pool if y.shape.dims == x.shape.dims]
                made = add(make(draw(st.sampled_from(BINARY))), x, draw(st.sampled_from(others)))
            case "number":
                operands = [x, self.number(x)]
                made = add(make(draw(st.sampled_from(BINARY))), *(operands if draw(st.booleans()) else operands[::-1]))
            case "view":
                made = self.view(x)
            case "reduce":
                if not rank:
                    return
                axes = tuple(sorted(draw(st.sets(st.integers(0, rank - 1), min_size=1))))
                made = add(make(draw(st.sampled_from(["reduce_sum", "reduce_max", "reduce_mean"])), axes=axes), x)
                if draw(st.booleans()):
                    made = add(make("multibroadcast", out_lens=x.shape.dims), made)
            case "slice":
                fixed = [a for a, d in enumerate(x.shape.dims) if isinstance(d, int) and d > 1]
                if not fixed:
                    return
                axis = draw(st.sampled_from(fixed))
                cut = draw(st.integers(1, x.shape.dims[axis] - 1))
                start = draw(st.booleans())
                op = make(
                    "slice", axes=(axis,), starts=(0 if start else cut,), ends=(cut if start else x.shape.dims[axis],)
                )
                made = add(op, x)
            case "split":
                made = self.split(x)
            case "gather":
                fixed = [a for a, d in enumerate(x.shape.dims) if isinstance(d, int) and 0 < d < 8]
                if not fixed:
                    return
                axis = draw(st.sampled_from(fixed))
                n = x.shape.dims[axis]
                every = draw(
                    st.sampled_from([np.repeat(np.arange(n), 2), np.tile(np.arange(n), 2), np.arange(n)[::-1]])
                )
                made = add(make("gather", axis=axis), x, self.main.add_literal(every.astype(np.int64)))
            case "convolution":
                made = self.convolution(x)
            case "concat":
                if not rank:
                    return
                axis = draw(st.integers(0, rank - 1))
                off = x.shape.dims[:axis], x.shape.dims[axis + 1 :]
                others = [
                    y
                    for y in self.pool
                    if y.shape.rank == rank and (y.shape.dims[:axis], y.shape.dims[axis + 1 :]) == off
                ]
                made = add(make("concat", axis=axis), x, draw(st.sampled_from(others)))
            case _:
                if rank != 2 or not isinstance(x.shape.dims[1], int) or x.shape.dims[1] > 64:
                    return
                w = np.linspace(-1, 1, x.shape.dims[1] * 2).reshape(-1, 2).astype(x.shape.dtype.numpy)
                made = add(make("dot"), x, self.main.add_literal(w))
        if made.shape.elements() <= 4096:
            self.pool.append(made)

    def split(self, x: Instruction) -> Instruction:
        """Applies an op to all slices of x, and concatenates the results, possibly in another order."""
        fixed = [a for a, d in enumerate(x.shape.dims) if isinstance(d, int) and d > 1]
        if not fixed:
            return x
        axis = self.draw(st.sampled_from(fixed))
        n, at = x.shape.dims[axis], self.draw(st.integers(1, x.shape.dims[axis] - 1))
        parts = [self.main.add(make("slice", axes=(axis,), starts=(a,), ends=(e,)), x) for a, e in ((0, at), (at, n))]
        kind = self.draw(st.sampled_from(["unary", "number", "reduce", "transpose", "one"]))
        other = (axis + 1) % x.shape.rank
        for k, part in enumerate(parts):
            if kind == "unary" or (kind == "one" and not k):
                parts[k] = self.main.add(make("abs"), part)
            elif kind == "number":
                parts[k] = self.main.add(make("mul"), part, self.number(part))
            elif kind == "reduce" and other != axis:
                parts[k] = self.main.add(make("reduce_sum", axes=(other,)), part)
            elif kind == "transpose":
                parts[k] = self.main.add(make("transpose"), part)
        axis = x.shape.rank - 1 - axis if kind == "transpose" else axis
        return self.main.add(make("concat", axis=axis), *(parts if self.draw(st.booleans()) else parts[::-1]))

    def convolution(self, x: Instruction) -> Instruction:
        """Adds two convolutions, or one with a factor on some of its channels."""
        if x.shape.rank != 3 or not isinstance(x.shape.dims[1], int):
            return x
        add, c = self.main.add, x.shape.dims[1]
        numbers = np.linspace(-1, 1, 4 * c).reshape(4, c, 1).astype(x.shape.dtype.numpy)
        one = add(make("convolution"), x, self.main.add_literal(numbers))
        if self.draw(st.booleans()):
            return add(make("add"), one, add(make("convolution"), x, self.main.add_literal(numbers[::-1].copy())))
        parts = [add(make("slice", axes=(1,), starts=(a,), ends=(a + 2,)), one) for a in (0, 2)]
        return add(make("concat", axis=1), add(make("mul"), parts[0], self.number(parts[0])), parts[1])

    def view(self, x: Instruction) -> Instruction:
        draw, add, dims = self.draw, self.main.add, x.shape.dims
        rank = len(dims)
        kind = draw(st.sampled_from(["transpose", "reshape", "unsqueeze", "broadcast"]))
        if kind == "transpose" and rank > 1:
            return add(make("transpose", permutation=tuple(draw(st.permutations(range(rank))))), x)
        if kind == "reshape" and rank > 1:
            at = draw(st.integers(0, rank - 2))
            return add(make("reshape", dims=(*dims[:at], dims[at] * dims[at + 1], *dims[at + 2 :])), x)
        if kind == "unsqueeze" and rank < 5:
            return add(make("unsqueeze", axes=(draw(st.integers(0, rank)),)), x)
        units = [a for a, d in enumerate(dims) if d == 1]
        out = tuple(2 if a in units else d for a, d in enumerate(dims))
        return add(make("multibroadcast", out_lens=(3, *out) if draw(st.booleans()) and rank < 4 else out), x)


@st.composite
def programs(draw: st.DrawFn, dtype: str = "float") -> Module:
    maker = Maker(draw, draw(st.booleans()), dtype)
    for _ in range(draw(st.integers(2, 14))):
        maker.step()
    maker.main.add_return(maker.pool[-2:])
    return maker.main


def feed(module: Module, symbol: int = 3) -> list[np.ndarray]:
    random = np.random.default_rng(7)
    out = []
    for p in module.parameters.values():
        shape = p.shape.substitute({"n": symbol})
        out.append((random.integers(-6, 7, shape.lens()) / 4).astype(shape.dtype.numpy))
    return out


def run(module: Module) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        return Interpreter().run(module, feed(module))


def close(before: list[np.ndarray], after: list[np.ndarray], exact: bool) -> None:
    for one, other in zip(before, after, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        wild = ~np.isfinite(one) | ~np.isfinite(other) | (np.abs(one) > 1e6)
        if exact:
            np.testing.assert_array_equal(one, other)
        else:
            scale = max(1.0, float(np.abs(one[~wild]).max(initial=0)))
            np.testing.assert_allclose(other[~wild], one[~wild], rtol=1e-4, atol=1e-5 * scale)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(programs())
def test_rules_match_only_where_an_operand_has_an_op_that_they_read(module):
    """Rules that are called everywhere match, or refuse, only where the index calls them too, and rewrite the same."""

    def checked(rule: Rule) -> Rule:
        def function(i: Instruction, b: Builder) -> Instruction | No | None:
            found = rule.function(i, b)
            read = {type(x.op) for operand in i.inputs for x in (operand, through_views(operand))}
            assert found is None or rule.matches(type(i.op), read), f"{rule.name} gives {found!r} for {i!r}"
            return found

        return rule._replace(function=function, reads=())

    copy = module.clone()
    one, other = Rewriter(RULES), Rewriter(Rules(RULES.name, map(checked, RULES.rules)))
    assert one.apply(module) == other.apply(copy)
    assert module.text() == copy.text()
    assert one.tally.fired == other.tally.fired


@settings(max_examples=150, deadline=None, derandomize=True)
@given(programs())
def test_exact_rules_change_nothing_in_random_programs(module):
    before = run(module)
    Rewriter(RULES.within(EXACT)).apply(module)
    module.sweep()
    assert verify(module) == []
    close(before, run(module), exact=True)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(programs(dtype="double"))
def test_all_rules_keep_the_numbers_of_random_programs(module):
    before = run(module)
    Rewriter(RULES.within(ROUNDING)).apply(module)
    module.sweep()
    assert verify(module) == []
    close(before, run(module), exact=False)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(programs(dtype="double"))
def test_the_stages_keep_the_numbers_of_random_programs(module):
    before = run(module)
    optimize_module(module, CompileOptions(validate=True))
    assert verify(module) == []
    close(before, run(module), exact=False)


# options --------------------------------------------------------------------------------------------------------------

PROGRAM = """\
module main
  %x = @param["x"] -> float32[2, 2]
  %w = @literal(1.0, 2.0, 3.0, 4.0) -> float32[2, 2]
  %c = @literal(3.0, 7.0) -> float32[2]
  %b = multibroadcast[out_lens=[2, 2]](%c)
  %1 = neg(%x)
  %2 = neg(%1)
  %3 = dot(%2, %w)
  %4 = div(%3, %b)
  %5 = relu(%4)
  %6 = exp(%5)
  %7 = log(%6)
  %8 = log(%6)
  %9 = exp(%8)
  %10 = exp(%7)
  @return(%9, %10)"""


def after(**options) -> set[str]:
    module = parse_module(PROGRAM, STANDARD)
    optimize_module(module, CompileOptions(**options))
    assert verify(module) == []
    return {i.name for m in nested(module) for i in m if not (i.is_param or i.is_literal or i.is_return)}


def test_aggressiveness_and_fast_math_control_allowed_changes():
    assert "neg" in after(aggressiveness=0)
    exact = after(aggressiveness=1, fast_math=False)
    assert "neg" not in exact
    assert {"div", "log"} <= exact
    for close in (after(), after(aggressiveness=2, fast_math=False)):
        assert not {"neg", "div", "log"} & close
    levels = [RuleSelection(CompileOptions(aggressiveness=a, fast_math=f), []) for a in (1, 2) for f in (False, True)]
    assert [c.changes for c in levels] == [EXACT, ROUNDING, ROUNDING, RANGE]
    counts = [len(c.rules(RULES).rules) for c in levels]
    assert counts == sorted(counts)
    left_out = {r.name for r in RULES.rules} & OPTIONAL
    assert counts[0] < counts[1] == counts[2] < counts[3] == len(RULES.rules) - len(left_out)
    named = CompileOptions(fusion_rules=dict.fromkeys(left_out, True))
    assert left_out <= {r.name for r in RuleSelection(named, (r.name for r in RULES.rules)).rules(RULES).rules}
    assert RuleSelection(CompileOptions(aggressiveness=0), []).rules(RULES).rules == []


def test_rules_are_switched_by_name():
    assert "div" in after(fusion_rules={"divide_by_constant": False, "factor-into-dot": False})
    assert "neg" not in after(aggressiveness=0, fusion_rules={"cancel-negations": True})
    assert "group" in after()
    assert "group" not in after(fusion_rules={"dot": False})
    assert "group" in after(fusion_rules={"convolution": False})
    assert "pointwise" not in after(fusion_rules={"pointwise": False, "dot": False})
    with pytest.raises(ParameterError, match="there is no rule 'convolutoin'; did you mean 'convolution'"):
        after(fusion_rules={"convolutoin": False})


def test_every_fusion_name_means_something():
    names = {r.name for r in RULES.rules} | PASSES
    for name, meant in FUSIONS.items():
        assert names.issuperset(meant), name
        for on in (True, False):
            assert stages(None, None, CompileOptions(fusion_rules={name: on}))


def test_passes_follow_the_names():
    def passes(**rules: bool) -> list[str]:
        return [p.name for s in stages(None, None, CompileOptions(fusion_rules=rules)) for p in s.passes]

    assert "fuse-attention" in passes()
    assert "fuse-attention" not in passes(attention=False)
    assert "join-convolutions" not in passes()
    assert {"join-convolutions", "join-gathers"} <= set(passes(horizontal_convolution=True, horizontal_gather=True))
    assert "fuse-horizontal" not in passes(horizontal_dot=False)
    assert "fuse-epilogue" not in passes(convolution=False, dot=False)


def test_refusals_name_the_rule_and_the_place():
    module = parse_module(
        """\
module main
  %x = @param["x"] -> float32[2]
  %0 = @literal(0.0, 0.0) -> float32[2]
  %1 = mul(%x, %0)  # node
  @return(%1)""",
        STANDARD,
    )
    given = stages(None, None, CompileOptions())
    optimize = next(p for s in given for p in s.passes if p.name == "simplify")
    optimize.apply(module)
    (found,) = optimize.tally.refusals
    assert (found.rule, found.sources) == ("product-with-zero", ("node",))
    assert re.fullmatch(r"mul\(@param, @literal\) -> float32\[2\]", found.instruction)


def test_an_impossible_shape_is_the_runs_business():
    module = parse_module(
        """\
module main
  %x = @param["x"] -> float32[2, 3]
  %d = @literal(5, 5) -> int64[2]
  %1 = reshape(%x, %d)
  @return(%1)""",
        STANDARD,
    )
    optimize_module(module, CompileOptions())
    with pytest.raises(MgxError):
        Interpreter().run(module, [np.zeros((2, 3), np.float32)])


def test_the_list_of_rules_names_existing_rules():
    """Every name in code font in the right column of docs/rules.md is a rule, a pass, a fusion or an op."""
    text = (Path(__file__).parents[2] / "docs" / "rules.md").read_text()
    rows = [line.split("|")[2] for line in text.splitlines() if line.startswith("| ")]
    names = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    known = {r.name for r in RULES.rules} | PASSES
    known |= {p.name for s in stages(None, None, CompileOptions()) for p in s.passes} | {"expand-composites"}
    words = {n for n in names if re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", n)}
    assert len(words) > 80
    assert not [n for n in words - known if n.replace("-", "_") not in STANDARD]


def test_rules_after_work_before_slices_see_a_single_reader():
    """The users of the slices were dead, but counted: the factors were joined only in a second compilation."""
    module = parse_module(
        """\
module main
  %x = @param["x"] -> float32[2, 4]
  %1 = @literal(3.0, 5.0, 7.0, 9.0) -> float32[4]
  %2 = multibroadcast[out_lens=[2, 4]](%1)
  %3 = div(%2, %x)
  %4 = slice[axes=[1], starts=[0], ends=[1]](%3)
  %5 = slice[axes=[1], starts=[1], ends=[4]](%3)
  %6 = @literal(0.5) -> float32[1]
  %7 = multibroadcast[out_lens=[2, 1]](%6)
  %8 = @literal(2.0, 3.0, 4.0) -> float32[3]
  %9 = multibroadcast[out_lens=[2, 3]](%8)
  %10 = mul(%4, %7)
  %11 = mul(%5, %9)
  @return(%11, %10)""",
        STANDARD,
    )
    optimize_module(module, CompileOptions(validate=True), before="fuse")
    assert [i.name for i in module if i.name in ("mul", "div", "slice")] == ["div", "slice", "slice"]


def test_a_slice_of_all_beside_empty_ones_is_dropped():
    """The slices after the first user were not revisited, so that one of the whole tensor was left."""
    module = parse_module(
        """\
module main
  %x = @param["x"] -> float32[1, 4]
  %1 = sin(%x)
  %2 = slice[axes=[0], starts=[0], ends=[0]](%1)
  %3 = exp(%2)
  %4 = slice[axes=[0], starts=[0], ends=[1]](%1)
  %5 = slice[axes=[0], starts=[1], ends=[1]](%1)
  %6 = exp(%4)
  %7 = exp(%5)
  @return(%3, %6, %7)""",
        STANDARD,
    )
    optimize_module(module, CompileOptions(validate=True), before="fuse")
    assert all(i.inputs[0].result != i.result for i in module if i.name == "slice")
