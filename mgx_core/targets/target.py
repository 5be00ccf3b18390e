"""The interfaces of targets and their contexts.  A target must provide kernels; the core has defaults for everything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cache import Held
from ..errors import UnsupportedError
from ..types.argument import Array, Value
from ..types.memory_limit import require_memory
from ..types.shape import AnyShape, Shape

if TYPE_CHECKING:
    from ..ir.module import Module
    from ..options import CompileOptions
    from ..passes.interface import Pass
    from .emission import Emitter
    from .kernel_table import Kernels
    from .lowered import Lowered
    from .memory import MemoryPlan
    from .open_program import OpenProgram
    from .runner import Runner
    from .saved import SavedInstance
    from .schedule import Schedule
    from .watch import Watch

__all__ = ["Context", "HostContext", "Target"]


class Context:
    """A device context: the machine that kernels are compiled for and launched on.

    Plans and passes receive the object that `Target.get_context` returned, including members added by a subclass.
    """

    target: Target
    """The target that made it."""

    def finish(self) -> None:
        """Waits for all launched work.  Default: nothing to wait for, because runs are synchronous."""

    def memory(self) -> Mapping[str, Held]:
        """Reports the caches of this context: entries and bytes by name.  Default: none."""
        return {}

    def profiler_ranges(self) -> tuple[Callable[[str], None], Callable[[], None]]:
        """Returns functions that push a named profiler range and pop the innermost, for the device vendor's profiler.

        Default: UnsupportedError, there is no profiler.
        """
        raise UnsupportedError(
            f"target {self.target.name!r} has no profiler that shows ranges; `mgx-driver perf` times its instructions"
        )

    # memory managed by callers (compile option ``offload_copy=False``)

    @property
    def queue(self) -> int:
        """The address of the default queue (stream).  Default: 0, there is none."""
        return 0

    def allocate(self, shape: Shape) -> Value:
        """Allocates an uninitialized tensor in device memory.  Default: host memory."""
        require_memory(shape.lens(), shape.dtype.size, "the argument")
        return np.empty(shape.lens(), shape.dtype.numpy)

    def host_array(self, shape: Shape) -> Array:
        """Allocates an uninitialized tensor in host memory, pinned if the driver supports it.

        Default: pageable host memory.
        """
        require_memory(shape.lens(), shape.dtype.size, "the argument")
        return np.empty(shape.lens(), shape.dtype.numpy)

    def pin(self, array: Array) -> object | None:
        """Pins the memory of a host array for as long as the returned object lives.

        The memory must outlive that object.  Returns None if the driver does not support it.  Default: None.
        """
        return None

    def upload(self, array: Array) -> Value:
        """Copies a host array to device memory.  Default: a copy in host memory."""
        return array.copy()

    def copy(self, source: Value, place: Value) -> None:
        """Copies a tensor into another one of the same shape, each in host or device memory; synchronous.

        Default: both are in host memory.
        """
        np.copyto(place, source)

    def holds(self, address: int) -> bool:
        """Returns True if an address is in device memory.  Must accept any address, and must not open the device: if it is not
        open in this process, no address can be in its memory.  Default: False."""
        return False

    def borrow(self, shape: Shape, address: int) -> Value:
        """Returns a tensor on device memory that the caller owns and keeps alive; `holds` is True for its address.

        Default: UnsupportedError, for contexts without device memory.
        """
        raise UnsupportedError(f"{self!r} has no device memory, so it cannot borrow an address")

    def untimed(self) -> Context:
        """Returns a context on the same device without autotuning, for programs that run rarely.  Default: itself."""
        return self

    def watch(self, values: Sequence[Value]) -> Watch | None:
        """Returns a fingerprint of the contents of device tensors, for `Runner.watching`.  Default: None, not supported."""
        return None

    def open_shared(self, handle: bytes, size: int, device: int) -> int:
        """Opens device memory shared by another process; returns its address, for use with `borrow`.

        handle: IPC handle from the other process's driver; size: required bytes; device: its device index in this process.
        Errors: UnsupportedError if this context cannot access the memory; DeviceError if the handle is invalid.  Default:
        UnsupportedError, for contexts without device memory.
        """
        raise UnsupportedError(f"{self!r} has no device memory that another process could share")

    def close_shared(self, address: int) -> None:
        """Closes memory opened by `open_shared`.  Default: UnsupportedError."""
        raise UnsupportedError(f"{self!r} has no device memory that another process could share")


class HostContext(Context):
    """The context of a target that runs on the host synchronously."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def __repr__(self) -> str:
        return f"context of target {self.target.name!r}"


