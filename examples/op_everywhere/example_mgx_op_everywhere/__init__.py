"""The operation `clip_rows`, a converter for its ONNX operator, and kernels for cpu and gpu."""

from mgx_core import Lazy, hookimpl

mgx_interface = 1


@hookimpl
def operations() -> list[Lazy]:
    return [Lazy("op_everywhere", "example_mgx_op_everywhere.op:OPS", "clip_rows")]


@hookimpl
def converters(frontend: str) -> list[Lazy]:
    return [Lazy("op_everywhere", "example_mgx_op_everywhere.onnx:CONVERTERS")] if frontend == "onnx" else []


@hookimpl
def kernels(target: str) -> list[Lazy]:
    return [Lazy("op_everywhere", f"example_mgx_op_everywhere.{target}:PLANS")] if target in ("cpu", "gpu") else []
