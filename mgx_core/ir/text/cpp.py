"""Generates C++ code that rebuilds a program through ``migraphx.hpp``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from ...errors import UnsupportedError
from ...ops.operation import Operation
from ...types.argument import Argument
from ...types.dim import Sym
from ...types.dtype import DType
from ...types.dynamic_dimension import DynamicDimension
from ...types.shape import AnyShape, Shape
from ..module import Module
from .building import BuildingCode, unknown_rank

__all__ = ["cpp"]

CHUNK: Final = 32  # bytes of a literal in one line


def cpp(main: Module) -> str:
    """Returns a function ``make_program`` that returns the program built from `main`.

    Errors: UnsupportedError for values without a C++ form, such as strings and types other than tensors.
    """
    lines = list(_Writer(main).module(main, "p.get_main_module()"))
    body = "\n".join(f"    {line}" for line in ["migraphx::program p;", *lines, "return p;"])
    return f"#include <migraphx/migraphx.hpp>\n\nmigraphx::program make_program()\n{{\n{body}\n}}\n"


class _Writer(BuildingCode):
    brackets = ("{", "}")

    def quoted(self, text: str) -> str:
        return json.dumps(text)

    def assigned(self, name: str, value: str) -> str:
        return f"auto {name} = {value};"

    def called(self, call: str) -> str:
        return f"{call};"

    def literal(self, own: str, name: str, literal: Argument) -> Iterator[str]:
        yield f"static const char {name}_data[] ="
        yield from self.data(literal)
        yield self.assigned(name, f"{own}.add_literal({self.shape(literal.shape)}, {name}_data)")

    def op(self, op: Operation) -> str:
        given = {k: self.value(v) for k, v in op.attributes().items() if v is not None}
        text = json.dumps(given).replace("%", "%%")  # the text is a format string
        return f"migraphx::operation({json.dumps(op.name)}{', ' + json.dumps(text) if given else ''})"

    def value(self, value: Any) -> Any:
        if isinstance(value, DType):
            return value.alias + "_type"
        if isinstance(value, Sym):
            return self.extent_text(value)
        if isinstance(value, (tuple, list)):
            return list(map(self.value, value))
        if isinstance(value, Shape) and not value.dynamic():
            return {"type": value.type_string(), "lens": value.lens()}
        if isinstance(value, (bool, int, str, float)):
            return value
        raise UnsupportedError(f"a C++ program cannot write the attribute {value!r}")

    def shape(self, shape: AnyShape) -> str:
        if not isinstance(shape, Shape) or not shape.ranked or shape.dtype.kind in "sc":
            raise UnsupportedError(f"a C++ program cannot write a value of type {shape}{unknown_rank(shape)}")
        kind = f"migraphx::shape(migraphx_shape_{shape.type_string()}"
        if not shape.rank:
            return f"{kind})"
        if not shape.dynamic():
            return f"{kind}, {{{', '.join(map(str, shape.lens()))}}})"
        dims = ", ".join(map(self.extent, shape.dims))
        return f"{kind}, migraphx::dynamic_dimensions({dims}))"

    def extent(self, d: int | Sym) -> str:
        return self.range(self.dimension(d))

    def range(self, d: DynamicDimension) -> str:
        made = "migraphx::dynamic_dimension"
        if d.is_symbolic():
            names = ", ".join(f"{{{self.quoted(n)}, {self.range(r)}}}" for n, r in d.ranges().items())
            return f"{made}({self.quoted(str(d.extent))}, {{{names}}})"
        optimals = f", migraphx::optimals{{{', '.join(map(str, sorted(d.optimals)))}}}" if d.optimals else ""
        return f"{made}({d.min}, {d.max}{optimals})"

    def data(self, literal: Argument) -> Iterator[str]:
        """Yields the elements' bytes as string literals, row by row."""
        data = np.ascontiguousarray(literal.to_numpy()).tobytes()
        rows = [data[n : n + CHUNK] for n in range(0, len(data), CHUNK)] or [b""]
        for n, row in enumerate(rows):
            text = "".join(f"\\{b:03o}" for b in row)
            yield f'    "{text}"{";" if n == len(rows) - 1 else ""}'
