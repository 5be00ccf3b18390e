"""The engine in one file: mgx's idea, rebuilt small enough to read in one sitting.

Read from top to bottom.  Each chapter rebuilds one part of mgx, whose name stands in brackets.  Numpy is all it needs:

    python engine_in_one_file.py

The idea in four sentences.  An operation is defined once: attributes, a shape rule, a meaning.  Everything else that there is to
know about it, such as its kernels, its rewriting rules and its name in some file format, is a table kept elsewhere, by whoever
needs it.  A program is a list of instructions that passes rewrite until a target can launch them.  Whoever refuses says why.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, dataclass_transform

import numpy as np

# 1. Shapes [mgx_core/types/shape.py] ----------------------------------------------------------------------------------------
#
# The type of a value: element type and extents.  The real one also has strides, tuples, and extents that are symbols such as
# `batch` with arithmetic on them, so that one compile serves all sizes.


@dataclass(frozen=True)
class Shape:
    dims: tuple[int, ...]
    dtype: str = "float32"

    @property
    def elements(self) -> int:
        return int(np.prod(self.dims))

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.dims)}"


class ShapeError(ValueError):
    pass


# 2. Scalar expressions [mgx_core/ops/scalar.py] ---------------------------------------------------------------------------
#
# Pointwise ops differ only in what they do to one element.  So that is all they say: an expression over some fifty primitives
# (seven here).  An interpretation of all pointwise ops, present and future, is then a table with one row per primitive.


class Expr:
    def __add__(self, other: Expr | float) -> Expr:
        return call("add", self, other)

    def __sub__(self, other: Expr | float) -> Expr:
        return call("sub", self, other)

    def __mul__(self, other: Expr | float) -> Expr:
        return call("mul", self, other)

    def __truediv__(self, other: Expr | float) -> Expr:
        return call("div", self, other)


@dataclass(frozen=True)
class Input(Expr):
    index: int


@dataclass(frozen=True)
class Const(Expr):
    value: float


@dataclass(frozen=True)
class Call(Expr):
    primitive: str
    args: tuple[Expr, ...]


def call(primitive: str, *args: Expr | float) -> Expr:
    return Call(primitive, tuple(a if isinstance(a, Expr) else Const(float(a)) for a in args))


def fold(expr: Expr, leaf: Callable[[Any], Any], node: Callable[[str, list[Any]], Any]) -> Any:
    """Interprets an expression bottom-up; every table below is driven by these three lines."""
    if isinstance(expr, Call):
        return node(expr.primitive, [fold(a, leaf, node) for a in expr.args])
    return leaf(expr)


NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "max": np.maximum, "exp": np.exp, "tanh": np.tanh,
}  # fmt: skip
C = {
    "add": "({} + {})", "sub": "({} - {})", "mul": "({} * {})", "div": "({} / {})",
    "max": "fmaxf({}, {})", "exp": "expf({})", "tanh": "tanhf({})",
}  # fmt: skip


def evaluate(expr: Expr, args: Sequence[np.ndarray]) -> Any:
    """Returns the first interpretation: numpy, on whole arrays."""
    return fold(
        expr, lambda e: args[e.index] if isinstance(e, Input) else np.float32(e.value), lambda p, a: NUMPY[p](*a)
    )


def c_source(expr: Expr) -> str:
    """Returns the second: C, as a target with a compiler would want it."""
    return str(
        fold(expr, lambda e: f"x{e.index}[i]" if isinstance(e, Input) else f"{e.value}f", lambda p, a: C[p].format(*a))
    )


x0, x1 = Input(0), Input(1)

# 3. Operations, once [mgx_core/ops/operation.py, mgx_core/ops/] -----------------------------------------------------------
#
# A frozen record of attributes with two methods.  The signature of `infer` is the list of inputs.  `compute` is the meaning:
# slow, plain, and what every kernel is measured against.


class Operation:
    name: ClassVar[str]

    infer: Callable[..., Shape]
    compute: Callable[..., np.ndarray]

    def __repr__(self) -> str:
        inside = ", ".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self))  # type: ignore[arg-type]
        return f"{self.name}[{inside}]" if inside else self.name


@dataclass_transform(kw_only_default=True, frozen_default=True)
def op(name: str) -> Callable[[type], Any]:
    """Declares an operation: attributes from the annotations; equality and hashing come with the record."""

    def declare(cls: type) -> Any:
        cls.name = name  # type: ignore[attr-defined]
        return dataclass(frozen=True, kw_only=True, repr=False)(cls)

    return declare


class Pointwise(Operation):
    """Element by element from one scalar expression; all inputs have one shape."""

    scalar: Expr

    def infer(self, *xs: Shape) -> Shape:
        if any(x != xs[0] for x in xs):
            raise ShapeError(f"{self.name}: inputs must have one shape, got {', '.join(map(str, xs))}")
        return xs[0]

    def compute(self, *xs: np.ndarray) -> np.ndarray:
        return np.asarray(evaluate(self.scalar, xs), dtype=xs[0].dtype)


def pointwise(name: str, expr: Expr) -> Any:
    return op(name)(type(name.title(), (Pointwise,), {"scalar": expr, "__module__": __name__}))


Add, Sub, Mul, Div = (
    pointwise(n, e) for n, e in (("add", x0 + x1), ("sub", x0 - x1), ("mul", x0 * x1), ("div", x0 / x1))
)
Relu, Exp, Tanh = (
    pointwise("relu", call("max", x0, 0)),
    pointwise("exp", call("exp", x0)),
    pointwise("tanh", call("tanh", x0)),
)


@op("dot")
class Dot(Operation):
    def infer(self, a: Shape, b: Shape) -> Shape:
        if len(a.dims) != 2 or len(b.dims) != 2 or a.dims[1] != b.dims[0]:
            raise ShapeError(f"dot: [m, k] and [k, n] required, got {a} and {b}")
        return Shape((a.dims[0], b.dims[1]))

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.matmul(a, b)


@op("broadcast")
class Broadcast(Operation):
    """No pointwise op broadcasts by itself: it is an instruction of its own, so that every pass sees it."""

    dims: tuple[int, ...]

    def infer(self, x: Shape) -> Shape:
        if np.broadcast_shapes(x.dims, self.dims) != self.dims:
            raise ShapeError(f"broadcast: {x} does not broadcast to {list(self.dims)}")
        return Shape(self.dims)

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.broadcast_to(x, self.dims))


@op("reduce")
class Reduce(Operation):
    how: str  # sum or max
    axis: int

    def infer(self, x: Shape) -> Shape:
        return Shape(tuple(1 if n == self.axis else d for n, d in enumerate(x.dims)))

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(getattr(np, self.how)(x, axis=self.axis, keepdims=True))


@op("softmax")
class Softmax(Operation):
    """A composite op also says how it is made of simpler ones, for targets that have no kernel for the whole."""

    axis: int

    def infer(self, x: Shape) -> Shape:
        return x

    def compute(self, x: np.ndarray) -> np.ndarray:
        e = np.exp(x - x.max(axis=self.axis, keepdims=True))
        return np.asarray(e / e.sum(axis=self.axis, keepdims=True))

    def decompose(self, m: Module, x: Instruction) -> Instruction:
        top = m.add(Broadcast(dims=x.shape.dims), m.add(Reduce(how="max", axis=self.axis), x))
        e = m.add(Exp(), m.add(Sub(), x, top))
        return m.add(Div(), e, m.add(Broadcast(dims=x.shape.dims), m.add(Reduce(how="sum", axis=self.axis), e)))


# 4. The program [mgx_core/ir/] ----------------------------------------------------------------------------------------
#
# Instructions in order, each with an op, its inputs and the shape that the op's rule gave.  A parameter has no op; a literal has
# its value.  Adding puts the instruction right before the one under work, or at the end.


class Instruction:
    def __init__(
        self, op: Any, inputs: tuple[Instruction, ...], shape: Shape, value: Any = None, label: str = ""
    ) -> None:
        self.op, self.inputs, self.shape, self.value, self.label = op, inputs, shape, value, label

    def __repr__(self) -> str:
        return f"{self.op!r}" if self.op else self.label or f"literal {self.shape}"


class Module:
    def __init__(self) -> None:
        self.steps: list[Instruction] = []
        self.outputs: list[Instruction] = []
        self.at: Instruction | None = None

    def _put(self, ins: Instruction) -> Instruction:
        self.steps.insert(len(self.steps) if self.at is None else self.steps.index(self.at), ins)
        return ins

    def add(self, op: Any, *inputs: Instruction) -> Instruction:
        return self._put(Instruction(op, inputs, op.infer(*(i.shape for i in inputs))))

    def parameter(self, name: str, shape: Shape) -> Instruction:
        return self._put(Instruction(None, (), shape, label=name))

    def literal(self, value: Any) -> Instruction:
        array = np.asarray(value, dtype=np.float32)
        return self._put(Instruction(None, (), Shape(array.shape), value=array))

    def users(self, ins: Instruction) -> list[Instruction]:
        return [s for s in self.steps if ins in s.inputs]

    def replace(self, old: Instruction, new: Instruction) -> None:
        assert old.shape == new.shape, f"{old} -> {new}: the shape would change"  # the engine checks, not the rule
        for s in self.steps:
            s.inputs = tuple(new if i is old else i for i in s.inputs)
        self.outputs = [new if o is old else o for o in self.outputs]

    def sweep(self) -> None:
        """Removes what nobody reads."""
        alive = set(self.outputs)
        for s in reversed(self.steps):
            if s in alive:
                alive.update(s.inputs)
        self.steps = [s for s in self.steps if s in alive or s.label]

    def text(self) -> Iterator[str]:
        names: dict[Instruction, str] = {}
        for n, s in enumerate(self.steps):
            names[s] = s.label or f"%{n}"
            yield f"{names[s]} = {s!r}({', '.join(names[i] for i in s.inputs)}) -> {s.shape}"


# 5. Rewriting [mgx_core/rules/engine.py] -----------------------------------------------------------------------------------
#
# A rule looks at one instruction: it returns a replacement, a refusal with its reason, or None where it has nothing to say.  One
# engine runs all rules to a fixed point, and looks again only where something changed.


class No(NamedTuple):
    why: str


Rule = Callable[[Module, Instruction], "Instruction | No | None"]


def rewrite(m: Module, rules: Sequence[Rule]) -> list[str]:
    """Applies rules until none fires; returns the refusals."""
    refusals: list[str] = []
    pending = list(m.steps)
    while pending:
        ins = pending.pop(0)
        if ins not in m.steps:
            continue
        for rule in rules:
            m.at = ins
            new = rule(m, ins)
            m.at = None
            if isinstance(new, No):
                refusals.append(f"{rule.__name__} on {ins}: {new.why}")
            elif new is not None:
                m.replace(ins, new)
                m.sweep()
                pending += [new, *new.inputs, *m.users(new)]
                break
    m.sweep()
    return refusals


def fold_constants(m: Module, ins: Instruction) -> Instruction | None:
    if ins.op and ins.inputs and all(i.value is not None for i in ins.inputs):
        return m.literal(ins.op.compute(*(i.value for i in ins.inputs)))
    return None


def merge_common(m: Module, ins: Instruction) -> Instruction | None:
    """Returns the same op on the same inputs, earlier in the program."""
    first = next(s for s in m.steps if s is ins or (s.op and (s.op, s.inputs) == (ins.op, ins.inputs)))
    return None if first is ins else first


def relu_of_relu(m: Module, ins: Instruction) -> Instruction | None:
    return ins.inputs[0] if isinstance(ins.op, Relu) and isinstance(ins.inputs[0].op, Relu) else None


def scale_into_weights(m: Module, ins: Instruction) -> Instruction | No | None:
    """mul(dot(x, w), c) -> dot(x, mul(w, c)), w and c known, c the same everywhere."""
    if not isinstance(ins.op, Mul) or not isinstance(ins.inputs[0].op, Dot) or ins.inputs[1].value is None:
        return None
    product, c = ins.inputs
    x, w = product.inputs
    if w.value is None:
        return No("the weights are known only at run time")
    if len(m.users(product)) > 1:
        return No("the unscaled product is read elsewhere")
    if np.unique(c.value).size > 1:
        return No("the factor varies")
    return m.add(Dot(), x, m.literal(w.value * c.value.flat[0]))


SIMPLIFY: list[Rule] = [fold_constants, merge_common, relu_of_relu, scale_into_weights]

# 6. Fusion [mgx_core/passes/fuse_elementwise.py] ----------------------------------------------------------------------
#
# Two pointwise ops in a row are one: put the expression of the first into that of the second.  (The real one makes sub-modules,
# so that a value that is read twice is computed once, and takes reductions in too.)


@dataclass(frozen=True, repr=False)
class Fused(Pointwise):
    scalar: Expr

    name: ClassVar[str] = "fused"

    def __repr__(self) -> str:
        return f"fused {c_source(self.scalar)}"


def fuse_pointwise(m: Module, ins: Instruction) -> Instruction | None:
    if not isinstance(ins.op, Pointwise):
        return None
    for n, producer in enumerate(ins.inputs):
        if isinstance(producer.op, Pointwise) and m.users(producer) == [ins] and ins.inputs.count(producer) == 1:
            others = [i for i in ins.inputs if i is not producer]
            inputs = list(dict.fromkeys([*producer.inputs, *others]))
            inner = _renumbered(producer.op.scalar, [Input(inputs.index(i)) for i in producer.inputs])
            outer = [inner if k == n else Input(inputs.index(i)) for k, i in enumerate(ins.inputs)]
            return m.add(Fused(scalar=_renumbered(ins.op.scalar, outer)), *inputs)
    return None


def _renumbered(expr: Expr, inputs: Sequence[Expr]) -> Expr:
    return fold(expr, lambda e: inputs[e.index] if isinstance(e, Input) else e, lambda p, a: Call(p, tuple(a)))  # type: ignore[no-any-return]


# 7. Kernels [mgx_core/targets/kernel.py, plugins/] ----------------------------------------------------------------------------
#
# A target is a table of plans by op.  A plan answers with a kernel, here a function `(out, *inputs)`, or with `No`.  Plans are
# asked in the order in which they are written.  If all decline, the op is decomposed; if it cannot be, its definition runs, and
# the report says so.  A new target is a new table: no op knows of it.

Kernel = Callable[..., None]
PLANS: dict[type, list[Callable[..., Any]]] = {}


def plan(*ops: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def keep(function: Callable[..., Any]) -> Callable[..., Any]:
        for cls in ops:
            PLANS.setdefault(cls, []).append(function)
        return function

    return keep


@plan(Dot)
def blas(op: Any, shapes: Sequence[Shape]) -> Kernel | No:
    return lambda out, a, b: np.matmul(a, b, out=out)


BLOCK = 4096  # elements that stay in the nearest cache


@plan(Pointwise)
def blocked_loop(op: Any, shapes: Sequence[Shape]) -> Kernel | No:
    """Returns the whole expression on one block after another, so that intermediate values never leave the cache."""
    if shapes[0].elements < 8:
        return No("too small for a loop of blocks")

    def run(out: np.ndarray, *xs: np.ndarray) -> None:
        flat = [x.reshape(-1) for x in xs]
        result = out.reshape(-1)
        for at in range(0, result.size, BLOCK):
            result[at : at + BLOCK] = evaluate(op.scalar, [x[at : at + BLOCK] for x in flat])

    return run


@plan(Reduce)
def reduction(op: Any, shapes: Sequence[Shape]) -> Kernel | No:
    if op.how != "sum":
        return No("sums only")
    return lambda out, x: np.sum(x, axis=op.axis, keepdims=True, out=out)


@dataclass(eq=False)
class Launch:
    """Replaces an op after lowering."""

    of: Any
    kernel: Kernel
    place: str

    def __repr__(self) -> str:
        return f"launch {self.of!r} by {self.place}"


def lower(m: Module) -> list[str]:
    """Returns a launch for every op; returns what the target declined and why."""
    report: list[str] = []

    def one(ins: Instruction) -> None:
        refused = []
        for offered in [p for cls in type(ins.op).__mro__ for p in PLANS.get(cls, ())]:
            kernel = offered(ins.op, [i.shape for i in ins.inputs])
            if not isinstance(kernel, No):
                ins.op = Launch(ins.op, kernel, offered.__name__)
                return
            refused.append(f"{offered.__name__}: {kernel.why}")
        if hasattr(ins.op, "decompose"):
            before = list(m.steps)
            m.at = ins
            m.replace(ins, ins.op.decompose(m, *ins.inputs))
            m.at = None
            for made in [s for s in m.steps if s not in before]:
                one(made)
            return
        compute = ins.op.compute
        report.append(f"{ins.op!r} runs by its definition: {'; '.join(refused) or 'no plan is offered'}")
        ins.op = Launch(ins.op, lambda out, *xs: np.copyto(out, compute(*xs)), "definition")

    for ins in list(m.steps):
        if ins.op:
            one(ins)
    m.sweep()
    return report


# 8. Memory [mgx_core/targets/memory.py] ---------------------------------------------------------------------------------------
#
# All intermediate values lie in one arena.  Two may share bytes if they are not alive together.  Largest first, each at the
# lowest offset that is free for as long as it lives.


def plan_memory(m: Module) -> tuple[dict[Instruction, int], int]:
    """Returns offsets in elements, and the arena's size."""
    last = {i: n for n, s in enumerate(m.steps) for i in s.inputs}
    life = {s: (n, last.get(s, n)) for n, s in enumerate(m.steps) if s.op and s not in m.outputs}
    offsets: dict[Instruction, int] = {}
    for s in sorted(life, key=lambda s: -s.shape.elements):
        first, end = life[s]
        at = 0
        for other in sorted(
            (o for o in offsets if life[o][0] <= end and first <= life[o][1]), key=lambda o: offsets[o]
        ):
            if at + s.shape.elements <= offsets[other]:
                break
            at = max(at, offsets[other] + other.shape.elements)
        offsets[s] = at
    return offsets, max((offsets[s] + s.shape.elements for s in offsets), default=0)


