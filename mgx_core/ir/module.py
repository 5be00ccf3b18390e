"""A list of instructions in execution order, with parameters and a return; the unit that passes transform."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ..errors import MgxError, ParameterError, ShapeError
from ..ops.builtin import Literal, Param, Return, Undefined
from ..ops.operation import Operation
from ..types.argument import Argument
from ..types.dim import Dim, Replacements
from ..types.shape import AnyShape, Shape, TupleShape, same_type
from .copying import Bodies, Copies, inlined
from .instruction import Instruction, exchanged, infer_shape
from .instruction_list import InstructionList
from .reading import nested
from .symbols import Substitution, introduced, needed_for_extents, own_symbol, with_known_symbols

__all__ = ["Module", "everywhere", "nested", "within"]


class Expansion(Protocol):
    """A macro: a named sequence of instructions."""

    def build(
        self, module: Module, before: Instruction | None, args: Sequence[Instruction], modules: Sequence[Module] = ()
    ) -> list[Instruction]:
        """Inserts the instructions before an instruction of a module (None: at its end); returns the results."""
        ...


class Module(InstructionList):
    """Instructions in execution order.

    name: unique in its program.  Instructions may read values of enclosing modules directly.
    """

    def __init__(self, name: str = "main") -> None:
        super().__init__(name)
        self.derived: dict[str, tuple[int, Any]] = {}

    # queries

    @property
    def parameters(self) -> dict[str, Instruction]:
        """Parameters by name, in order of declaration."""
        return dict(self.derive("parameters", _parameters))

    @property
    def modules(self) -> tuple[Module, ...]:
        """The modules that its instructions run, in their order, each once."""
        found: tuple[Module, ...] = self.derive("modules", _modules)
        return found

    @property
    def outputs(self) -> tuple[Instruction, ...]:
        """Values that the module returns: the return's inputs, or the last instruction where there is no return."""
        if self.returned is not None:
            return self.returned.inputs
        return () if self._last is None else (self._last,)

    def output_shapes(self) -> list[AnyShape]:
        return [o.result for o in self.outputs]

    def derive(self, key: str, make: Callable[[Module], Any]) -> Any:
        """Returns a value computed from the module, cached until the next edit."""
        known = self.derived.get(key)
        if known is None or known[0] != self.version:
            known = self.derived[key] = (self.version, make(self))
        return known[1]

    @property
    def pattern(self) -> Module:
        """The symbolic module that this one is an unmodified specialization of; else itself."""
        found: Module = self.derive("pattern", _itself)
        return found

    def follows(self, pattern: Module) -> None:
        """Sets `pattern` until the next edit."""
        self.derived["pattern"] = (self.version, pattern)

    # building

    def add(
        self,
        op: Operation,
        *inputs: Instruction,
        modules: Sequence[Module] = (),
        sources: Iterable[str] = (),
        before: Instruction | None = None,
    ) -> Instruction:
        """Appends an instruction (before the return, or before `before`) with the shape that the op infers.

        Errors: ShapeError with the op's text and the source nodes if the inputs do not fit; ParameterError if
        something is not an operation, or not an instruction.
        """
        named = tuple(sources)
        try:
            result = infer_shape(op, inputs, modules)
        except MgxError as error:
            raise error.at_nodes(named) from error.__cause__
        except (AttributeError, TypeError):
            if (misuse := _misuse(op, inputs)) is None:
                raise
            raise misuse.at_nodes(named) from None
        return self.insert(Instruction(op, result, tuple(inputs), tuple(modules), None, named), before)

    def add_instruction(
        self, op: Operation, args: Sequence[Instruction] = (), mod_args: Sequence[Module] = ()
    ) -> Instruction:
        return self.add(with_known_symbols(op, self.parameters.values(), args), *args, modules=mod_args)

    def insert_instruction(
        self, ins: Instruction, op: Operation, args: Sequence[Instruction] = (), mod_args: Sequence[Module] = ()
    ) -> Instruction:
        """Returns an instruction placed before `ins`."""
        return self.add(with_known_symbols(op, self.parameters.values(), args), *args, modules=mod_args, before=ins)

    def add_macro(
        self, macro: Expansion, args: Sequence[Instruction] = (), mod_args: Sequence[Module] = ()
    ) -> list[Instruction]:
        """Appends the instructions of a macro (`mgx_core.Macro`); returns its results."""
        return macro.build(self, None, args, mod_args)

    def insert_macro(
        self, ins: Instruction, macro: Expansion, args: Sequence[Instruction] = (), mod_args: Sequence[Module] = ()
    ) -> list[Instruction]:
        """Inserts the instructions of a macro before `ins`; returns its results."""
        self._own(ins)
        return macro.build(self, ins, args, mod_args)

    def add_parameter(self, name: str, shape: AnyShape) -> Instruction:
        """Declares an input.  Errors: ParameterError if the name is taken."""
        there: dict[str, Instruction] = self.derive("parameters", _parameters)
        if name in there:
            raise ParameterError(f"module {self.name!r} has a parameter {name!r} already")
        if isinstance(shape, Shape) and shape.dynamic() and shape.ranked:
            shape = Shape.of(shape.dtype, (own_symbol(name, d) for d in shape.dims))
        last = next(reversed(there.values()), None)
        param = Instruction(Param(label=name, shape=shape), shape)
        made = self.insert(param, self._first if last is None else last._next)
        there[name] = made
        self.derived["parameters"] = (self.version, there)  # cached, since models may have thousands
        return made

    def add_literal(
        self, data: Any, shape: AnyShape | None = None, *, before: Instruction | None = None
    ) -> Instruction:
        """Adds a constant from an Argument, an array, a number or anything that `Argument` accepts; see `add`."""
        value = data if isinstance(data, Argument) and shape is None else Argument(data, shape)
        kind = value.shape.as_standard() if isinstance(value.shape, Shape) else value.shape
        return self.insert(Instruction(Literal(shape=kind), kind, literal=value), before)

    def add_like(self, ins: Instruction, inputs: Sequence[Instruction], modules: Sequence[Module] = ()) -> Instruction:
        """Appends an instruction with the op of an instruction of another module, on inputs of the same types."""
        return self.insert(
            Instruction(ins.op, ins.result, tuple(inputs), tuple(modules), ins.literal, ins.sources), None
        )

    def add_absent(self, before: Instruction | None = None) -> Instruction:
        """Returns a placeholder for an absent input."""
        return self.add(Undefined(), before=before)

    def add_return(self, args: Sequence[Instruction]) -> Instruction:
        """Adds the return.

        Errors: ParameterError if the module returns already (see `replace_return`), and for anything but a list of instructions.
        """
        if self.returned is not None:
            raise ParameterError(f"module {self.name!r} has a return already; use replace_return")
        listed = _listed(args)
        return self.insert(Instruction(Return(), TupleShape(a.result for a in listed), tuple(listed)), None)

    def replace_return(self, args: Sequence[Instruction]) -> Instruction:
        """Replaces the results.  Errors: ParameterError for anything but a list of instructions; the return is then unchanged."""
        listed = _listed(args)
        if self.returned is not None:
            self.remove(self.returned)
        return self.add_return(listed)

    # editing

    def replace(self, old: Instruction, new: Instruction) -> None:
        """Replaces all uses of `old` by `new`; `old` remains until `sweep`.

        A module without return whose last instruction, hence its result, is `old` then returns `new`.
        Errors: ShapeError if dtype or dims would change.
        """
        if old is new:
            return
        if not same_type(old.result, new.result):
            raise ShapeError(f"{old!r} cannot be replaced by {new!r}: the result's type would change")
        self._return_instead({old: new})
        for user, count in list(old._users.items()):
            if user is not new:
                user.inputs = exchanged(user.inputs, old, new)
                del old._users[user]
                new._users[user] = new._users.get(user, 0) + count
                if user.is_return and new.result is not old.result:
                    user.result = TupleShape([i.result for i in user.inputs])
                self._touch(user)

    def replace_each(self, others: Mapping[Instruction, Instruction]) -> None:
        """Replaces all uses of each key by its value, which has the same type and is not a key; each user is updated once.

        The result of a module without return is replaced as by `replace`.
        """
        self._return_instead(others)
        readers: dict[Instruction, None] = {}
        for old, new in others.items():
            for user, count in old._users.items():
                new._users[user] = new._users.get(user, 0) + count
                readers[user] = None
            old._users.clear()
        for user in readers:
            user.inputs = tuple([others.get(i, i) for i in user.inputs])
            if user.is_return:
                user.result = TupleShape([i.result for i in user.inputs])
            self._touch(user)

    def _return_instead(self, others: Mapping[Instruction, Instruction]) -> None:
        """Adds a return of the replacement if the last instruction of a module without return is replaced."""
        if self.returned is None and self._last is not None and self._last in others:
            self.add_return([others[self._last]])

    def set_inputs(self, ins: Instruction, inputs: Sequence[Instruction]) -> None:
        """Sets an instruction's inputs; its shape is inferred again.

        A data-dependent extent keeps its symbol if the inputs' types are unchanged, since other extents may depend on it.
        """
        kept = [i.result for i in inputs] == [i.result for i in ins.inputs] and bool(introduced(ins))
        self.rewire(ins, inputs)
        if not ins.is_return and not kept:
            ins.result = infer_shape(ins.op, ins.inputs, ins.modules)

    def replace_op(self, ins: Instruction, op: Operation, result: AnyShape | None = None) -> None:
        """Replaces an instruction's op in place, with the same inputs; its shape is inferred again unless `shape` is passed."""
        ins.result = infer_shape(op, ins.inputs, ins.modules) if result is None else result
        ins.op = op
        self._touch(ins)

    def rewire(self, ins: Instruction, inputs: Sequence[Instruction]) -> None:
        """Sets an instruction's inputs to others of the same types; its shape is unchanged, except for a return."""
        ins._unuse()
        ins.inputs = tuple(inputs)
        ins._use()
        if ins.is_return:
            ins.result = TupleShape(i.result for i in ins.inputs)
        self._touch(ins)

    def substitute(self, symbols: Mapping[str, Dim]) -> None:
        """Replaces symbols by extents, by name, in all ops and results of the module and nested modules."""
        if not symbols:
            return
        replaced = Replacements(symbols)  # most extents occur in many instructions
        for inner in nested(self):
            for ins in (i for i in inner if not i.is_literal):
                ins.op = ins.op.substitute(replaced)  # attributes may use symbols that are not in the result
                if ins.result.dynamic():
                    ins.result = ins.result.substitute(replaced)
            inner.version += 1

    def _touch(self, ins: Instruction) -> None:
        if ins.parent is not None:
            ins.parent.version += 1
        self.version += 1

    def replace_instruction(
        self, ins: Instruction, new: Instruction | Operation, args: Sequence[Instruction] | None = None
    ) -> Instruction:
        """MIGraphX's form: by another instruction, or by an op on `args` (default: the same inputs)."""
        if isinstance(new, Operation):
            inputs = ins.inputs if args is None else args
            new = self.add(new, *inputs, modules=ins.modules, sources=ins.sources, before=ins)
        self.replace(ins, new)
        return new

    def sweep(self) -> int:
        """Removes dead instructions; returns their number.

        Parameters, side effects, and ops that define a symbolic extent with later uses are live.
        """
        return self._sweep(set())

    def _sweep(self, seen: set[Module]) -> int:
        seen.add(self)
        removed = 0
        keep = None if self.returned is not None else self._last
        for ins in list(reversed(self)):
            dead = not ins._users and ins is not keep and not ins.is_param and not ins.op.effect
            if dead and not (ins.result.dynamic() and needed_for_extents(ins)):
                self.remove(ins)
                removed += 1
            else:
                for module in ins.modules:
                    if module not in seen:
                        removed += module._sweep(seen)
        return removed

    # copies

    def clone(
        self,
        values: Mapping[str, Dim] | None = None,
        outer: dict[Instruction, Instruction] | None = None,
        name: str | None = None,
        parameters: Mapping[str, AnyShape] | None = None,
        shared: Mapping[Module, Module] | None = None,
        bodies: Bodies | None = None,
    ) -> Module:
        """A copy with symbols replaced by name and parameters given other shapes; shapes are inferred again where they change.

        outer: maps values of enclosing modules to their copies; shared: maps nested modules to the equal module to copy once
        instead of them (see `equal_bodies`); bodies: the cache of bodies shared with other copies of this module.  Literals
        are shared.
        """
        return Copies(Substitution(values), shared, bodies).of(self, {} if outer is None else outer, name, parameters)

    def inline(
        self, module: Module, args: Sequence[Instruction], before: Instruction | None = None
    ) -> list[Instruction]:
        """Inlines another module, with its parameters replaced by `args`; returns its results."""
        return inlined(self, module, args, before)

    # text

    def print(self) -> None:
        print(self)

    def text(self, full: bool = False) -> str:
        """Returns the text form; `full` writes all literals out so that it can be parsed back."""
        from .text.writer import module_text  # most processes print no module

        return module_text(self, full)

    def __repr__(self) -> str:
        return self.text()