class Target:
    """A device or engine that runs programs.

    Required: `name`.  A target that defines nothing else runs every op by its reference implementation on the host; `kernels`
    adds kernels for the ops that its plans accept.
    """

    name: str = ""
    """The name by which `get_target` finds it; plugins add kernels and passes to it by this name."""

    own_memory: bool = False
    """True if its contexts hold tensors in memory that is not the host's.

    A program compiled with ``offload_copy=False`` then lists the places of its results among its parameters.  The plugin's record
    says so, too (``Lazy(..., own_memory=True)``), so that callers find the target that their arguments may go to.
    """

    runs_pieces: bool = False
    """True if the runners of a target with `own_memory` define `Runner.enqueued`.

    Programs whose shapes keep changing then run in pieces, as they do on targets without memory of their own.
    """

    opens_programs: bool = False
    """True if it defines `open_program`."""

    channels_last: bool = False
    """True if convolutions read and write images with their channels innermost (NHWC), regardless of the order in the model.

    The option `use_nhwc` requires it and is refused by other targets.
    """

    architectures: bool = False
    """True if it compiles for devices that are not here, named by the option `target`, which other targets refuse."""

    narrow_floats: bool = False
    """True if it multiplies 8-bit floats as they are; other targets convert them first."""

    costly_epilogues: bool = False
    """True if its products of integers finish their sums with any function; on other targets ``erf`` is a loop's work."""

    attention_rounds: bool = False
    """True if its groups of attention may end with the work that makes bytes of their result."""

    narrow_attention: bool = True
    """False if attention's two products are faster in float, in one group: quantizers leave them so where the target is given."""

    byte_tables: bool = True
    """False if it computes functions of products in their epilogue rather than look up bytes in a table.

    Quantizers for this target then do not quantize the operands of expensive functions, which would only cost time and accuracy.
    """

    def get_context(self) -> Any:
        """Creates a context of this target.  Default: a `HostContext`."""
        return HostContext(self)

    def kernels(self, context: Any) -> Kernels:
        """Returns the kernel table: plans by op, in order of preference.  Default: empty."""
        from .kernel_table import Kernels

        return Kernels(self.name)

    def passes(self, stage: str, context: Any, options: CompileOptions) -> Sequence[Pass]:
        """Returns passes to run at the end of a stage (`mgx_core.compile.pipeline.STAGES`).  Default: none."""
        return ()

    def runner(self, module: Module, plan: MemoryPlan, context: Any, options: CompileOptions) -> Runner:
        """Creates a runner for a lowered module.

        plan: the arena offset of every value.  A native executor should run without Python per instruction.
        Default: a `HostRunner`, which calls each kernel's `run` from Python.
        """
        from .host_runner import HostRunner

        return HostRunner(module)

    def emitter(self, kernels: Kernels, context: Any, options: CompileOptions) -> Emitter | None:
        """Creates the emitter, which collects the steps that kernels emit (`Kernel.emit`) for a lowered module.

        kernels: the target's plans and those that plugins add for it.
        Default: None; `runner` calls kernels from Python.
        """
        return None

    def assemble(self, schedule: Schedule, emitter: Any, context: Any, options: CompileOptions) -> Runner:
        """Creates a runner for a schedule: its steps, on an arena of `schedule.peak` bytes.

        emitter: the emitter of the schedule; for targets with an emitter.
        """
        raise NotImplementedError(f"target {self.name!r} defines emitter() and no assemble()")

    def instance_shape(self, declared: AnyShape, given: AnyShape) -> AnyShape:
        """Returns the shape of a parameter in one instance, from its declared and its actual shape.

        A target whose kernels take extents as arguments may return ints that carry their symbol.  Default: `given`.
        """
        return given

    def open_program(
        self,
        parameters: Mapping[str, AnyShape],
        known: Mapping[str, int],
        changing: frozenset[str],
        lower: Callable[[Mapping[str, AnyShape]], Lowered],
    ) -> OpenProgram | None:
        """Returns a program for all values of the extents that keep changing between runs.

        parameters: their declared types; known: extents of a run by symbol; changing: the symbols of those that change; lower:
        lowers the module for types of the parameters, whose extents may be ints of the target's own type.
        Called if `opens_programs` is True, for a set of extents that no earlier program fits, once some sets have been lowered;
        those that change are at least 2.  `TracedEmission` emits the steps of an `Emitter` for traced extents and collects the
        conditions under which they are valid.  None, or an `MgxError`: there is no such program; this is asked a few times.
        Default: None; a program is lowered for each set of extents.
        """
        return None

    def accept(self, given: Any, context: Any) -> Value | None:
        """Returns a caller's argument as a value if it is in this target's memory.

        Default: None; the argument is converted to host memory.
        """
        return None

    def descriptor(self, given: Any) -> Any:
        """Returns a hashable descriptor of an argument in this target's memory: address, type, extents and strides.

        Arguments with equal descriptors are validated once (`Runner.repeated`).  Default: None, not such an argument.
        """
        return None

    def machine(self, context: Any) -> str:
        """Returns a fingerprint of everything that compiled code depends on: processor, compiler, libraries and target version.

        Code in a program file is reused only if the fingerprint is equal.  Default: empty, no code is saved.
        """
        return ""

    def settings(self, context: Any) -> str | None:
        """Returns the settings of context and environment that compiled programs depend on, besides machine and options.

        Programs read from files may then be cached for later processes, which load them without compiling
        (``MGX_KEEP_PROGRAMS``).
        Default: None, programs are not cached.
        """
        return None

    def restored(self, saved: SavedInstance, lowered: Lowered, context: Any, options: CompileOptions) -> Runner:
        """Restores a runner from the data of `Runner.saved`.

        saved: its `code`, and `fetch(number)` for stored arrays; lowered: lazily creates the lowered module, an emitter and the
        plan.
        Errors: any MgxError; the program is then recompiled, and the executable records the reason.
        """
        raise UnsupportedError(f"target {self.name!r} takes no compiled code from files")

    def ceilings(self, context: Any) -> Mapping[str, float]:
        """Returns the device's peak `flops` and `bytes` per second.  Default: empty, unknown."""
        return {}

    def __repr__(self) -> str:
        return f"target {self.name!r}"
