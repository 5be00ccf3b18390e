"""A recursive descent parser of the text form."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import MutableMapping
from dataclasses import field
from typing import Any, Final

import numpy as np

from ...errors import MgxError, ParseError, UnsupportedError
from ...ops.builtin import Literal, Param, Return, Undefined
from ...ops.operation import Operation
from ...ops.opset import OpSet
from ...records import dataclass
from ...types.argument import Argument
from ...types.dim import Dim, fresh, fresh_prefix, symbol
from ...types.polynomial import UNBOUNDED
from ...types.shape import TupleShape, same_type
from ..graph import Graph
from ..instruction import Instruction, infer_shape
from ..module import Module
from .cursor import Cursor
from .writer import RESERVED

__all__ = ["parse_graph", "parse_module", "parse_op"]

_OP: Final = re.compile(r"@?[A-Za-z0-9_./:\-]+")
_KEY: Final = re.compile(r"[A-Za-z_]\w*")
_DIGITS: Final = re.compile(r"\d{1,40}")
_OPEN_END: Final = re.compile(r"\d{0,40}")
_ABSENT: Final = "\0"  # key of the module's absent input; no value has this name


def parse_graph(text: str, opset: OpSet) -> Graph:
    """Parses a program; the first module is ``main``.

    Errors: ParseError with the line's number, what was expected and what was found; UnsupportedError for unknown ops.
    """
    return Graph(parse_module(text, opset))


def parse_module(text: str, opset: OpSet) -> Module:
    """Parses the first module of a text with all modules that it uses; see `parse_graph`."""
    try:
        return _Reader(text, opset).read()
    except RecursionError:
        raise ParseError("expected modules and shapes of moderate depth, got some nested too deeply") from None


def parse_op(text: str, opset: OpSet) -> Operation:
    """Parses one op, e.g. ``softmax[axis=-1]``.  Errors: ParseError, UnsupportedError, ParameterError."""
    cursor = Cursor(1, text, {})
    op = _op(cursor, opset)
    if cursor.sources() or cursor.at < len(text):
        cursor.fail("nothing more")
    return op


def _op(cursor: Cursor, opset: OpSet) -> Operation:
    word = cursor.take(_OP, "an op's name")[0]
    cls = Undefined if word == Undefined.name else opset.get(word)
    if cls is None:
        return opset.make(word)
    attributes: dict[str, Any] = {}
    if cursor.accept("["):
        fields = {f.name: f for f in cls.fields}

        def one() -> None:
            start = cursor.at
            key = cursor.take(_KEY, "an attribute's name")[0]
            if key not in fields or key in attributes:
                cursor.at = start
                cursor.fail(f"an attribute of {word}, each once ({', '.join(fields) or 'it has none'})")
            cursor.expect("=")
            attributes[key] = cursor.attribute(fields[key].annotation)

        for _ in cursor.items(one, "]"):
            pass
    return cls(**attributes)


@dataclass
class _Block:
    name: str
    number: int
    lines: list[tuple[int, str]] = field(default_factory=list)


class _Reader:
    """Splits the text into blocks, then builds modules from the first one down."""

    def __init__(self, text: str, opset: OpSet) -> None:
        self.opset = opset
        self.symbols: dict[str, Dim] = {}
        self.blocks: dict[str, _Block] = {}
        self.built: dict[str, Module] = {}
        self.open: set[str] = set()  # modules being built
        self.labels: dict[str, set[str]] = {}  # the symbols of the parameters of each module
        block: _Block | None = None
        for number, line in enumerate(text.split("\n"), 1):
            cursor = Cursor(number, line, self.symbols)
            cursor.skip()
            if cursor.at == len(line) or line[cursor.at] == "#":
                continue
            if cursor.accept_word("symbol"):
                self._declare(cursor)
            elif cursor.accept_word("module"):
                name = cursor.name("a module's name")
                cursor.sources()
                if name in self.blocks:
                    raise ParseError(
                        f"line {number}: expected a new module name, {name!r} is on line {self.blocks[name].number}"
                    )
                block = self.blocks[name] = _Block(name, number)
            elif block is None:
                cursor.fail("'symbol' or 'module'")
            else:
                block.lines.append((number, line))

    def _declare(self, cursor: Cursor) -> None:
        name = cursor.symbol_name()
        if name in self.symbols or (name in RESERVED and "`" not in cursor.text):
            raise ParseError(f"line {cursor.number}: expected a new symbol, {name!r} is declared or reserved")
        low, high, optimals = 0, UNBOUNDED, []
        if cursor.accept_word("in"):
            low = int(cursor.take(_DIGITS, "the smallest value")[0])
            cursor.expect("..")
            bound = cursor.take(_OPEN_END, "the largest value")[0]
            high = int(bound) if bound else UNBOUNDED
        if cursor.accept_word("optimals"):
            optimals.append(cursor.integer())
            while cursor.accept(","):
                optimals.append(cursor.integer())
        cursor.sources()
        prefix = fresh_prefix(name) if low < high else None
        try:
            self.symbols[name] = symbol(name, low, high, optimals) if prefix is None else fresh(prefix, low, high)
        except MgxError as error:
            raise ParseError(f"line {cursor.number}: {error}") from None

    def read(self) -> Module:
        first = next(iter(self.blocks.values()), None)
        if first is None:
            raise ParseError("line 1: expected 'module NAME', got a text without modules")
        root = self._build(first, {}, first.number)
        for name, block in self.blocks.items():
            if name not in self.built:
                raise ParseError(
                    f"line {block.number}: expected an instruction that runs module {name!r}, there is none"
                )
        return root

    def _build(self, block: _Block, outer: MutableMapping[str, Instruction], used_on: int) -> Module:
        if block.name in self.built:
            if block.name in self.open:
                raise ParseError(
                    f"line {used_on}: expected a module that does not contain this line, got {block.name!r}"
                )
            return self.built[block.name]
        module = self.built[block.name] = Module(block.name)
        self.open.add(block.name)
        values: ChainMap[str, Instruction] = ChainMap({}, outer)
        for number, line in block.lines:
            cursor = Cursor(number, line, self.symbols)
            try:
                self._line(cursor, module, values)
            except ParseError:
                raise
            except UnsupportedError as error:
                raise error.located(f"line {number}") from None
            except MgxError as error:
                raise ParseError(f"line {number}: {error}") from error
        self.open.discard(block.name)
        return module

    def _line(self, cursor: Cursor, module: Module, values: ChainMap[str, Instruction]) -> None:
        if module.returned is not None:
            cursor.fail("nothing after @return")
        if cursor.accept("@return"):
            cursor.expect("(")
            inputs = tuple(cursor.items(lambda: self._input(cursor, module, values), ")"))
            made = Instruction(Return(), TupleShape(i.result for i in inputs), inputs)
            made.sources = cursor.sources()
            module.append(made)
            return
        cursor.expect("%")
        name = cursor.name("a value's name")
        if name in values.maps[0]:
            raise ParseError(f"line {cursor.number}: expected a new value, %{name} is defined in this module already")
        cursor.expect("=")
        if cursor.accept("@param"):
            made = self._parameter(cursor, module)
        elif cursor.accept("@literal"):
            made = self._literal(cursor)
        elif cursor.sees("launch["):
            cursor.fail("an op (a launch is made by a target's lowering and cannot be read)")
        else:
            made = self._operation(cursor, module, values)
        made.sources = cursor.sources()
        values.maps[0][name] = module.append(made)

    def _parameter(self, cursor: Cursor, module: Module) -> Instruction:
        cursor.expect("[")
        label = cursor.string()
        cursor.expect("]")
        cursor.expect("->")
        shape = cursor.shape()
        labels = self.labels.setdefault(module.name, set())
        if label in labels:
            raise ParseError(
                f"line {cursor.number}: expected a new parameter, module {module.name!r} has {label!r} already"
            )
        labels.add(label)
        return Instruction(Param(label=label, shape=shape), shape)

    def _literal(self, cursor: Cursor) -> Instruction:
        """Parses the shape first: it comes last in the text, but determines how elements are parsed."""
        start = cursor.at
        arrow = cursor.text.find("->", cursor.closing())
        if arrow < 0:
            cursor.at = len(cursor.text)
            cursor.fail("'->' and the literal's shape")
        cursor.at = arrow + 2
        shape = cursor.shape()
        end, cursor.at = cursor.at, start
        cursor.expect("(")
        value = cursor.value(shape)
        cursor.expect(")")
        cursor.skip()
        if cursor.at != arrow:
            cursor.fail("'->'")
        cursor.at = end
        held = None if isinstance(value, np.ndarray) else shape  # a tensor states its own type
        return Instruction(Literal(shape=shape), shape, literal=Argument.from_value(value, held))

    def _operation(self, cursor: Cursor, module: Module, values: ChainMap[str, Instruction]) -> Instruction:
        op = _op(cursor, self.opset)
        cursor.expect("(")
        inputs = tuple(cursor.items(lambda: self._input(cursor, module, values), ")"))
        modules: tuple[Module, ...] = ()
        if cursor.accept("{"):
            modules = tuple(cursor.items(lambda: self._module(cursor, values), "}"))
        result = infer_shape(op, inputs, modules)
        if cursor.accept("->"):
            start = cursor.at
            stated = cursor.shape()
            if not same_type(stated, result):
                cursor.at = start
                cursor.fail(f"{result} as the result of {op!r}")
            result = stated
        return Instruction(op, result, inputs, modules)

    def _input(self, cursor: Cursor, module: Module, values: ChainMap[str, Instruction]) -> Instruction:
        if cursor.accept("-"):
            absent = values.maps[0].get(_ABSENT)
            if absent is None:
                absent = values.maps[0][_ABSENT] = module.append(Instruction(Undefined(), infer_shape(Undefined(), ())))
            return absent
        cursor.expect("%")
        name = cursor.name("a value's name")
        found = values.get(name)
        if found is None:
            raise ParseError(f"line {cursor.number}: expected a value defined before, got '%{name}'")
        return found

    def _module(self, cursor: Cursor, values: ChainMap[str, Instruction]) -> Module:
        name = cursor.name("a module's name")
        block = self.blocks.get(name)
        if block is None:
            raise ParseError(f"line {cursor.number}: expected the name of a module of this text, got {name!r}")
        return self._build(block, values, cursor.number)
