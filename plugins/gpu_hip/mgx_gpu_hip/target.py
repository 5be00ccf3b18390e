"""The gpu target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mgx_core import Argument, CompileOptions, Kernels, Pass, Runner, Target
from mgx_core.errors import DeviceError
from mgx_core.ops.convolution import ConvolutionWeights
from mgx_core.ops.norm import NORMS
from mgx_core.ops.quantized import QUANTIZERS
from mgx_core.passes.expand_composites import ExpandComposites
from mgx_core.passes.fold_constants import FoldConstants
from mgx_core.passes.merge_common import MergeCommon
from mgx_core.passes.rewrite import Rewrite
from mgx_core.rules.converts import CONVERTS
from mgx_core.rules.engine import EXACT, Rules
from mgx_core.rules.transposed_convolutions import transposed_convolutions
from mgx_core.settings import compilation_variables
from mgx_core.targets.lowered import Lowered
from mgx_core.targets.saved import SavedInstance
from mgx_core.targets.schedule import Schedule
from mgx_core.targets.tuning import KernelTuning

from .attention_rules import HEADS, LARGE_HEADS, SCORES, WIDE_SUMS
from .column_rules import COLUMNS
from .context import GpuContext
from .emitter import GpuEmitter
from .fourier_rules import TRANSFORMS
from .inline_rules import INLINED
from .join_caches import JoinCaches
from .join_concats import JoinConcats
from .join_images import JoinImages
from .join_launches import JoinLaunches
from .join_lookups import JoinLookups
from .join_rows import JoinRows
from .norm_rules import GROUP_NORMS, NORM_ENDS
from .plans import PLANS
from .runtime import DeviceArray, import_array, is_device_array
from .shuffle_rules import SHUFFLES
from .signed_bytes import SIGNED
from .softmax_rules import SOFTMAX_PARTS
from .split_sum_rules import SPLIT_SUMS

if TYPE_CHECKING:
    from mgx_core.targets.open_program import OpenProgram
    from mgx_core.types.shape import AnyShape

__all__ = ["GpuTarget"]

TRANSPOSED: Final = transposed_convolutions("transposed-convolutions", computed=True)


class GpuTarget(Target):
    """HIP C++ kernels and vendor libraries on one GPU; a program is captured once and replayed as one graph.

    kind: ``cuda``, ``hip``, ``host`` (emulated on the CPU, for tests), or empty for the device that ``$MGX_GPU_DEVICE`` names
    (``host:1``), otherwise the first real device.
    """

    name = "gpu"
    own_memory = True
    runs_pieces = True
    opens_programs = True
    architectures = True
    channels_last = True
    narrow_floats = True
    costly_epilogues = True
    attention_rounds = True
    narrow_attention = False
    byte_tables = False

    def __init__(self, kind: str = "", device_id: int = 0) -> None:
        self.kind = kind
        self.device_id = device_id

    def get_context(self) -> GpuContext:
        return GpuContext(self, self.kind, self.device_id)

    def kernels(self, context: Any) -> Kernels:
        return PLANS

    def passes(self, stage: str, context: Any, options: CompileOptions) -> Sequence[Pass]:
        """Errors: DeviceError without a device or architecture; with symbolic extents only the first run would report it."""
        if stage == "legalize":
            _choose_device(context, options)
        if stage == "normalize":
            return (ExpandComposites(frozenset({ConvolutionWeights})),)
        if stage == "fuse" and options.optimize:
            return JoinImages(), JoinRows(), JoinCaches(), JoinConcats(), JoinLookups(), JoinLaunches()
        if stage != "legalize":
            return ()

        rounding = options.optimize and options.aggressiveness > (0 if options.fast_math else 1)

        def allowed(rules: Rules) -> Rules:
            return rules if rounding else rules.within(EXACT)

        return (
            Rewrite(allowed(SIGNED)),
            MergeCommon(),
            Rewrite(allowed(TRANSFORMS)),
            Rewrite(GROUP_NORMS),
            ExpandComposites(NORMS | QUANTIZERS),
            Rewrite(allowed(LARGE_HEADS)),
            Rewrite(CONVERTS + NORM_ENDS),
            Rewrite(allowed(SCORES)),
            Rewrite(HEADS),
            Rewrite(allowed(COLUMNS)),
            Rewrite(allowed(SPLIT_SUMS)),
            Rewrite(allowed(WIDE_SUMS)),
            Rewrite(allowed(TRANSPOSED)),
            Rewrite(SOFTMAX_PARTS),
            Rewrite(SHUFFLES),
            Rewrite(INLINED),
            MergeCommon(),
            FoldConstants(widened=True),
        )

    def instance_shape(self, declared: Any, given: Any) -> Any:
        """Returns the shape of a parameter in one instance; its symbolic extents become kernel arguments."""
        from .codegen.extents import symbolic

        return symbolic(declared, given)

    def emitter(self, kernels: Kernels, context: GpuContext, options: CompileOptions) -> GpuEmitter:
        """Returns an emitter for the context's device, or for another architecture that the options name."""
        _choose_device(context, options)
        real = context.device.kind != "null"  # "null" is a placeholder for a device that is not present
        tuner = context.tuner
        timed = real and (options.exhaustive_tune if tuner is None else tuner.measures)
        return GpuEmitter.of(kernels, context, options, _tuning(context) if timed else None)

    def assemble(self, schedule: Schedule, emitter: GpuEmitter, context: Any, options: CompileOptions) -> Runner:
        return _assembled(schedule, emitter, options, None)

    def open_program(
        self,
        parameters: Mapping[str, AnyShape],
        known: Mapping[str, int],
        changing: frozenset[str],
        lower: Callable[[Mapping[str, AnyShape]], Lowered],
    ) -> OpenProgram | None:
        from .open_program import open_program

        return open_program(parameters, known, changing, lower)

    def machine(self, context: GpuContext) -> str:
        """Returns the architecture that the kernels of a program file are compiled for."""
        from .saved_code import machine_text

        return machine_text(context)

    def settings(self, context: GpuContext) -> str | None:
        """Returns the device and the environment settings that affect compilation and tuning.

        None without a device: a program for another architecture is not cached.
        """
        try:
            device = context.device
        except DeviceError:
            return None
        if device.kind == "null":
            return None
        named = compilation_variables(
            "MGX_", "CUDA_", "CUDNN_", "CUBLAS", "NVIDIA_", "HIP_", "MIOPEN_", "ROCBLAS_", "HIPBLASLT_"
        )
        return repr((device.kind, device.properties.name, named))

    def restored(self, saved: SavedInstance, lowered: Lowered, context: GpuContext, options: CompileOptions) -> Runner:
        """Returns a runner with the kernels and plan choices of a program file.

        Errors: StoreError for those of another version.
        """
        from .saved_code import read_code

        kept = read_code(saved.code, context)
        if context.device.kind != "null" and saved.code["tuning"]:
            _tuning(context).learn(saved.code["tuning"])
        schedule, emitter = lowered.plan, lowered.emitter
        assert isinstance(schedule, Schedule) and isinstance(emitter, GpuEmitter)
        return _assembled(schedule, emitter, options, kept)

    def accept(self, given: Any, context: GpuContext) -> Any:
        """Returns a device array of this or another library without a copy; None for host memory."""
        if isinstance(given, DeviceArray):
            return given
        if isinstance(given, Argument) and isinstance(given.value, DeviceArray):
            return given.value
        if isinstance(given, np.ndarray):
            return None
        return import_array(context.device, given) if is_device_array(given) else None

    def descriptor(self, given: Any) -> Any:
        """Returns pointer, type, shape and strides of an array in device memory; None for anything else."""
        kind = type(given)
        if kind is DeviceArray:
            return given.address, given.dtype, given.dims, given.strides
        if issubclass(kind, Argument):
            return self.descriptor(given.value)
        try:  # torch
            return given.data_ptr(), given.dtype, given.shape, given.stride(), given.device
        except (AttributeError, TypeError):
            return None


def _choose_device(context: GpuContext, options: CompileOptions) -> None:
    """Opens the context's device, or lets it compile for the architecture that the options name.

    Errors: DeviceError if there is no such device or architecture.
    """
    if options.target and not context.is_for(options.target):
        context.compile_for(options.target)
    _ = context.device


def _tuning(context: GpuContext) -> KernelTuning:
    """Returns the cache of kernels timed on a context's device."""
    if context.kernel_tuning is None:
        from .kernel_tuning import GpuTuning

        context.kernel_tuning = GpuTuning(context)
    return context.kernel_tuning


def _assembled(
    schedule: Schedule, emitter: GpuEmitter, options: CompileOptions, kept: Mapping[str, bytes] | None
) -> Runner:
    if emitter.context.device.kind == "null":
        from .offline import OfflineRunner

        return OfflineRunner(schedule, emitter, options, kept)
    from .runner import GpuRunner

    return GpuRunner(schedule, emitter, options, kept)
