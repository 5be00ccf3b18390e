"""Copies of modules: clones, specializations with symbols replaced, and inlining into another module."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ..errors import MgxError, ParameterError, ShapeError, counted
from ..ops.builtin import Param, Unreachable
from ..ops.elementwise import Pointwise
from ..ops.operation import Operation
from ..types.dim import Dim
from ..types.shape import AnyShape, TupleShape
from .instruction import Instruction, infer_shape
from .symbols import Substitution, learn_all, learn_symbols

if TYPE_CHECKING:
    from .module import Module

__all__ = ["Bodies", "Copies", "inlined", "never_run"]


class Bodies(Protocol):
    """A cache of bodies that several copies of a module share."""

    def key(self, body: Module, values: Mapping[str, Dim]) -> Hashable | None: ...
    def get(self, key: Hashable) -> Module | None: ...
    def put(self, key: Hashable, copy: Module) -> None: ...


class Copies:
    """Copies of a module and of those nested in it; structurally equal ones are copied once.

    by: replacements for symbols; shared: maps nested modules to the equal module to copy instead; bodies: copies
    shared with other copies of the module.
    """

    def __init__(
        self, by: Substitution, shared: Mapping[Module, Module] | None = None, bodies: Bodies | None = None
    ) -> None:
        self._by = by
        self._shared = shared or {}
        self._kept = bodies
        self._copies: dict[Module, Module] = {}
        self._checked: set[tuple[int, ...]] = set()  # ids of ops and of their operands' types
        self._branches = 0  # the number of control flow bodies around the current module
        self._infers = False  # True if shapes are inferred again: parameters have other ones

    def of(
        self,
        module: Module,
        went: dict[Instruction, Instruction],
        name: str | None = None,
        parameters: Mapping[str, AnyShape] | None = None,
    ) -> Module:
        """Returns the copy of a module; adds to `went` the copy of each instruction."""
        copy = type(module)(name or module.name)
        by, symbols = self._by, self._by.symbols
        if parameters:
            self._infers = True
            declared = {n: p.result for n, p in module.parameters.items() if n in parameters}
            learn_all(declared.values(), [parameters[n] for n in declared], symbols)
        for ins in module:
            if ins.literal is not None:
                made = Instruction(ins.op, ins.result, literal=ins.literal, sources=ins.sources)
            elif isinstance(ins.op, Param):
                given = (parameters or {}).get(ins.op.label)
                known = by.shape(ins.result) if given is None else None
                shape = given or known or ins.result.substitute(symbols)
                if given is not None:
                    by.exact = by.exact and ins.result.substitute(symbols) == given
                op = by.op(ins.op) if known is not None else Param(label=ins.op.label, shape=shape)
                made = Instruction(op, shape, sources=ins.sources)
            else:
                made = self._computed(ins, went, bool(symbols) or self._infers)
            went[ins] = copy.append(made)
        return copy

    def _computed(self, ins: Instruction, went: dict[Instruction, Instruction], changed: bool) -> Instruction:
        """Returns the copy of a computing instruction; `changed`: its type may differ.  Errors name the source nodes."""
        by = self._by
        inputs = tuple([went.get(i, i) for i in ins.inputs])
        try:
            modules = self._bodies(ins, went) if ins.modules else ()
            op = by.op(ins.op) if by.symbols else ins.op
        except MgxError as error:
            if not error.places:  # inconsistent extents in attributes
                error.at_nodes(ins.sources)
            raise
        made = Instruction(op, ins.result, inputs, modules, None, ins.sources)
        if changed:
            known = None if ins.is_return else self._known(ins.result)
            if known is not None:
                made.result = known
                if not (modules or self._branches):
                    self._check(ins, op, inputs)
            else:
                made.result = _result(ins, op, inputs, modules)
                if not ins.is_return:  # maps the earlier symbols, too
                    learn_symbols(ins.result, made.result, by.symbols)
        return made

    def _known(self, shape: AnyShape) -> AnyShape | None:
        """Returns the shape with its symbols replaced, or None if it must be inferred again."""
        try:
            return self._by.shape(shape)
        except ShapeError:
            return None  # invalid extents: shape inference reports why

    def _check(self, ins: Instruction, op: Operation, inputs: tuple[Instruction, ...]) -> None:
        """Raises ShapeError if symbolic extents that the op requires to be equal have different values.

        Branches are not checked, since such a branch may never be taken.
        """
        types = [i.result for i in ins.inputs]
        if op is ins.op and not any(t.dynamic() for t in types):
            return
        if isinstance(op, Pointwise) and all(t == types[0] for t in types):
            return  # equal extents remain equal
        key = (id(ins.op), *map(id, types))
        if key not in self._checked:
            self._checked.add(key)
            _result(ins, op, inputs, ())

    def _bodies(self, ins: Instruction, went: dict[Instruction, Instruction]) -> tuple[Module, ...]:
        if not ins.op.control:
            return tuple([self._nested(m, went) for m in ins.modules])
        self._branches += 1
        try:
            if ins.op.selects:
                return self._either(ins, went)
            return tuple([self.of(m, went) for m in ins.modules])  # which lowering edits
        finally:
            self._branches -= 1

    def _either(self, ins: Instruction, went: dict[Instruction, Instruction]) -> tuple[Module, ...]:
        """Returns the copies of modules of which one runs; one whose extents do not fit each other is never run, and has no work.

        A decoder with and without a cache has such: without, its inputs for the cache have any extents.
        """
        made: list[Module | ShapeError] = []
        for module in ins.modules:
            try:
                made.append(self.of(module, went))
            except ShapeError as error:
                made.append(error)
        there = [m for m in made if not isinstance(m, ShapeError)]
        wrong = [m for m in made if isinstance(m, ShapeError)]
        if not wrong:
            return tuple(there)
        if not there:
            raise wrong[0]
        condition = went.get(ins.inputs[0], ins.inputs[0])
        name, why = ins.modules[made.index(wrong[0])].name, str(wrong[0])
        never = never_run(there[0], name, condition, why)
        return tuple([never if isinstance(m, ShapeError) else m for m in made])

    def _nested(self, module: Module, went: dict[Instruction, Instruction]) -> Module:
        if not self._by.exact:
            return self.of(module, went)
        one = self._shared.get(module, module)
        copy = self._copies.get(one)
        if copy is None:
            copy = self._earlier(one)
        if copy is None:
            copy = self.of(module, went)
            if module not in self._shared or any(ins.result.dynamic() for ins in copy):
                return copy  # symbols bound later may differ between copies
            _drop_sources(copy)
        self._copies[one] = copy
        return copy

    def _earlier(self, body: Module) -> Module | None:
        """Returns the copy of a body that is shared with other copies of the module, adding it to the cache; else None."""
        key = None if self._kept is None else self._kept.key(body, self._by.symbols)
        if self._kept is None or key is None:
            return None
        copy = self._kept.get(key)
        if copy is None:
            copy = self.of(body, {})
            if body in self._shared:
                _drop_sources(copy)
            copy.follows(body.pattern)
            self._kept.put(key, copy)
        return copy


def never_run(other: Module, name: str, condition: Instruction, why: str) -> Module:
    """Returns a module in place of one whose values do not fit each other, with results of the types of the other branch."""
    never = type(other)(name)
    shapes = other.output_shapes()
    never.add_return([never.append(Instruction(Unreachable(shape=s, why=why), s, (condition,))) for s in shapes])
    return never


def _drop_sources(copy: Module) -> None:
    """Removes source names from a body, since the instruction that runs it has them."""
    for ins in copy:
        ins.sources = ()


def _result(ins: Instruction, op: Operation, inputs: Sequence[Instruction], modules: Sequence[Module]) -> AnyShape:
    """Returns the result type of a copy of `ins` with other operands.  Errors name the source nodes of `ins`."""
    if ins.is_return:
        return TupleShape(i.result for i in inputs)
    try:
        return infer_shape(op, inputs, modules)
    except MgxError as error:
        error.at_nodes(ins.sources)
        raise


def inlined(into: Module, module: Module, args: Sequence[Instruction], before: Instruction | None) -> list[Instruction]:
    """Inlines a module into another one, with its parameters replaced by `args`; returns its results."""
    went: dict[Instruction, Instruction] = {}
    parameters = list(module.parameters.values())
    if len(parameters) != len(args):
        raise ParameterError(f"module {module.name!r} takes {counted(len(parameters), 'parameter')}, got {len(args)}")
    symbols: dict[str, Dim] = {}
    went.update(zip(parameters, args, strict=True))
    learn_all([p.result for p in parameters], [a.result for a in args], symbols)
    for ins in module:
        if ins in went or ins.is_return:
            continue
        inputs = tuple(went.get(i, i) for i in ins.inputs)
        modules = tuple(m.clone(symbols, went) for m in ins.modules)
        op = ins.op.substitute(symbols) if symbols else ins.op
        result = ins.result if ins.is_literal else _result(ins, op, inputs, modules)
        learn_symbols(ins.result, result, symbols)
        made = Instruction(op, result, inputs, modules, ins.literal, ins.sources)
        went[ins] = into.insert(made, before)
    return [went.get(o, o) for o in module.outputs]
