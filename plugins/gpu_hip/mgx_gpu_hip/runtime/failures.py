"""Errors of driver calls, with hints on their causes."""

from __future__ import annotations

from typing import Final

from mgx_core.errors import DeviceError

__all__ = ["CallError", "OutOfMemoryError", "advice"]

# CUDA and HIP share these numbers
OUT_OF_MEMORY: Final = 2
NOT_READY: Final = 600
UPDATE_FAILED: Final = 910

_ADVICE: Final = {
    1: "an argument is out of the device's range (grid, block or shared memory of a launch, or an address)",
    3: "the driver was used before it was initialized, or after a fork: start worker processes with 'spawn'",
    35: "the driver is older than this program needs: update it",
    98: "the module has no such kernel for this device",
    100: "no GPU is visible: check the driver and CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES",
    101: "the device number is too large: see how many devices are visible",
    200: "the image is not a code object: the compiler's output is damaged",
    209: "the code was compiled for another architecture: recompile for this device",
    218: "the PTX is newer than the driver: update the driver",
    400: "a stream, event or graph was used after it was freed, or on another device",
    500: "the module has no kernel of this name",
    700: "a kernel read or wrote outside its buffers",
    701: "the launch needs more registers or shared memory than a unit has: use smaller blocks",
    702: "a kernel ran too long (display watchdog)",
    716: "a kernel made an access that is not aligned to its size",
    714: "a kernel used up the device's stack",
    715: "a kernel has an instruction that the device does not know",
    718: "a kernel jumped outside its code",
    719: "a kernel failed; run it on the emulated device to find out where",
    900: "the call is not allowed while a stream is captured",
    901: "capture was broken by an earlier call on this stream or thread",
    906: "a stream under capture was mixed with one that is not",
}


# sticky errors: the context is unusable afterwards
_LOST: Final = frozenset({700, 702, 709, 710, 714, 715, 716, 717, 718, 719})
_CONSEQUENCE: Final = (
    "; the device's context is lost with it: nothing can run on this device until a new process opens it"
)


def advice(code: int) -> str:
    return _ADVICE.get(code, "")


class CallError(DeviceError):
    """A failed driver call; `call`, `error` (the vendor's name for the error) and `code` identify it.

    lost: the context is unusable.
    """

    def __init__(self, call: str, error: str, code: int, detail: str = "") -> None:
        help = advice(code)
        super().__init__(
            f"{call}: {error} ({code})"
            + (f": {detail}" if detail else "")
            + (f"; {help}" if help else "")
            + (_CONSEQUENCE if code in _LOST else "")
        )
        self.lost = code in _LOST
        self.call = call
        self.error = error
        self.code = code


class OutOfMemoryError(DeviceError):
    """Failed allocation of device memory; sizes in bytes."""

    def __init__(self, asked: int, free: int, total: int, held: int, error: str) -> None:
        super().__init__(
            f"out of device memory ({error}): {_size(asked)} requested, {_size(free)} of {_size(total)} free, {_size(held)} used "
            "by this process; a smaller batch, float16 weights, fewer cached shapes or ending other users of the device "
            "would help"
        )
        self.asked = asked
        self.free = free
        self.total = total
        self.held = held


def _size(n: int) -> str:
    return f"{n / (1 << 30):.2f} GiB" if n >= 1 << 30 else f"{n / (1 << 20):.2f} MiB" if n >= 1 << 20 else f"{n} bytes"
