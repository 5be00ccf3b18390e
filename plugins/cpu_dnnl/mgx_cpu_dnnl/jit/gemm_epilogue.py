"""Epilogues of products: the pointwise ops on the sums, and results that are strided matrices."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field, fields
from typing import ClassVar

from mgx_core import dtype as dt
from mgx_core.errors import No, Refused
from mgx_core.ir.module import Module
from mgx_core.records import dataclass
from mgx_core.types.dtype import DType
from mgx_core.types.shape import Shape

from .body import prepared
from .cost import DIVIDING
from .engine import Function
from .graph import Graph, Node, read_in_place, text_of, walk
from .integral_floats import keep_integral
from .kernel import JitKernel
from .native_loop import NativeLoop
from .parameters import constant_bits
from .space import Args
from .sums import combine_sums

__all__ = ["Epilogue", "Product", "ProductPlan", "row_step"]


@dataclass
class Epilogue:
    """An epilogue; sums: type of the sums; outs: types of the results; steps: their row strides; loads: other operands of the
    pointwise ops, with row and column strides; at: index of the parameter that is the product; extra: number of the others;
    inplace: those which a result may alias; numbers: constants passed as arguments, so that layers share code."""

    sums: DType
    outs: tuple[DType, ...]
    steps: list[int]
    graph: Graph | None
    loads: list[tuple[Node, int, int]]
    at: int
    extra: int
    inplace: frozenset[int]
    numbers: list[Node] = field(default_factory=list)

    @property
    def cost(self) -> int:
        """Returns roughly how many vector instructions the pointwise ops take."""
        return 0 if self.graph is None else self.graph.cost

    @property
    def dividing_cost(self) -> int:
        """Returns the part of the cost that functions with a division have."""
        nodes = [] if self.graph is None else self.graph.nodes
        return sum(n.cost for n in nodes if n.kind == "prim" and n.word in DIVIDING)

    @property
    def key_parts(self) -> list[str]:
        """Returns the key: the properties that determine the code."""
        found = [f"{self.sums} to {' '.join(map(str, self.outs))}"]
        if self.graph is not None:
            found[0] += f" at={self.at} extra={self.extra}"
            steps = {x.ident: (bool(r), s if s in (0, 1) else 2) for x, r, s in self.loads}
            read, nodes = {n.ident for n in self.numbers}, self.graph.nodes
            text, at = self.graph.once(
                ("key_parts", tuple(steps.items()), tuple(read)),
                lambda: text_of(
                    nodes,
                    lambda x: (x.parameter, steps.get(x.ident)),
                    lambda x: "read" if x.ident in read else x.word,
                ),
            )
            found += [text, str([at[o.ident] for o in self.graph.outputs])]
        return found

    def combine(self, fast: bool) -> None:
        """Simplifies the pointwise ops and turns their constants into arguments.

        fast: sums may be reassociated, which changes rounding; where large terms cancel, results may be far off.
        """
        if self.graph is None:
            return
        keep_integral(self.graph)
        if fast:
            combine_sums(self.graph)
        nodes = {n.ident: n for n in walk(self.graph.outputs)}
        place = {ident: n for n, ident in enumerate(nodes)}  # equal graphs share code, which identifies loads by number
        self.loads = sorted((x for x in self.loads if x[0].ident in place), key=lambda x: place[x[0].ident])
        self.numbers = [n for n in nodes.values() if n.kind == "const" and n.dtype in (dt.float32, dt.int32)]

    def number(self, args: Args) -> None:
        """Appends the strides and constants to the arguments of a kernel; without pointwise ops, the result's place."""
        if self.graph is None:
            args.enter({"extra": self.extra})
        args.enter({f"o{j}": step for j, step in enumerate(self.steps)})
        for j, (_, step, by_column) in enumerate(self.loads):
            args.enter({f"r{j}": step, f"c{j}": by_column})
        args.enter({f"k{j}": constant_bits(node) for j, node in enumerate(self.numbers)})


@dataclass
class ProductPlan:
    """A plan of a product: the epilogue, and flags that subclasses add; extents are arguments."""

    kind: ClassVar[str]
    epilogue: Epilogue
    args: Args

    @property
    def key(self) -> str:
        """Returns the key: the properties that determine the code."""
        flags = [f"{f.name}={getattr(self, f.name)}" for f in fields(self) if f.name not in ("epilogue", "args")]
        return "\n".join([" ".join([self.kind, *flags]), *self.epilogue.key_parts])


