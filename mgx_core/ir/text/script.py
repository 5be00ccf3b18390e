"""Generates Python scripts that rebuild a program, using the calls that MIGraphX's Python module also has."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from ...errors import UnsupportedError
from ...ops.compare import Predicate
from ...ops.operation import Operation
from ...types import dtype as dt
from ...types.argument import Argument
from ...types.dim import Sym
from ...types.dtype import DType
from ...types.dynamic_dimension import DynamicDimension
from ...types.shape import AnyShape, Shape
from ..instruction import Instruction
from ..module import Module
from .building import BuildingCode, unknown_rank

__all__ = ["script"]

FEW: Final = 16  # the most elements of a literal that are written as a list
DECODE: Final = '''
def array(dtype, lens, data):
    """A literal's elements, compressed."""
    return np.frombuffer(zlib.decompress(base64.b64decode(data)), dtype).reshape(lens)
'''


def script(main: Module, package: str = "mgx_core") -> str:
    """Returns a script that leaves the program built from `main` in ``p``.

    package: the package to import.  In MIGraphX, comparisons return their inputs' type; the script converts these to bool.
    Errors: UnsupportedError for values without a form in a script, such as strings and types other than tensors.
    """
    writer = _Writer(main, package)
    lines = list(writer.module(main, "p.get_main_module()"))
    heads = ["import base64", "import zlib", ""] if writer.coded else []
    imports = [f"import {name}" for name in sorted({package, *writer.imports})]
    decode = [DECODE.rstrip("\n"), "", ""] if writer.coded else []
    return "\n".join([*heads, *imports, *decode, "", f"p = {package}.program()", *lines]) + "\n"


class _Writer(BuildingCode):
    brackets = ("[", "]")

    def __init__(self, main: Module, package: str) -> None:
        super().__init__(main)
        self.package = package
        self.coded = False
        self.imports: set[str] = set()

    def quoted(self, text: str) -> str:
        return repr(text)

    def assigned(self, name: str, value: str) -> str:
        return f"{name} = {value}"

    def called(self, call: str) -> str:
        return call

    def literal(self, own: str, name: str, literal: Argument) -> Iterator[str]:
        yield self.assigned(name, f"{own}.add_literal({self.elements(literal)})")

    def instruction(self, own: str, name: str, ins: Instruction) -> Iterator[str]:
        yield from super().instruction(own, name, ins)
        numbers = isinstance(ins.op, Predicate) and ins.inputs[0].shape.dtype is not dt.bool_
        if numbers and self.package != "mgx_core":
            yield self.assigned(
                name, f"{own}.add_instruction({self.package}.op('convert', target_type='bool_type'), [{name}])"
            )

    def op(self, op: Operation) -> str:
        given = "".join(f", {k}={self.value(v)}" for k, v in op.attributes().items() if v is not None)
        return f"{self.package}.op({op.name!r}{given})"

    def value(self, value: Any) -> str:
        if isinstance(value, DType):
            return repr(value.alias + "_type")
        if isinstance(value, Sym):
            return repr(self.extent_text(value))
        if isinstance(value, (tuple, list)):
            return f"[{', '.join(map(self.value, value))}]"
        if isinstance(value, (Shape, Operation)):
            return self.shape(value) if isinstance(value, Shape) else self.op(value)
        if isinstance(value, float) and not np.isfinite(value):
            return f"float({str(value)!r})"
        if isinstance(value, (bool, int, float, str, bytes)):
            return repr(value)
        raise UnsupportedError(f"a script cannot write the attribute {value!r}")

    def shape(self, shape: AnyShape) -> str:
        if not isinstance(shape, Shape) or not shape.ranked:
            raise UnsupportedError(f"a script cannot write a parameter of type {shape}{unknown_rank(shape)}")
        kind = f"{self.package}.shape(type={shape.type_string()!r}"
        if not shape.rank and self.package != "mgx_core":
            return f"{kind}, lens=[1], strides=[0])"
        if not shape.dynamic():
            return f"{kind}, lens={shape.lens()})"
        ranges = list(map(self.dimension, shape.dims))
        if self.package != "mgx_core" and any(r.is_symbolic() for r in ranges):
            record = {"type": shape.type_string(), "dynamic_dimensions": [r.record() for r in ranges]}
            return f"{self.package}.shape.from_json({json.dumps(record)!r})"
        return f"{kind}, dyn_dims=[{', '.join(map(self.extent, shape.dims))}])"

    def extent(self, d: Any) -> str:
        return self.range(self.dimension(d))

    def range(self, d: DynamicDimension) -> str:
        made = f"{self.package}.shape.dynamic_dimension"
        if d.is_symbolic():
            names = ", ".join(f"{n!r}: {self.range(r)}" for n, r in d.ranges().items())
            return f"{made}({str(d.extent)!r}, {{{names}}})"
        optimals = f", {{{', '.join(map(str, sorted(d.optimals)))}}}" if d.optimals else ""
        return f"{made}({d.min}, {d.max}{optimals})"

    def elements(self, literal: Argument) -> str:
        shape = literal.shape
        if not isinstance(shape, Shape) or shape.dtype.kind in "sc":
            raise UnsupportedError(f"a script cannot write a literal of type {shape}")
        values = literal.to_numpy()
        plain = shape.as_standard()
        if values.size <= FEW and shape.dtype.bits >= 16 and np.isfinite(values.astype(np.float64)).all():
            return f"{self.package}.create_argument({self.shape(plain)}, {values.reshape(-1).tolist()})"
        self.coded = True
        self.imports.add("numpy as np")
        known = shape.dtype.numpy.isbuiltin == 1
        if not known:
            self.imports.add("ml_dtypes")
        kind = repr(shape.dtype.numpy.name) if known else f"ml_dtypes.{shape.dtype.name}"
        data = base64.b64encode(zlib.compress(np.ascontiguousarray(values).tobytes())).decode()
        return f"{self.package}.argument(array({kind}, {plain.lens()}, {data!r}))"
