"""Adapters for ONNX test suites: an `onnx.backend.base.Backend` class and a run function per target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from mgx_core import Argument, Program, get_target

from .frontend import OnnxFrontend, parse_model
from .options import OnnxOptions

__all__ = ["CpuBackend", "GpuBackend", "RefBackend", "run_cpu", "run_gpu", "run_ref"]


def plain(argument: Argument) -> Any:
    """Converts an Argument to numpy and Python objects: arrays, lists for sequences, None for absent optionals."""
    value = argument.value
    if isinstance(value, (list, tuple)):
        return [plain(a) for a in argument.get_sub_objects()]
    return value


class _Compiled(BackendRep):  # type: ignore[misc,unused-ignore]
    """A program compiled for a target, with inputs by position."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def run(self, inputs: Any, **options: Any) -> tuple[Any, ...]:
        """Returns results for inputs in graph-input order, or by name."""
        if not isinstance(inputs, Mapping):
            names = self.program.get_parameter_names()
            given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
            inputs = dict(zip(names, given, strict=len(given) < len(names)))
        return tuple(plain(a) for a in self.program.run(inputs))


class _Backend(Backend):  # type: ignore[misc,unused-ignore]
    """Compiles models for the target called `target`."""

    target = "ref"
    device = "CPU"

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> bool:
        return True

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == cls.device

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> _Compiled:
        program = parse_model(model, OnnxOptions())
        program.compile(get_target(cls.target))
        return _Compiled(program)

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Any, ...]:
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Sequence[Any],
        device: str = "CPU",
        outputs_info: Any = None,
        **options: Any,
    ) -> tuple[Any, ...]:
        """Runs one node as a model of its own; option `opset_version` (default: the newest released)."""
        arrays = [np.asarray(i) for i in inputs]
        graph = onnx.helper.make_graph(
            [node],
            "node",
            [
                onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
                for name, a in zip((i for i in node.input if i), arrays, strict=True)
            ],
            [onnx.helper.make_empty_tensor_value_info(o) for o in node.output if o],
        )
        version = options.get("opset_version", onnx.defs.onnx_opset_version())
        imports = [onnx.helper.make_opsetid(node.domain, version if not node.domain else 1)]
        model = onnx.helper.make_model(graph, opset_imports=imports)
        return cls.prepare(model, device).run(arrays)


class RefBackend(_Backend):
    """Runs ONNX's backend tests on the reference target."""


class CpuBackend(_Backend):
    """Runs ONNX's backend tests on the cpu target."""

    target = "cpu"


class GpuBackend(_Backend):
    """Runs ONNX's backend tests on the gpu target; accepts the device CPU, since most tests request it."""

    target = "gpu"


def _run(target: str, path: Any, inputs: Mapping[str, Any]) -> list[Any]:
    program = OnnxFrontend().parse(path)
    program.compile(get_target(target))
    return [plain(a) for a in program.run(inputs)]


def run_ref(path: Any, inputs: Mapping[str, Any]) -> list[Any]:
    """Returns a model file's results on the reference target, in graph-output order."""
    return _run("ref", path, inputs)


def run_cpu(path: Any, inputs: Mapping[str, Any]) -> list[Any]:
    """Returns a model file's results on the cpu target, in graph-output order."""
    return _run("cpu", path, inputs)


def run_gpu(path: Any, inputs: Mapping[str, Any]) -> list[Any]:
    """Returns a model file's results on the gpu target, in graph-output order."""
    return _run("gpu", path, inputs)