# 9. Running [mgx_core/run/executable.py] ----------------------------------------------------------------------------------
#
# What is left of a program is a flat list of calls on memory that is known.  The real targets hand this list to an executor in
# native code, or capture it into one graph on the device.


class Executable:
    def __init__(self, m: Module) -> None:
        self.refusals = rewrite(m, SIMPLIFY)
        rewrite(m, [fuse_pointwise])
        self.report = lower(m)
        self.offsets, self.arena = plan_memory(m)
        self.module = m

    def run(self, **parameters: np.ndarray) -> list[np.ndarray]:
        arena = np.empty(self.arena, np.float32)
        values: dict[Instruction, np.ndarray] = {}
        for s in self.module.steps:
            if s.value is not None:
                values[s] = s.value
            elif s.op is None:
                given = np.ascontiguousarray(parameters[s.label], dtype=np.float32)
                if given.shape != s.shape.dims:
                    raise ShapeError(f"parameter {s.label!r} must be {s.shape}, got {list(given.shape)}")
                values[s] = given
            else:
                at = self.offsets.get(s)  # results of the program get memory of their own
                flat = np.empty(s.shape.elements, np.float32) if at is None else arena[at : at + s.shape.elements]
                out = flat.reshape(s.shape.dims)
                s.op.kernel(out, *(values[i] for i in s.inputs))
                values[s] = out
        return [values[o].copy() for o in self.module.outputs]


