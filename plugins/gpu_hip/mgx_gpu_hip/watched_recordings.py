"""Graphs of programs with watched constants: they check on the device whether the constants were written, and fall back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .recordings import Recording, Recordings, captured
from .runtime import Stream
from .runtime.choice import Choice
from .staging import Staging
from .watch import DeviceWatch

__all__ = ["WatchedRecordings", "read_by"]


class WatchedRecordings(Recordings):
    """Graphs that run a program's steps beside the check of its constants, then, if the check fails, the steps of a fallback
    program, which reads the constants from the caller's memory and overwrites the results.

    On a stream under capture, where no graph can be launched, only the fallback's steps are enqueued.
    spare: the fallback program's graphs; read: from `read_by`.
    """

    def __init__(
        self, own: Recordings, staging: Staging, watch: DeviceWatch, spare: Recordings, read: Mapping[int, Any]
    ) -> None:
        super().__init__(own.steps, own.device, own.functions, own.addresses, own.held, own.overlap)
        self.staging, self.watch, self.spare, self.read = staging, watch, spare, read

    def _record(self, given: Mapping[int, int], places: Mapping[int, int], after: Stream) -> Recording:
        memory = self.staging.memory
        read = {
            n: source.address if not isinstance(source, int) else given.get(source, memory["input", source].address)
            for n, source in self.read.items()
        }
        written = {n: places.get(n, memory["output", n].address) for n in range(len(self.staging.outputs))}
        otherwise, alone = self.spare.graph(read, written, after)
        first, steps = self.graph(given, places, after)
        if first is None or otherwise is None:
            return Recording(None, alone, alone)
        choice = Choice(self.device)
        check = captured(self.watch.checks(choice), self.device, self.device.stream())
        return Recording(choice.of(first, check, otherwise).instantiate(), steps, alone)


def read_by(spare: Staging, own: Staging, given: Sequence[Any]) -> dict[int, Any] | None:
    """Returns for each input of the fallback the index of the program's input, or the memory of a constant.

    given: the same for each parameter of the fallback.  Raises the required alignment of the program's arguments and results to
    that of both programs.  None if the fallback reads an input that the program does not, or a constant of unsuitable layout.
    """
    found: dict[int, Any] = {}
    for number in (v.buffer.index for v in spare.inputs):
        source, align = given[number], spare.input_align[number]
        if not isinstance(source, int):
            if source.address % align or not source.device_shape.standard():
                return None
        elif ("input", source) not in own.memory:
            return None
        found[number] = source
    for number, source in found.items():
        if isinstance(source, int):
            own.input_align[source] = max(own.input_align[source], spare.input_align[number])
    own.output_align = [max(pair) for pair in zip(own.output_align, spare.output_align, strict=True)]
    return found
