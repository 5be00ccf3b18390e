"""Graphs of programs with watched constants: they check on the device whether the constants were written, and fall back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .graph_cache import CapturedGraph, GraphCache, captured
from .runtime import Stream
from .runtime.conditional_graph import ConditionalGraph
from .staging import Staging
from .watch import DeviceWatch

__all__ = ["WatchedGraphs", "fallback_inputs"]


class WatchedGraphs(GraphCache):
    """Graphs that run a program's steps beside the check of its constants, then, if the check fails, the steps of a fallback
    program, which reads the constants from the caller's memory and overwrites the results.

    On a stream under capture, where no graph can be launched, only the fallback's steps are enqueued.
    fallback: the fallback program's graphs; read: from `fallback_inputs`.
    """

    def __init__(
        self, own: GraphCache, staging: Staging, watch: DeviceWatch, fallback: GraphCache, read: Mapping[int, Any]
    ) -> None:
        super().__init__(own.steps, own.device, own.functions, own.addresses, own.io_buffers, own.overlap)
        self.staging, self.watch, self.fallback, self.read = staging, watch, fallback, read

    def _capture(self, inputs: Mapping[int, int], outputs: Mapping[int, int], after: Stream) -> CapturedGraph:
        memory = self.staging.memory
        read = {
            n: source.address if not isinstance(source, int) else inputs.get(source, memory["input", source].address)
            for n, source in self.read.items()
        }
        written = {n: outputs.get(n, memory["output", n].address) for n in range(len(self.staging.outputs))}
        otherwise, eager = self.fallback.graph(read, written, after)
        first, steps = self.graph(inputs, outputs, after)
        if first is None or otherwise is None:
            return CapturedGraph(None, eager, eager)
        choice = ConditionalGraph(self.device)
        check = captured(self.watch.checks(choice), self.device, self.device.stream())
        return CapturedGraph(choice.of(first, check, otherwise).instantiate(), steps, eager)


def fallback_inputs(fallback: Staging, own: Staging, given: Sequence[Any]) -> dict[int, Any] | None:
    """Returns for each input of the fallback the index of the program's input, or the memory of a constant.

    given: the same for each parameter of the fallback.  Raises the required alignment of the program's arguments and results to
    that of both programs.  None if the fallback reads an input that the program does not, or a constant of unsuitable layout.
    """
    found: dict[int, Any] = {}
    for number in (v.buffer.index for v in fallback.inputs):
        source, align = given[number], fallback.input_align[number]
        if not isinstance(source, int):
            if source.address % align or not source.device_shape.standard():
                return None
        elif ("input", source) not in own.memory:
            return None
        found[number] = source
    for number, source in found.items():
        if isinstance(source, int):
            own.input_align[source] = max(own.input_align[source], fallback.input_align[number])
    own.output_align = [max(pair) for pair in zip(own.output_align, fallback.output_align, strict=True)]
    return found