def interpret(m: Module, **parameters: np.ndarray) -> list[np.ndarray]:
    """Returns the same by the definitions alone: the oracle of all that happened above."""
    values: dict[Instruction, Any] = {}
    for s in m.steps:
        values[s] = (
            s.op.compute(*(values[i] for i in s.inputs)) if s.op else parameters[s.label] if s.label else s.value
        )
    return [values[o] for o in m.outputs]


# 10. A frontend [plugins/frontends/] ----------------------------------------------------------------------------------
#
# It turns somebody's format into instructions; here Python's own expressions.  Implicit broadcasting ends here.

OPERATORS = {ast.Add: Add, ast.Sub: Sub, ast.Mult: Mul, ast.Div: Div}
FUNCTIONS = {"relu": Relu, "exp": Exp, "tanh": Tanh}


def parse(source: str, constants: dict[str, np.ndarray], **parameters: Shape) -> Module:
    """Returns a program from assignments and a last expression."""
    m = Module()
    scope = {name: m.parameter(name, shape) for name, shape in parameters.items()}

    def together(op: Any, a: Instruction, b: Instruction) -> Instruction:
        dims = tuple(int(d) for d in np.broadcast_shapes(a.shape.dims, b.shape.dims))
        return m.add(op(), *(x if x.shape.dims == dims else m.add(Broadcast(dims=dims), x) for x in (a, b)))

    def walk(e: ast.AST) -> Instruction:
        match e:
            case ast.Name(id=name) if name in scope or name in constants:
                if name not in scope:
                    scope[name] = m.literal(constants[name])
                return scope[name]
            case ast.Constant(value=value):
                return m.literal(value)
            case ast.BinOp(left=a, op=ast.MatMult(), right=b):
                return m.add(Dot(), walk(a), walk(b))
            case ast.BinOp(left=a, op=operator, right=b) if type(operator) in OPERATORS:
                return together(OPERATORS[type(operator)], walk(a), walk(b))
            case ast.Call(func=ast.Name(id="softmax"), args=[x]):
                inner = walk(x)
                return m.add(Softmax(axis=len(inner.shape.dims) - 1), inner)
            case ast.Call(func=ast.Name(id=name), args=[x]) if name in FUNCTIONS:
                return m.add(FUNCTIONS[name](), walk(x))
        raise SyntaxError(f"line {getattr(e, 'lineno', '?')}: no converter for {ast.unparse(e)!r}")

    for line in ast.parse(source).body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            scope[line.targets[0].id] = walk(line.value)
        elif isinstance(line, ast.Expr):
            m.outputs = [walk(line.value)]
    return m


