"""The interfaces of targets and their contexts.  A target must provide kernels; the core has defaults for everything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cache import Held
from ..errors import UnsupportedError
from ..types.argument import Array, Value
from ..types.memory_limit import require_room
from ..types.shape import AnyShape, Shape

if TYPE_CHECKING:
    from ..ir.module import Module
    from ..options import CompileOptions
    from ..passes.interface import Pass
    from .emission import Emitter
    from .kernel_table import Kernels
    from .lowered import Lowered
    from .memory import MemoryPlan
    from .runner import Runner
    from .saved import SavedInstance
    from .schedule import Schedule
    from .watch import Watch

__all__ = ["Context", "HostContext", "Target"]


class Context:
    """A device as a target sees it: what kernels are made for and launched on.

    Plans and passes of the target get it as they asked for it with `Target.get_context`, with all members that it adds.
    """

    target: Target
    """The target that made it."""

    def finish(self) -> None:
        """Waits until everything launched is done.  Default: runs end before they return, so there is nothing to wait for."""

    def memory(self) -> Mapping[str, Held]:
        """Returns what the caches behind this context hold in memory, entries and bytes by name.  Default: nothing."""
        return {}

    def profiler_ranges(self) -> tuple[Callable[[str], None], Callable[[], None]]:
        """Returns what begins a range of a name and what ends the innermost, for the profiler of the device's vendor.

        Default: UnsupportedError, there is none.
        """
        raise UnsupportedError(
            f"target {self.target.name!r} has no profiler that shows ranges; `mgx-driver perf` times its instructions"
        )

    # memory that callers hold themselves (compile option ``offload_copy=False``)

    @property
    def queue(self) -> int:
        """The address of the queue on which runs are enqueued that name none.  Default: 0, there is none."""
        return 0

    def allocate(self, shape: Shape) -> Value:
        """Returns a tensor in the device's memory, its elements unset.  Default: host memory."""
        require_room(shape.lens(), shape.dtype.size, "the argument")
        return np.empty(shape.lens(), shape.dtype.numpy)

    def host_array(self, shape: Shape) -> Array:
        """Returns host memory for a tensor, its elements unset, which the device reaches where its driver can let it.

        Default: plain host memory.
        """
        require_room(shape.lens(), shape.dtype.size, "the argument")
        return np.empty(shape.lens(), shape.dtype.numpy)

    def pin(self, array: Array) -> object | None:
        """Lets the device reach the memory of a host array as that of `host_array`, until what it returns is gone.

        The memory must stay until then.  Returns None where the driver cannot do so.  Default: None.
        """
        return None

    def upload(self, array: Array) -> Value:
        """Returns a copy of a host array in the device's memory.  Default: a copy in host memory."""
        return array.copy()

    def copy(self, source: Value, place: Value) -> None:
        """Copies a tensor into another one of its shape, each in host memory or in the device's; done when it returns.

        Default: both are in host memory.
        """
        np.copyto(place, source)

    def holds(self, address: int) -> bool:
        """True if an address lies in the device's own memory.  It is asked for any address and opens no device: where none is
        open in this process, nothing can lie in its memory.  Default: False."""
        return False

    def borrow(self, shape: Shape, address: int) -> Value:
        """Returns a tensor in memory of the device that the caller owns and keeps alive; `holds` is true of its address.

        Default: UnsupportedError, for contexts without memory of their own.
        """
        raise UnsupportedError(f"{self!r} has no memory of its own that an address could lie in")

    def untimed(self) -> Context:
        """Returns a context on the same device for programs that run rarely: no kernel is timed for them.  Default: itself."""
        return self

    def watch(self, values: Sequence[Value]) -> Watch | None:
        """Returns a mark of what tensors in the device's memory hold now, for `Runner.watching`.  Default: None, it cannot."""
        return None

    def open_shared(self, handle: bytes, size: int, device: int) -> int:
        """Returns the address of device memory that another process shares; `borrow` makes tensors in it.

        handle: as the other process' driver gave it; size: bytes that are required; device: the number of the one that it
        lies on, as this process counts.
        Errors: UnsupportedError for memory that this context cannot reach; DeviceError if there is none such.  Default:
        UnsupportedError, for contexts without memory of their own.
        """
        raise UnsupportedError(f"{self!r} has no memory of its own that another process could share")

    def close_shared(self, address: int) -> None:
        """Gives back what `open_shared` gave.  Default: UnsupportedError."""
        raise UnsupportedError(f"{self!r} has no memory of its own that another process could share")


