"""The cpu target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mgx_core import Target
from mgx_core.hashing import sha256

from .context import CpuContext

if TYPE_CHECKING:
    from mgx_core import CompileOptions, Kernels, Pass, Runner
    from mgx_core.targets.lowered import Lowered
    from mgx_core.targets.open_program import OpenProgram
    from mgx_core.targets.saved import SavedInstance
    from mgx_core.targets.schedule import Schedule
    from mgx_core.types.dtype import DType
    from mgx_core.types.shape import AnyShape

    from .emitter import CpuEmitter

__all__ = ["CpuTarget"]


class CpuTarget(Target):
    """The cpu target: oneDNN for convolutions, products and pooling, compiled loops for all else, a native executor."""

    name = "cpu"
    channels_last = True
    opens_programs = True

    def __init__(self, threads: int = 0) -> None:
        self.threads = threads

    def get_context(self) -> CpuContext:
        return CpuContext(self, self.threads)

    def kernels(self, context: Any) -> Kernels:
        from .plans import PLANS

        return PLANS

    def passes(self, stage: str, context: Any, options: CompileOptions) -> Sequence[Pass]:
        if stage == "normalize" and options.optimize and options.fast_math and options.aggressiveness:
            from .unsigned_bytes import UnsignedBytes
            from .widen_narrow_floats import WidenNarrowFloats

            return (WidenNarrowFloats(self._not_multiplied()), UnsignedBytes())
        if stage == "legalize":
            from mgx_core.ops.linear_attention import LinearAttention
            from mgx_core.ops.norm import NORMS
            from mgx_core.ops.quantized import QUANTIZERS
            from mgx_core.ops.sample import AffineGrid
            from mgx_core.passes.expand_composites import ExpandComposites
            from mgx_core.passes.fold_constants import FoldConstants
            from mgx_core.passes.merge_common import MergeCommon
            from mgx_core.passes.rewrite import Rewrite
            from mgx_core.passes.step_linear_attention import StepLinearAttention
            from mgx_core.passes.tabulate_bytes import TabulateBytes
            from mgx_core.rules.converts import CONVERTS
            from mgx_core.rules.engine import EXACT

            from .byte_volumes import BYTE_VOLUMES
            from .few_channel_windows import FEW_CHANNEL_WINDOWS
            from .few_transposed_channels import FEW_TRANSPOSED
            from .native_library import native
            from .vector_products import VECTOR_PRODUCTS
            from .whole_windows import WHOLE_WINDOWS
            from .zero_points import ZERO_POINTS

            rewritten = [FEW_TRANSPOSED, FEW_CHANNEL_WINDOWS, VECTOR_PRODUCTS]
            if not options.fast_math:
                rewritten = [rules.within(EXACT) for rules in rewritten]
            return (
                *([TabulateBytes()] if options.optimize else []),
                *([Rewrite(ZERO_POINTS)] if native().onednn_sums_bytes() else []),
                *(
                    [*map(Rewrite, (WHOLE_WINDOWS, BYTE_VOLUMES, *rewritten)), MergeCommon()]
                    if options.optimize
                    else []
                ),
                StepLinearAttention(),
                ExpandComposites(NORMS | QUANTIZERS | {AffineGrid, LinearAttention}),
                Rewrite(CONVERTS),
                FoldConstants(widened=True),
            )
        if stage == "fuse" and options.optimize:
            from .absorb_views import AbsorbViews

            return (AbsorbViews(),)
        return ()

    @staticmethod
    def _not_multiplied() -> frozenset[DType]:
        """Returns the narrow float types that cannot be multiplied natively on this processor."""
        from mgx_core import dtype as dt

        from .native_library import native

        own = "avx512_bf16" in native().cpu_features()
        return frozenset({dt.float16}) if own else frozenset({dt.float16, dt.bfloat16})

    def emitter(self, kernels: Kernels, context: Any, options: CompileOptions) -> CpuEmitter:
        from .emitter import CpuEmitter
        from .native_library import native

        tuning = context.tuning if options.exhaustive_tune else None
        threads = options.threads or context.threads
        native().set_threads(threads or native().available_threads())
        return CpuEmitter(kernels, context, options.memory_reuse, tuning, threads, options.fast_math, options.validate)

    def assemble(self, schedule: Schedule, emitter: CpuEmitter, context: Any, options: CompileOptions) -> Runner:
        from .runner import CpuRunner

        return CpuRunner(schedule, emitter)

    def open_program(
        self,
        parameters: Mapping[str, AnyShape],
        known: Mapping[str, int],
        changing: frozenset[str],
        lower: Callable[[Mapping[str, AnyShape]], Lowered],
    ) -> OpenProgram | None:
        from .open_program import open_program

        return open_program(parameters, known, changing, lower)

    def machine(self, context: Any) -> str:
        """Returns processor, oneDNN version and native build, which identify compiled code."""
        from mgx_core import __version__

        from .native_library import native
        from .program_codec import FORMAT

        _native = native()
        library = ".".join(map(str, _native.dnnl_version()))
        processor = sha256(_native.cpu_key().encode()).hexdigest()[:16]
        build = _native.build_id().hex()[:16] or "unknown"
        return (
            f"{_native.cpu_model()} ({processor}), oneDNN {library}, "
            f"mgx {__version__} (cpu code {FORMAT}, build {build})"
        )

    def settings(self, context: Any) -> str:
        """Returns the settings that affect compiled code: threads and environment variables."""
        from mgx_core.settings import compilation_variables

        from .native_library import native

        return repr(
            (context.threads, native().available_threads(), compilation_variables("ONEDNN_", "DNNL_", "MGX_", "CC"))
        )

    def ceilings(self, context: Any) -> dict[str, float]:
        """Returns the machine's measured peak operations and bytes per second."""
        from .native_library import native
        from .roofline import ceilings

        return ceilings(self.machine(context), self.threads or native().available_threads())

    def restored(self, saved: SavedInstance, lowered: Lowered, context: Any, options: CompileOptions) -> Runner:
        from .native_library import native

        _native = native()
        if options.exhaustive_tune and saved.code["tuning"]:
            context.tuning.learn(saved.code["tuning"])
        _native.set_threads(options.threads or context.threads or _native.available_threads())
        if saved.code["outputs"] is not None:
            from .saved_runner import RestoredRunner

            return RestoredRunner(saved, lambda: lowered.module)
        from .emitter import CpuEmitter
        from .saved_segments import RestoredSegments

        emitter = lowered.emitter
        assert isinstance(emitter, CpuEmitter)
        return RestoredSegments(saved, lowered.module, emitter)