# 11. All of it together -----------------------------------------------------------------------------------------------

NETWORK = """
h = relu(relu((x @ w1) * 0.5 + b1))
g = tanh(h) * h + 1.0 * 2.0
softmax(g @ w2 + b2)
"""


def main() -> None:
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(size=size) for name, size in (("w1", (16, 32)), ("b1", 32), ("w2", (32, 4)), ("b2", 4))}
    x = rng.normal(size=(8, 16)).astype(np.float32)
    made = parse(NETWORK, weights, x=Shape((8, 16)))
    print("as parsed", *made.text(), sep="\n  ")
    (expected,) = interpret(made, x=x)
    parsed = len(made.steps)

    executable = Executable(made)
    print("\nas it runs", *made.text(), sep="\n  ")
    print("\ndeclined", *executable.report, sep="\n  ")

    # the meaning is what it was
    (got,) = executable.run(x=x)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
    h = np.maximum(x @ weights["w1"] * 0.5 + weights["b1"], 0)
    e = np.exp((np.tanh(h) * h + 2) @ weights["w2"] + weights["b2"])
    np.testing.assert_allclose(got, e / e.sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-6)

    # the program is smaller: constants folded, the scale in the weights, one relu gone, pointwise ops fused
    launches = [s.op for s in made.steps if s.op]
    assert len(made.steps) < parsed
    assert [type(launch.of).__name__ for launch in launches].count("Dot") == 2
    assert not any(isinstance(launch.of, Mul) for launch in launches)
    assert sum(isinstance(launch.of, Fused) for launch in launches) >= 1
    assert isinstance(launches[-1].of, Div), "softmax was decomposed"

    # what the target has no kernel for is done all the same, and said
    assert any("sums only" in line for line in executable.report)
    assert any("broadcast" in line and "no plan is offered" in line for line in executable.report)

    # memory is shared, never between values that are alive together
    apart = sum(s.shape.elements for s in executable.offsets)
    print(f"\nmemory: {executable.arena * 4} bytes, {apart * 4} without sharing")
    assert executable.arena < apart

    # a refusal carries its reason
    twice = parse("p = x @ w\np * 3.0 + p", {"w": np.ones((16, 2))}, x=Shape((8, 16)))
    refusals = Executable(twice).refusals
    print("refused", *refusals, sep="\n  ")
    assert any("read elsewhere" in line for line in refusals)

    # one expression, two interpretations
    gelu = x0 * 0.5 * (call("tanh", x0 * 0.79788) + 1)
    assert c_source(gelu) == "((x0[i] * 0.5f) * (tanhf((x0[i] * 0.79788f)) + 1.0f))"
    ones = np.ones(3, np.float32)
    np.testing.assert_allclose(evaluate(gelu, [ones]), ones * 0.5 * (np.tanh(0.79788) + 1), rtol=1e-6)

    # and what is wrong is refused where it is wrong, in words
    for source, words in (("x @ x", "[m, k] and [k, n] required"), ("sinh(x)", "no converter for 'sinh(x)'")):
        said = ""
        try:
            parse(source, {}, x=Shape((8, 16)))
        except (ShapeError, SyntaxError) as error:
            said = str(error)
        assert words in said, said


if __name__ == "__main__":
    main()
