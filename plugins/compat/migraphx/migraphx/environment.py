"""MIGraphX's environment variables: those that take effect, and the equivalents of the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = [
    "COUNTERPARTS",
    "LOG_LEVEL",
    "PASSES",
    "READ",
    "SHOWN",
    "WITHOUT",
    "log_level",
    "options",
    "remarks",
    "shown",
]

TUNE: Final = {"exhaustive_tune": True}
# variables read at compile time, and the options that they set
READ: Final[dict[str, dict[str, Any]]] = {
    "MIGRAPHX_DISABLE_MIOPEN_FUSION": {"fusion_rules": {"convolution": False}},
    "MIGRAPHX_DISABLE_POINTWISE_FUSION": {"fusion_rules": {"pointwise": False}},
    "MIGRAPHX_DISABLE_REDUCE_FUSION": {"fusion_rules": {"reduce": False}},
    "MIGRAPHX_ENABLE_GEMM_TUNING": TUNE,
    "MIGRAPHX_ENABLE_HIP_GEMM_TUNING": TUNE,
    "MIGRAPHX_MLIR_TUNE_EXHAUSTIVE": TUNE,
    "MIGRAPHX_REWRITE_LRN": {"fusion_rules": {"pooling-from-lrn": True}},
    "MIGRAPHX_SKIP_BENCHMARKING": {"exhaustive_tune": False},
    "MIGRAPHX_VALIDATE_MATCHES": {"validate": True},
}
# variables that enable output, and the equivalent keys of `mgx_core.log.showing`
SHOWN: Final[dict[str, tuple[str, ...]]] = {
    "MIGRAPHX_TIME_PASSES": ("time",),
    "MIGRAPHX_TRACE_COMPILE": ("compile", "time"),
    "MIGRAPHX_TRACE_EVAL": ("run", "time"),
    "MIGRAPHX_TRACE_PASSES": ("compile",),
}
PASSES: Final = "MIGRAPHX_DISABLE_PASSES"  # comma-separated names
LOG_LEVEL: Final = "MIGRAPHX_LOG_LEVEL"  # read by the driver
LEVELS: Final = ("none", "error", "warn", "info", "debug", "trace")  # or 0 to 5
# passes that can be disabled individually, by MIGraphX's names; its other passes are rules of `simplify`, or do not exist here
ALONE: Final[dict[str, str]] = {
    "eliminate_common_subexpression": "merge-common",
    "fuse_attention": "fuse-attention",
    "fuse_horizontal": "join-gathers",
    "fuse_pointwise": "fuse-elementwise",
    "inline_module": "inline-branches",
    "optimize_module": "simplify",
    "propagate_constant": "fold-constants",
}
YES: Final = frozenset({"1", "enable", "enabled", "yes", "true"})

# variables whose effect is available in another way
COUNTERPARTS: Final[dict[str, str]] = {
    "MIGRAPHX_8BITS_QUANTIZATION_PARAMS": "quantize --report",
    "MIGRAPHX_DEBUG_MEMORY_COLORING": "read -O --memory",
    "MIGRAPHX_ENABLE_FULL_DYNAMIC": "always enabled: extents that parse options do not fix stay symbolic",
    "MIGRAPHX_ENABLE_LAYERNORM_FUSION": "always enabled: a normalization is one kernel on cpu and gpu",
    "MIGRAPHX_ENABLE_NHWC": "option use_nhwc; gpu and cpu always compute in NHWC",
    "MIGRAPHX_ENABLE_REWRITE_DOT": "convolutions with a single window are always converted to matrix products",
    "MIGRAPHX_GPU_DUMP_SRC": "MGX_DUMP_KERNELS=FOLDER",
    "MIGRAPHX_MLIR_TUNING_DB": "MGX_CACHE_DIR=FOLDER, which stores tuning results",
    "MIGRAPHX_PROBLEM_CACHE": "MGX_CACHE_DIR=FOLDER",
    "MIGRAPHX_TIME_MATCHERS": "compile with MGX_TIME=1: times of passes, how often rules fired",
    "MIGRAPHX_TRACE_FINALIZE": "MGX_TIME=1 shows for which shapes kernels are compiled, and the time",
    "MIGRAPHX_TRACE_HIPRTC": "MGX_DUMP_KERNELS=FOLDER",
    "MIGRAPHX_TRACE_MATCHES": "compile shows how often rules fired; read --why RULE shows why not",
    "MIGRAPHX_TRACE_MATCHES_FOR": "read --why RULE",
    "MIGRAPHX_TRACE_PROPAGATE_CONSTANT": "MGX_TRACE=compile shows the program after fold-constants",
    "MIGRAPHX_TRACE_QUANTIZATION": "quantize --report",
    "MIGRAPHX_TRACE_SCHEDULE": "read -O --memory",
    "MIGRAPHX_VERIFY_DUMP_DIFF": "verify --json",
    "MIGRAPHX_VERIFY_ENABLE_ALLCLOSE": "always enabled: verify also compares element by element",
}

# variables of components that mgx does not have: MIGraphX's kernel generators, their workarounds, individual passes
_OTHERS: Final = (
    "MIGRAPHX_BENCHMARKING_BUNDLE MIGRAPHX_BENCHMARKING_NRUNS MIGRAPHX_CK_DEBUG MIGRAPHX_COPY_LITERALS "
    "MIGRAPHX_DEBUG_SAVE_TEMP_DIR MIGRAPHX_DISABLE_DNNL_POST_OPS_WORKAROUND "
    "MIGRAPHX_DISABLE_FP16_INSTANCENORM_CONVERT MIGRAPHX_DISABLE_FP32_SOFTMAX MIGRAPHX_DISABLE_MLIR "
    "MIGRAPHX_DISABLE_MULTI_OUTPUT_FUSION MIGRAPHX_DISABLE_SCHEDULE_PASS MIGRAPHX_ENABLE_CK "
    "MIGRAPHX_ENABLE_CK_WORKAROUNDS MIGRAPHX_ENABLE_EXTRA_MLIR MIGRAPHX_ENABLE_MIOPEN_POOLING "
    "MIGRAPHX_ENABLE_MLIR_GEG_FUSION MIGRAPHX_ENABLE_MLIR_INPUT_FUSION MIGRAPHX_ENABLE_MLIR_REDUCE_FUSION "
    "MIGRAPHX_ENABLE_NULL_STREAM MIGRAPHX_FLASH_DECODING_ENABLED MIGRAPHX_FLASH_DECODING_MAX_SPLITS "
    "MIGRAPHX_FLASH_DECODING_MIN_CHUNK_SIZE MIGRAPHX_FLASH_DECODING_NUM_SPLITS MIGRAPHX_FLASH_DECODING_THRESHOLD "
    "MIGRAPHX_GPU_COMPILE_PARALLEL MIGRAPHX_GPU_DEBUG MIGRAPHX_GPU_DEBUG_SYM MIGRAPHX_GPU_DUMP_ASM "
    "MIGRAPHX_GPU_DUMP_BENCHMARK_MXR MIGRAPHX_GPU_HIP_FLAGS MIGRAPHX_GPU_OPTIMIZE MIGRAPHX_LOG_CK_GEMM "
    "MIGRAPHX_MLIR_DUMP MIGRAPHX_MLIR_DUMP_TO_MXR MIGRAPHX_MLIR_ENABLE_SPLITK MIGRAPHX_MLIR_TUNE_LIMIT "
    "MIGRAPHX_MLIR_TUNING_CFG MIGRAPHX_MLIR_USE_SPECIFIC_OPS MIGRAPHX_NSTREAMS MIGRAPHX_SET_GEMM_PROVIDER "
    "MIGRAPHX_SPLIT_REDUCE_SIZE MIGRAPHX_TRACE_BENCHMARKING MIGRAPHX_TRACE_CMD_EXECUTE "
    "MIGRAPHX_TRACE_ELIMINATE_CONTIGUOUS MIGRAPHX_TRACE_MLIR MIGRAPHX_TRACE_NARY MIGRAPHX_TRACE_ONNX_PARSER "
    "MIGRAPHX_TUNE_CK MIGRAPHX_USE_FAST_SOFTMAX"
)
WITHOUT: Final = frozenset(_OTHERS.split())


def options(environment: Mapping[str, str]) -> dict[str, Any]:
    """Returns the compile options set by environment variables."""
    found: dict[str, Any] = {}
    rules: dict[str, bool] = {}
    for name in READ:
        if environment.get(name, "").lower() in YES:
            found |= READ[name]
            rules |= READ[name].get("fusion_rules", {})
    left_out = tuple(ALONE[n] for n in _passes(environment) if n in ALONE)
    return found | ({"fusion_rules": rules} if rules else {}) | ({"disable_passes": left_out} if left_out else {})


def shown(environment: Mapping[str, str]) -> set[str]:
    """Returns the output enabled by environment variables, as keys of `mgx_core.log.showing`."""
    return {word for name, words in SHOWN.items() if environment.get(name, "") not in ("", "0") for word in words}


def log_level(environment: Mapping[str, str]) -> str | None:
    """Returns the log level set by an environment variable; None if it is unset or invalid."""
    said = environment.get(LOG_LEVEL, "").lower()
    return said if said in LEVELS or said in map(str, range(len(LEVELS))) else None


def _passes(environment: Mapping[str, str]) -> list[str]:
    return [name.strip() for name in environment.get(PASSES, "").split(",") if name.strip()]


def remarks(environment: Mapping[str, str]) -> Iterator[str]:
    """Yields a line for each of MIGraphX's variables that is set."""
    for name in sorted(n for n in environment if n.startswith("MIGRAPHX_")):
        if name in READ or name in SHOWN or (name == LOG_LEVEL and log_level(environment)):
            yield f"{name}={environment[name]}"
        elif name == LOG_LEVEL:
            yield f"{name} is one of {', '.join(LEVELS)} or 0 to 5, got {environment[name]!r}; it is ignored"
        elif name == PASSES:
            yield f"{name}={environment[name]}"
            others = ", ".join(n for n in _passes(environment) if n not in ALONE)
            if others:
                yield (
                    f"{name}: {others} cannot be disabled individually; "
                    "`mgx-driver rules` lists the names for --rule and --disable-pass"
                )
        elif name in COUNTERPARTS:
            yield f"{name} is set, but not read by mgx; use instead: {COUNTERPARTS[name]}"
        elif name in WITHOUT:
            yield f"{name} is set, but has no effect in mgx, which has no such component"
        else:
            yield f"{name} is set, but MIGraphX 2.16 has no such variable"
