"""A hostile model: its construction, its inputs and the expected outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

__all__ = ["CASES", "Case", "Trial", "add", "array", "chain", "given", "graph", "i64", "info", "model", "one"]


@dataclass
class Trial:
    """A model (its bytes, or a file), inputs (None: generated), parse options, and the expected results."""

    model: bytes | Path
    feeds: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    wanted: Sequence[Any] | None = None


@dataclass
class Case:
    """build: from an empty folder to a Trial (or a model, or its bytes); expect: ``refuse``, ``run`` or ``either``."""

    name: str
    kind: str
    expect: str
    build: Callable[[Path], Any]
    slow: bool = False

    def trial(self, folder: Path) -> Trial:
        made = self.build(folder)
        if isinstance(made, onnx.ModelProto):
            made = made.SerializeToString()
        return made if isinstance(made, Trial) else Trial(made)


CASES: dict[str, Case] = {}


def add(kind: str, name: str, build: Any, expect: str = "refuse", slow: bool = False) -> None:
    """Adds a case to the corpus; `build` may also be the model itself."""
    name = f"{kind}/{name}"
    assert name not in CASES, name
    CASES[name] = Case(name, kind, expect, build if callable(build) else lambda folder: build, slow)


def info(name: str, dims: Any = (2, 3), kind: int = T.FLOAT) -> onnx.ValueInfoProto:
    return h.make_tensor_value_info(name, kind, dims)


def array(name: str, value: Any, dtype: Any = None) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(value, dtype), name)


def i64(name: str, *values: int) -> onnx.TensorProto:
    return array(name, list(values), np.int64)


def graph(
    nodes: Any, inputs: Any = (), outputs: Sequence[str] = ("y",), weights: Any = (), name: str = "g"
) -> onnx.GraphProto:
    return h.make_graph(
        list(nodes), name, list(inputs), [h.make_empty_tensor_value_info(o) for o in outputs], list(weights)
    )


def model(
    nodes: Any,
    inputs: Any = (),
    outputs: Sequence[str] = ("y",),
    weights: Any = (),
    opset: int = 20,
    functions: Any = (),
) -> onnx.ModelProto:
    imports = [h.make_opsetid(d, v) for d, v in (("", opset), ("ai.onnx.ml", 3), ("com.microsoft", 1), ("own", 1))]
    return h.make_model(
        graph(nodes, inputs, outputs, weights), opset_imports=imports, ir_version=10, functions=list(functions)
    )


def one(
    op: str,
    *inputs: Any,
    opset: int = 20,
    outputs: int = 1,
    fixed: Sequence[int] = (),
    domain: str = "",
    **attributes: Any,
) -> Trial:
    """Returns a trial of one node on these arrays (None: absent), which are inputs, or initializers at the indices `fixed`."""
    names = [f"i{k}" if x is not None else "" for k, x in enumerate(inputs)]
    results = [f"o{k}" for k in range(outputs)]
    node = h.make_node(op, names, results, domain=domain, **attributes)
    arrays = {n: np.asarray(x) for n, x in zip(names, inputs, strict=True) if n}
    late = {
        n: a for k, (n, a) in enumerate((n, arrays.get(n)) for n in names) if n and k not in fixed and a is not None
    }
    weights = [numpy_helper.from_array(arrays[names[k]], names[k]) for k in fixed if k < len(names) and names[k]]
    infos = [info(n, a.shape, h.np_dtype_to_tensor_dtype(a.dtype)) for n, a in late.items()]
    return Trial(model([node], infos, results, weights, opset).SerializeToString(), late)


def given(
    op: str, *inputs: Any, wanted: Any = None, **more: Any
) -> tuple[Callable[[Path], Trial], Callable[[Path], Trial]]:
    """Returns the same node twice: with all operands but the first constant, and with all as inputs."""

    def build(fixed: Sequence[int]) -> Callable[[Path], Trial]:
        def make(folder: Path) -> Trial:
            made = one(op, *inputs, fixed=fixed, **more)
            made.wanted = wanted
            return made

        return make

    return build(range(1, len(inputs)) if len(inputs) > 1 else range(1)), build(())


def chain(
    count: int, step: Callable[[str, str, int], onnx.NodeProto], dims: Any = (2, 3), weights: Any = ()
) -> onnx.ModelProto:
    """Returns a model of `count` consecutive nodes."""
    nodes = [step(f"t{k}" if k else "x", f"t{k + 1}", k) for k in range(count)]
    return model(nodes, [info("x", dims)], [f"t{count}"], weights)