class HostContext(Context):
    """The context of a target that runs on the host as the calls come."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def __repr__(self) -> str:
        return f"context of target {self.target.name!r}"


class Target:
    """Device or engine that runs programs.

    Required: `name`.  A target that defines nothing else runs every op by its definition on the host; one that defines
    `kernels` runs what its plans take.
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

    def get_context(self) -> Any:
        """Returns a new context: a `Context` of this target.  Default: a `HostContext`."""
        return HostContext(self)

    def kernels(self, context: Any) -> Kernels:
        """Returns the plans for ops, in order of preference.  Default: none."""
        from .kernel_table import Kernels

        return Kernels(self.name)

    def passes(self, stage: str, context: Any, options: CompileOptions) -> Sequence[Pass]:
        """Returns passes to run at the end of a stage (`mgx_core.compile.pipeline.STAGES`).  Default: none."""
        return ()

    def runner(self, module: Module, plan: MemoryPlan, context: Any, options: CompileOptions) -> Runner:
        """Returns what runs a lowered module.

        plan: every value's place in one arena.  An executor of a target's own touches no Python per instruction.
        Default: a `HostRunner`, which calls each kernel's `run` from Python.
        """
        from .runner import HostRunner

        return HostRunner(module)

    def emitter(self, kernels: Kernels, context: Any, options: CompileOptions) -> Emitter | None:
        """Returns what collects the steps that kernels emit (`Kernel.emit`) for a lowered module.

        kernels: the target's plans and those that plugins add for it.
        Default: None; kernels are called from Python by `runner`.
        """
        return None

    def assemble(self, schedule: Schedule, emitter: Any, context: Any, options: CompileOptions) -> Runner:
        """Returns what runs a schedule: its steps, on an arena of `schedule.peak` bytes.

        emitter: the one that made the schedule; for targets that have one.
        """
        raise NotImplementedError(f"target {self.name!r} defines emitter() and no assemble()")

    def instance_shape(self, declared: AnyShape, given: AnyShape) -> AnyShape:
        """Returns the shape of a parameter in one instance, from the declared one and the one that came.

        A target whose kernels take extents as arguments may give ints here that remember their symbol.  Default: `given`.
        """
        return given

    def accept(self, given: Any, context: Any) -> Value | None:
        """Returns a caller's argument as a value if it lies in this target's own memory.

        Default: None; the argument is converted to host memory.
        """
        return None

    def descriptor(self, given: Any) -> Any:
        """Returns all that a run needs to know of an argument in this target's memory, as something hashable.

        That is address, type, extents and strides.
        Arguments with equal descriptors are checked once (`Runner.repeated`).  Default: None, no such argument.
        """
        return None

    def machine(self, context: Any) -> str:
        """Returns everything that compiled code depends on, as text: processor, versions of compilers, libraries and the target.

        Code in a program file is used again only where this text is the same.  Default: empty, no code is saved.
        """
        return ""

    def settings(self, context: Any) -> str | None:
        """Returns what compiled programs depend on beside the machine and the options: the context's own, the environment's.

        Programs that were read from a file may then be kept for later processes, which take them without compiling
        (``MGX_KEEP_PROGRAMS``).
        Default: None, no programs are kept.
        """
        return None

    def restored(self, saved: SavedInstance, lowered: Lowered, context: Any, options: CompileOptions) -> Runner:
        """Returns a runner from what `Runner.saved` gave.

        saved: its `code`, and `fetch(number)` for kept arrays; lowered: the lowered module, an emitter and the plan, each made
        if it is asked for.
        Errors: any MgxError, whereupon the program is compiled again and the executable notes why.
        """
        raise UnsupportedError(f"target {self.name!r} takes no compiled code from files")

    def ceilings(self, context: Any) -> Mapping[str, float]:
        """Returns what the device does in a second at most: `flops` and `bytes`.  Default: empty, not known."""
        return {}

    def __repr__(self) -> str:
        return f"target {self.name!r}"
