"""`onnx_migraphx.backend`: the backend for `onnx.backend.test` and other callers of ONNX's backend interface."""

from __future__ import annotations

from typing import Any

import onnx
from onnx.backend.base import Backend

import mgx_core as mgx
import migraphx
from migraphx.programs import of_program

from .backend_rep import MIGraphXBackendRep

__all__ = ["MIGraphXBackend", "is_compatible", "prepare", "run", "supports_device"]

DEVICES = ("CPU", "GPU")


class MIGraphXBackend(Backend):  # type: ignore[misc,unused-ignore]
    """Compiles models for the target of the device's name: CPU or, by default, GPU (`set_device`)."""

    _device = "GPU"
    _program_text = ""

    @classmethod
    def set_device(cls, device: str) -> None:
        """Errors: ValueError for a device other than CPU and GPU."""
        if device not in DEVICES:
            raise ValueError(f"device must be one of {', '.join(DEVICES)}, got {device!r}")
        cls._device = device

    @classmethod
    def is_compatible(cls, model: Any, device: str | None = None, **options: Any) -> bool:
        return cls.supports_device(device or cls._device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device in DEVICES

    @classmethod
    def prepare(cls, model: Any, device: str | None = None, **options: Any) -> MIGraphXBackendRep:
        """Returns a runnable model from a `ModelProto`, its bytes, a compiled `migraphx.program` or a prepared model.

        device: ignored, as in MIGraphX; see `set_device`.
        """
        if isinstance(model, MIGraphXBackendRep):
            return model
        if isinstance(model, migraphx.program):
            return MIGraphXBackendRep(model)
        if not isinstance(model, bytes):
            onnx.checker.check_model(model)
            model = model.SerializeToString()
        made = of_program(mgx.parse_onnx_buffer(model))  # the core's parser does not pad results
        cls._program_text = f"\nProgram =\n{made}"
        made.compile(migraphx.get_target(cls._device.lower()))
        cls._program_text += f"\nCompiled program =\n{made}"
        return MIGraphXBackendRep(made)

    @classmethod
    def get_program(cls) -> str:
        """Returns the text of the last prepared model, parsed and compiled, for diagnosis."""
        return cls._program_text

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str | None = None, **options: Any) -> Any:
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(cls, node: Any, inputs: Any, device: Any = None, outputs_info: Any = None, **options: Any) -> Any:
        raise NotImplementedError("single nodes are not supported: wrap the node in a model and call run_model")


is_compatible = MIGraphXBackend.is_compatible
prepare = MIGraphXBackend.prepare
run = MIGraphXBackend.run_model
supports_device = MIGraphXBackend.supports_device
