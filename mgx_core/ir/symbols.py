"""Uses, definitions and substitution of symbolic extents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..ops.operation import Operation
from ..types.dim import Dim, Sym, solve, symbol, symbols_of
from ..types.polynomial import of_atom
from ..types.shape import AnyShape, Shape, TupleShape, symbols_in
from .reading import Step

__all__ = [
    "Substitution", "found_extents", "introduced", "learn_all", "learn_symbols", "lone_symbols", "mentioned",
    "needed_for_extents", "own_symbol", "with_known_symbols",
]  # fmt: skip


def mentioned(instructions: Iterable[Step]) -> set[str]:
    """Returns the symbols used by instructions and the modules that they run."""
    return set().union(*_mentions(instructions))


def _mentions(instructions: Iterable[Step]) -> Iterator[set[str]]:
    for ins in instructions:
        if ins.is_return:  # the symbols of its inputs
            continue
        yield symbols_in(ins.result) | ins.op.symbols()
        for module in ins.modules:
            yield from _mentions(module)


def introduced(ins: Step) -> set[str]:
    """Returns the symbols that a result defines at run time: those that appear in neither operands nor attributes."""
    own = symbols_in(ins.result)
    if own and not ins.is_param:
        for i in ins.inputs:
            own -= symbols_in(i.result)
            if not own:
                return own
        own -= ins.op.symbols()
        for module in ins.modules:
            for inner in module:
                for i in inner.inputs:
                    if i.parent is not module:
                        own -= symbols_in(i.result)
    return own


def with_known_symbols(op: Operation, parameters: Iterable[Step], inputs: Iterable[Step]) -> Operation:
    """Returns an op whose textual extents are resolved to the symbols of these names, with their bounds."""
    if not op.symbols():
        return op
    shapes = [i.result for i in (*parameters, *inputs)]
    dims = [d for s in shapes if isinstance(s, Shape) and s.ranked for d in s.dims]
    return op.substitute({s.name: of_atom(s) for d in dims for s in symbols_of(d)})


def needed_for_extents(ins: Step) -> bool:
    """Returns True if later instructions use a symbol that this instruction defines and no parameter does.

    A symbol that is also defined earlier, or by a replacement before its first use, does not keep this instruction
    alive.
    """
    own = introduced(ins)
    if own and ins.parent is not None and not ins.is_param:
        for p in ins.parent.parameters.values():
            own -= symbols_in(p.result)
    for step in _before(ins) if own else ():
        own -= symbols_in(step.result)
    for step in _following(ins) if own else ():
        read = own & mentioned([step])
        if read - introduced(step):
            return True
        own -= read
    return False


def _before(ins: Step) -> Iterator[Step]:
    at = ins.previous
    while at is not None:
        yield at
        at = at.previous


def _following(ins: Step) -> Iterator[Step]:
    at = ins.next
    while at is not None:
        yield at
        at = at.next


class Substitution:
    """A substitution of symbols during a copy of a module, with caches of the substituted ops and shapes.

    exact: True while the parameters' shapes are exactly the declared ones with symbols replaced; a result whose symbols are
    all known then need not be inferred again.
    """

    def __init__(self, values: Mapping[str, Dim] | None) -> None:
        self.symbols: dict[str, Dim] = dict(values or {})
        self.exact = True
        self._shapes: dict[int, Shape | TupleShape] = {}  # by id of the original ops and shapes
        self._ops: dict[int, Operation] = {}
        self._known = len(self.symbols)

    def op(self, op: Operation) -> Operation:
        """Returns the op with the symbols in its attributes replaced."""
        if self._known != len(self.symbols):
            self._known = len(self.symbols)
            self._ops.clear()
        found = self._ops.get(id(op))
        if found is None:
            found = self._ops[id(op)] = op.substitute(self.symbols)
        return found

    def shape(self, shape: AnyShape) -> Shape | TupleShape | None:
        """Returns the shape (or tuple of shapes) with symbols replaced, or None if it must be inferred."""
        if not self.exact:
            return None
        found = self._shapes.get(id(shape))
        if found is None and isinstance(shape, (Shape, TupleShape)):
            found = shape.substitute(self.symbols)
            if found.dynamic():
                return None
            self._shapes[id(shape)] = found
        return found


def learn_symbols(old: AnyShape, new: AnyShape, symbols: dict[str, Dim]) -> None:
    """Binds in `symbols` the symbols that are an extent of `old` by themselves to the extents of `new`."""
    match old, new:
        case Shape(), Shape():
            if old.ranked and new.ranked and old.rank == new.rank:
                for a, b in zip(old.dims, new.dims, strict=True):
                    lone = a.symbol if isinstance(a, Sym) else None
                    if lone is not None and a != b:
                        symbols.setdefault(lone.name, b)
        case TupleShape(), TupleShape():
            for one, other in zip(old.items, new.items, strict=False):
                learn_symbols(one, other, symbols)


def lone_symbols(shape: AnyShape) -> set[str]:
    """Returns the symbols that are an extent by themselves, and so are known from a value of this shape."""
    dims = shape.dims if isinstance(shape, Shape) and shape.ranked else ()
    return {d.symbol.name for d in dims if isinstance(d, Sym) and d.symbol is not None}


def learn_all(old: Iterable[AnyShape], new: Iterable[AnyShape], symbols: dict[str, Dim]) -> None:
    """Like `learn_symbols`, then solves linear extents for the remaining symbols."""
    extents: list[tuple[Dim, Dim]] = []
    for one, other in zip(old, new, strict=True):
        learn_symbols(one, other, symbols)
        if isinstance(one, Shape) and isinstance(other, Shape) and one.dynamic() and one.ranked and other.ranked:
            extents += zip(one.dims, other.dims, strict=False)
    solve(extents, symbols)


def found_extents(old: AnyShape, new: AnyShape) -> dict[str, Dim]:
    """Returns the values in `new` of the data-dependent extents of `old`, by the names of their symbols."""
    symbols: dict[str, Dim] = {}
    learn_symbols(old, new, symbols)
    return {name: d for name, d in symbols.items() if "?" in name}


def own_symbol(parameter: str, d: Dim) -> Dim:
    """Qualifies anonymous extents (from `dyn_dims`) with their parameter's name, so that two parameters do not share them."""
    own = d.symbol if isinstance(d, Sym) else None
    if own is not None and own.name.startswith("_") and not own.written:
        return symbol(parameter + own.name, own.lo, own.hi, own.optimals)
    return d
