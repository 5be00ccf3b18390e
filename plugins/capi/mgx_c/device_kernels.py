"""Kernels of custom operators for targets with device memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mgx_core import Kernel, Kernels, Module, No, Shape

from .custom_operators import CustomOperator

__all__ = ["PLANS"]

PLANS: Final = Kernels("gpu")


@PLANS.plan(CustomOperator)
def called(op: CustomOperator, inputs: Sequence[Any], context: Any) -> Kernel | No:
    return Called(op, op.table.computes_on_device(op.callbacks))


class Called(Kernel):
    """Calls a custom operator as a step between other kernels.

    Inputs are copies: the function may write to them.
    """

    def __init__(self, op: CustomOperator, on_device: bool) -> None:
        self.op = op
        self.on_device = on_device
        self.name = f"{op.name}, a function of the program on the {'device' if on_device else 'host'}"

    def emit(self, emitter: Any, op: CustomOperator, modules: Sequence[Module], args: Sequence[Any]) -> Any:
        if any(a is None or isinstance(a, tuple) for a in args):
            return No("custom operators require tensors as inputs")
        table, callbacks, context = op.table, op.callbacks, emitter.context
        given = [emitter.copy(a) for a in args]
        result = table.shape(callbacks, [v.plain for v in given])
        if not self.on_device:
            place = emitter.allocate(result.dtype, result.lens())
            emitter.host_step(self.name, lambda xs: [table.on_host(callbacks, xs, context)], given, [place])
            return place
        place = emitter.allocate(result.dtype, [result.element_space()])
        emitter.device_step(
            self.name, lambda xs, ys: table.on_device(callbacks, xs, ys[0], result, context), given, [place]
        )
        return type(place)(Shape(result.dtype, result.lens(), result.strides()), place.buffer)

    def run(self, args: Sequence[Any], modules: Sequence[Module] = (), run: Any = None) -> Any:
        """Computes the op on the host, for ops scheduled at run time."""
        return self.op.compute(*[a.to_host() if hasattr(a, "to_host") else a for a in args])