def within(ins: Instruction) -> Iterator[Instruction]:
    """Returns the instructions of the modules that an instruction runs."""
    return (i for m in ins.modules for body in nested(m) for i in body)


def everywhere(module: Module) -> Iterator[tuple[Module, Instruction]]:
    """Yields each instruction of a module and nested modules, with its module, skipping those removed during iteration."""
    for inner in list(nested(module)):
        for ins in list(inner):
            if ins.parent is inner:
                yield inner, ins


def _itself(module: Module) -> Module:
    return module


def _parameters(module: Module) -> dict[str, Instruction]:
    return {i.op.label: i for i in module if isinstance(i.op, Param)}


def _modules(module: Module) -> tuple[Module, ...]:
    found: dict[Module, None] = {}
    at = module.first
    while at is not None:  # without the iterator, since this runs after every edit
        if at.modules:
            found.update(dict.fromkeys(at.modules))
        at = at._next
    return tuple(found)


def _misuse(op: Any, inputs: Sequence[Any]) -> ParameterError | None:
    """Returns the error for a call of `Module.add` if something is not an operation, or not an instruction."""
    if not isinstance(op, Operation):
        return ParameterError(f'add takes an operation (mgx_core.op("relu")), got {_described(op)}')
    for place, given in enumerate(inputs):
        if not isinstance(given, Instruction):
            return ParameterError(
                f"{op!r}: operand {place} must be an instruction (add_literal makes one of an array), got {_described(given)}"
            )
    return None


def _listed(args: Any) -> Sequence[Instruction]:
    """Validates the operands of a return.  Errors: ParameterError for anything but a list of instructions."""
    if not isinstance(args, Sequence):
        raise ParameterError(f"a return takes a list of instructions, got {_described(args)}")
    for given in args:
        if not isinstance(given, Instruction):
            raise ParameterError(f"a return takes instructions only, got {_described(given)}")
    return args


def _described(given: Any) -> str:
    if isinstance(given, (str, type, type(None), Instruction)):
        return repr(given)
    return f"a value of type {type(given).__name__}"
