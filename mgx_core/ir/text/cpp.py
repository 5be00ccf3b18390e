"""Programs as C++ that builds them again through ``migraphx.hpp``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from ...errors import UnsupportedError
from ...ops.operation import Operation
from ...types.argument import Argument
from ...types.dim import Sym, bounds
from ...types.dtype import DType
from ...types.shape import AnyShape, Shape
from ..instruction import Instruction
from ..module import Module

__all__ = ["cpp"]

CHUNK: Final = 32  # bytes of a literal in one line


def cpp(main: Module) -> str:
    """A function ``make_program`` that returns the program built from `main`.

    Errors: UnsupportedError for values that it cannot write, strings and types other than tensors among them.
    """
    lines = list(_Writer().module(main, "p.get_main_module()"))
    body = "\n".join(f"    {line}" for line in ["migraphx::program p;", *lines, "return p;"])
    return f"#include <migraphx/migraphx.hpp>\n\nmigraphx::program make_program()\n{{\n{body}\n}}\n"


class _Writer:
    def __init__(self) -> None:
        self.names: dict[Instruction, str] = {}
        self.modules: dict[Module, str] = {}

    def module(self, module: Module, made: str) -> Iterator[str]:
        own = self.modules[module] = f"m{len(self.modules)}"
        yield f"auto {own} = {made};"
        for ins in module:
            for inner in ins.modules:
                if inner not in self.modules:
                    yield from self.module(inner, f"p.create_module({json.dumps(inner.name)})")
            if ins.is_return:
                yield f"{own}.add_return({self.listed(ins.inputs)});"
                continue
            name = f"x{len(self.names)}"
            yield from self.made(own, name, ins)
            self.names[ins] = name

    def made(self, own: str, name: str, ins: Instruction) -> Iterator[str]:
        if ins.is_param:
            label: str = ins.op.label  # type: ignore[attr-defined]
            yield f"auto {name} = {own}.add_parameter({json.dumps(label)}, {self.shape(ins.result)});"
        elif ins.literal is not None:
            yield f"static const char {name}_data[] ="
            yield from self.data(ins.literal)
            yield f"auto {name} = {own}.add_literal({self.shape(ins.literal.shape)}, {name}_data);"
        else:
            modules = f", {{{', '.join(self.modules[m] for m in ins.modules)}}}" if ins.modules else ""
            yield f"auto {name} = {own}.add_instruction({self.op(ins.op)}, {self.listed(ins.inputs)}{modules});"

    def listed(self, inputs: tuple[Instruction, ...]) -> str:
        return f"{{{', '.join(self.names[i] for i in inputs)}}}"

    def op(self, op: Operation) -> str:
        given = {k: self.value(v) for k, v in op.attributes().items() if v is not None}
        text = json.dumps(given).replace("%", "%%")  # the text is a format
        return f"migraphx::operation({json.dumps(op.name)}{', ' + json.dumps(text) if given else ''})"

    def value(self, value: Any) -> Any:
        if isinstance(value, DType):
            return value.alias + "_type"
        if isinstance(value, (tuple, list)):
            return list(map(self.value, value))
        if isinstance(value, Shape) and not value.dynamic():
            return {"type": value.type_string(), "lens": value.lens()}
        if isinstance(value, (bool, int, str)) or (isinstance(value, float) and np.isfinite(value)):
            return value
        raise UnsupportedError(f"a C++ program cannot write the attribute {value!r}")

    def shape(self, shape: AnyShape) -> str:
        if not isinstance(shape, Shape) or not shape.ranked or shape.dtype.kind in "sc":
            raise UnsupportedError(f"a C++ program cannot write a value of type {shape}")
        kind = f"migraphx::shape(migraphx_shape_{shape.type_string()}"
        if not shape.rank:
            return f"{kind})"
        if not shape.dynamic():
            return f"{kind}, {{{', '.join(map(str, shape.lens()))}}})"
        dims = ", ".join(map(self.extent, shape.dims))
        return f"{kind}, migraphx::dynamic_dimensions({dims}))"

    def extent(self, d: int | Sym) -> str:
        low, high = bounds(d)
        return f"migraphx::dynamic_dimension({low}, {high})"

    def data(self, literal: Argument) -> Iterator[str]:
        """The elements' bytes as string literals, row by row."""
        data = np.ascontiguousarray(literal.to_numpy()).tobytes()
        rows = [data[n : n + CHUNK] for n in range(0, len(data), CHUNK)] or [b""]
        for n, row in enumerate(rows):
            text = "".join(f"\\{b:03o}" for b in row)
            yield f'    "{text}"{";" if n == len(rows) - 1 else ""}'