@dataclass(frozen=True)
class Product:
    """A product of a [m, k], contiguous in k, and packed weights; results [.., columns] have one row stride.

    outs: results, exactly one without a body; body: a module of pointwise ops and views whose parameter `at` is the product with
    the results' extents, the others `extra`; threads: threads to divide the work for; axis: the results' axis of the
    columns.
    """

    a: Shape
    columns: int
    outs: Sequence[Shape]
    body: Module | None = None
    at: int = 0
    extra: Sequence[Shape] = ()
    threads: int = 1
    axis: int = -1

    def epilogue(self, left: Collection[DType], sums: DType) -> Epilogue | No:
        """Returns the epilogue on sums of a type; `No` if the left operand's type or layout is not supported."""
        a = self.a
        if a.rank != 2 or a.dtype not in left or (a.strides()[1] != 1 and a.lens()[1] > 1):
            return No(f"the left operand {a} has an unsupported type or layout")
        return No("an extent is 0") if 0 in (*a.lens(), self.columns) else _read(self, sums)

    def epilogue_of_bytes(self, fast: bool) -> Epilogue | No:
        """Returns the epilogue of a byte product; fast: as in `Epilogue.combine`."""
        epilogue = self.epilogue((dt.int8, dt.uint8), dt.int32)
        if isinstance(epilogue, Epilogue):
            epilogue.combine(fast)
        return epilogue

    def kernel(
        self,
        name: str,
        code: Function | NativeLoop,
        epilogue: Epilogue,
        args: Sequence[int],
        *,
        leading: int,
        work: int,
        grain: int,
        scratch_bytes: int,
        weights: int,
        taps: int = 0,
    ) -> JitKernel:
        """Returns the product as a kernel.

        leading: number of buffers before those of the epilogue; weights: bytes of the packed weights; taps: products per result,
        if not the elements of a row.
        """
        read = sum(s.element_space() * s.dtype.size for s in (*self.outs, *self.extra))
        return JitKernel(
            name=name,
            code=code,
            work=work,
            grain=grain,
            args=tuple(args),
            scratch_bytes=scratch_bytes,
            inputs=leading + len(self.extra),
            outputs=len(self.outs),
            flops=2 * self.a.lens()[0] * self.columns * (taps or self.a.lens()[1]),
            inplace=frozenset(leading + p for p in epilogue.inplace),
            bytes=self.a.elements() * self.a.dtype.size + read + weights,
        )


def _read(product: Product, sums: DType) -> Epilogue | No:
    """Builds the epilogue from the body."""
    outs, body, at, extra, axis = product.outs, product.body, product.at, product.extra, product.axis
    rows, columns = product.a.lens()[0], product.columns
    lens, by_row = _columns_last(outs[0].lens(), axis), []
    for out in outs:
        steps = _columns_last(out.strides(), axis)
        step = row_step(lens, steps)
        if (
            step is None
            or out.elements() != rows * columns
            or out.dims != outs[0].dims
            or (steps[-1] != 1 and columns > 1)
        ):
            return No(f"the result {out} is not a strided matrix of {rows} x {columns}")
        by_row.append(step)
    kinds = tuple(o.dtype for o in outs)
    if body is None:
        return Epilogue(sums, kinds, by_row, None, [], at, len(extra), frozenset())
    try:
        shapes = [*extra[:at], Shape(sums, outs[0].dims), *extra[at:]]
        graph = prepared(body, shapes, outs[0].lens())
    except Refused as error:
        return error.no
    if len(graph.outputs) != len(outs):
        return No(f"the epilogue returns {len(graph.outputs)} results, {len(outs)} are expected")
    loads: list[tuple[Node, int, int]] = []
    for node in graph.nodes:
        if node.kind == "load" and node.parameter != at:
            steps = _columns_last(graph.steps(node), axis)
            step = row_step(lens, steps)
            if step is None:
                return No("an operand of the epilogue cannot be viewed as a strided matrix")
            loads.append((node, step, steps[-1]))
    free = frozenset(p - (p > at) for p in read_in_place(graph, outs) - {at})
    return Epilogue(sums, kinds, by_row, graph, loads, at, len(extra), free)


def row_step(lens: Sequence[int], strides: Sequence[int]) -> int | None:
    """Returns the row stride if all axes but the last merge into one axis of rows; else None."""
    step: int | None = None
    expected = 0
    for n, s in zip(reversed(lens[:-1]), reversed(strides[:-1]), strict=True):
        if n == 1:
            continue
        if step is None:
            step, expected = s, s
        if s != expected:
            return None
        expected *= n
    return 0 if step is None else step


def _columns_last(numbers: Sequence[int], axis: int) -> list[int]:
    """Moves the entry of the column axis to the end."""
    found = list(numbers)
    found.append(found.pop(axis))
    return found
