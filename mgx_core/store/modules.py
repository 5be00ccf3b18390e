"""Serializes modules to plain data, and deserializes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import MgxError, StoreError, UnsupportedError
from ..ir.instruction import Instruction, infer_shape
from ..ir.module import Module
from ..ops.builtin import Literal, Param, Return, Undefined
from ..ops.operation import Operation
from ..ops.opset import OpSet
from ..types.argument import Argument
from ..types.shape import TupleShape, same_type
from .codec import Decoder, Encoder
from .literals import LiteralReader, LiteralWriter, Sources

__all__ = ["ModuleDecoder", "ModuleEncoder"]


class ModuleEncoder:
    """Encodes a module and its nested modules.

    Instructions are numbered in order, those of nested modules before the instruction that owns them; inputs are numbers.
    """

    def __init__(self, source: Sources | None = None) -> None:
        self.values = Encoder()
        self.literals = LiteralWriter(source)
        self.numbers: dict[Instruction, int] = {}
        self.modules: dict[Module, int] = {}

    def module(self, module: Module) -> Any:
        if module in self.modules:  # one module run by several instructions
            return self.modules[module]
        nodes = [self._node(ins) for ins in module]
        self.modules[module] = len(self.modules)
        return {"name": module.name, "nodes": nodes}

    def _node(self, ins: Instruction) -> dict[str, Any]:
        op = ins.op
        if op.name == "launch":
            raise StoreError(f"{ins!r} was created by lowering; only programs before lowering can be stored")
        node: dict[str, Any] = {"op": op.name}
        if ins.literal is not None:
            node["value"] = self.literals.value(ins.literal.value)
        else:
            attributes = {f.name: self.values.attribute(getattr(op, f.name)) for f in op.fields}
            if attributes:
                node["attributes"] = attributes
        if ins.inputs:
            node["inputs"] = [self.numbers[i] for i in ins.inputs]
        if ins.modules:
            node["modules"] = [self.module(m) for m in ins.modules]
        if not ins.is_return:
            node["shape"] = self.values.shape(ins.result)
        if ins.sources:
            node["sources"] = list(ins.sources)
        self.numbers[ins] = len(self.numbers)
        return node


class ModuleDecoder:
    """Decodes the output of `ModuleEncoder`; checks every shape against its op's shape inference.

    Errors: UnsupportedError for unknown ops; StoreError for inconsistent contents.
    """

    def __init__(self, opset: OpSet, values: Decoder, literals: LiteralReader) -> None:
        self.opset = opset
        self.values = values
        self.literals = literals
        self.labels: list[set[str]] = []  # of the parameters of the modules in `open`
        self.instructions: list[Instruction] = []
        self.modules: list[Module] = []
        self.open: list[Module] = []

    def module(self, plain: Any) -> Module:
        if isinstance(plain, int):
            return self.modules[plain]
        module = Module(str(plain["name"]))
        self.open.append(module)
        self.labels.append(set())
        for node in plain["nodes"]:
            where = f"module {module.name!r}, instruction {len(module)}"
            try:
                made = self._node(node)
            except StoreError as error:
                raise error.located(where) from None
            except UnsupportedError as error:
                raise error.located(where) from None
            except MgxError as error:
                raise StoreError(f"{where}: {error}") from error
            made.sources = tuple(map(str, node.get("sources", ())))
            self.instructions.append(module.append(made))
        self.open.pop()
        self.labels.pop()
        self.modules.append(module)
        return module

    def _node(self, node: Any) -> Instruction:
        name = node["op"]
        modules = tuple(self.module(m) for m in node.get("modules", ()))
        inputs = tuple(self._input(number) for number in node.get("inputs", ()))
        if self.open[-1].returned is not None:
            raise StoreError(f"{name} follows the module's return")
        if name == Return.name:
            return Instruction(Return(), TupleShape(i.result for i in inputs), inputs)
        shape = self.values.shape(node["shape"])
        if name == Literal.name:
            value = self.literals.value(node["value"])
            argument = Argument.from_value(value, None if isinstance(value, np.ndarray) else shape)
            if not same_type(shape, argument.shape):
                raise StoreError(f"a literal of shape {shape} has a value of shape {argument.shape}")
            return Instruction(Literal(shape=shape), shape, literal=argument)
        op = self._op(name, node.get("attributes", {}))
        if isinstance(op, Param):
            if op.label in self.labels[-1]:
                raise StoreError(f"there are two parameters {op.label!r}")
            self.labels[-1].add(op.label)
        result = infer_shape(op, inputs, modules)
        if not same_type(shape, result):
            raise StoreError(f"{op!r} returns {result}, the file states {shape}")
        return Instruction(op, shape, inputs, modules)

    def _op(self, name: str, plain: dict[str, Any]) -> Operation:
        own: dict[str, type[Operation]] = {Param.name: Param, Undefined.name: Undefined}
        cls = own.get(name) or self.opset.get(name)
        if cls is None:
            return self.opset.make(name)
        kinds = {f.name: f.annotation for f in cls.fields}
        return cls(**{key: self.values.attribute(kinds.get(key, ""), value) for key, value in plain.items()})

    def _input(self, number: int) -> Instruction:
        if not 0 <= number < len(self.instructions) or self.instructions[number].parent not in self.open:
            raise StoreError(f"input {number} is not an earlier instruction of this or an enclosing module")
        return self.instructions[number]
