"""Constants of cublasLt and hipBLASLt: one API with two sets of names and numbers.

cublasLt's are from the header of CUDA 13; hipBLASLt's from the declarations of its Python binding (HIP 7.15).  The AMD
column has not been run on AMD hardware.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from .loading import Source

__all__ = ["CUBLASLT", "HIPBLASLT", "OUTER_VECTORS", "SIGNATURES", "BlasTable"]

# by name without the vendor's prefix (cublasLt, hipblasLt): parameter types, see loading.LETTERS
SIGNATURES: Final[Mapping[str, str]] = {
    "Create": "p",
    "Destroy": "p",
    "MatmulDescCreate": "pii",
    "MatmulDescDestroy": "p",
    "MatmulDescSetAttribute": "pipz",
    "MatrixLayoutCreate": "piQQq",
    "MatrixLayoutDestroy": "p",
    "MatrixLayoutSetAttribute": "pipz",
    "MatmulPreferenceCreate": "p",
    "MatmulPreferenceDestroy": "p",
    "MatmulPreferenceSetAttribute": "pipz",
    "MatmulAlgoCheck": "pppppppp",
    "MatmulAlgoGetHeuristic": "ppppppp" + "i" + "pp",
    "Matmul": "p" * 14 + "zp",
}

DATA_TYPES: Final = {
    "float32": 0, "float64": 1, "float16": 2, "int8": 3, "int32": 10, "bfloat16": 14, "float8_e4m3fn": 28, "float8_e5m2": 29,
}  # fmt: skip


@dataclass(frozen=True)
class BlasTable:
    """One vendor's names and numbers.

    layout, desc, preference: attribute numbers; alignment: preference attributes of the operands' alignment, if any; compute: by
    mode (see GemmProblem.compute); epilogues: (bias, activation) -> number; algo_bytes: size of the opaque algorithm; statuses:
    descriptions, if the library has no function for them.
    """

    name: str
    prefix: str
    source: Source
    layout: Mapping[str, int]
    desc: Mapping[str, int]
    preference: Mapping[str, int]
    compute: Mapping[str, int]
    operation: tuple[int, int]  # not transposed, transposed
    epilogues: Mapping[tuple[bool, str], int]
    algo_bytes: int
    statuses: Mapping[int, str]
    data_types: Mapping[str, int]
    alignment: tuple[int, ...] = ()  # of A, B, C, D


# scale mode of both vendors: a float32 factor per row of the left operand and per column of the right one
OUTER_VECTORS: Final = 3
EPILOGUES: Final = {
    (False, ""): 1, (False, "relu"): 2, (True, ""): 4, (True, "relu"): 6, (False, "gelu_tanh"): 32, (True, "gelu_tanh"): 36,
}  # fmt: skip

CUDA_WHEELS: Final = ("nvidia/cu13/lib", "nvidia/cublas/lib", "nvidia/cu12/lib")
CUDA_ROOTS: Final = (("CUDA_HOME", "/usr/local/cuda"), ("CUDA_PATH", ""))
ROCM_ROOTS: Final = (("ROCM_PATH", "/opt/rocm"), ("ROCM_HOME", ""))

CUBLASLT: Final = BlasTable(
    name="cublaslt",
    prefix="cublasLt",
    source=Source(
        ("libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"), "MGX_CUBLASLT_LIBRARY", CUDA_WHEELS, CUDA_ROOTS
    ),
    layout=MappingProxyType({"batch_count": 5, "batch_stride": 6}),
    desc=MappingProxyType({
        "trans_a": 3, "trans_b": 4, "epilogue": 7, "bias_pointer": 8, "bias_type": 26,
        "a_scale_pointer": 17, "b_scale_pointer": 18, "a_scale_mode": 31, "b_scale_mode": 32,
    }),
    preference=MappingProxyType({"max_workspace": 1}),
    compute=MappingProxyType({"f16": 64, "f32": 68, "tf32": 77, "f64": 70, "i32": 72}),
    operation=(0, 1),
    epilogues=MappingProxyType(EPILOGUES),
    algo_bytes=64,
    statuses=MappingProxyType({
        1: "NOT_INITIALIZED", 3: "ALLOC_FAILED", 7: "INVALID_VALUE", 8: "ARCH_MISMATCH", 11: "MAPPING_ERROR",
        13: "EXECUTION_FAILED", 14: "INTERNAL_ERROR", 15: "NOT_SUPPORTED", 16: "LICENSE_ERROR",
    }),
    data_types=MappingProxyType(DATA_TYPES),
    alignment=(5, 6, 7, 8),
)  # fmt: skip

HIPBLASLT: Final = BlasTable(
    name="hipblaslt",
    prefix="hipblasLt",
    source=Source(
        ("libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so"), "MGX_HIPBLASLT_LIBRARY",
        ("_rocm_sdk_libraries*/lib",), ROCM_ROOTS, rocm="hipblaslt",
    ),
    layout=MappingProxyType({"batch_count": 0, "batch_stride": 1}),
    desc=MappingProxyType({
        "trans_a": 0, "trans_b": 1, "epilogue": 2, "bias_pointer": 3, "bias_type": 4,
        "a_scale_pointer": 5, "b_scale_pointer": 6, "a_scale_mode": 31, "b_scale_mode": 32,
    }),
    preference=MappingProxyType({"max_workspace": 1}),
    compute=MappingProxyType({"f16": 0, "f32": 2, "tf32": 6, "f64": 7, "i32": 9}),
    operation=(111, 112),
    epilogues=MappingProxyType(EPILOGUES | {(False, "sigmoid"): 1024, (False, "swish"): 65536, (True, "swish"): 65540}),
    algo_bytes=24,
    statuses=MappingProxyType({
        1: "NOT_INITIALIZED", 2: "ALLOC_FAILED", 3: "INVALID_VALUE", 4: "MAPPING_ERROR", 5: "EXECUTION_FAILED",
        6: "INTERNAL_ERROR", 7: "NOT_SUPPORTED", 8: "ARCH_MISMATCH", 9: "HANDLE_IS_NULLPTR", 10: "INVALID_ENUM",
        11: "UNKNOWN",
    }),
    data_types=MappingProxyType(DATA_TYPES | {"float8_e4m3fnuz": 1000, "float8_e5m2fnuz": 1001}),
)  # fmt: skip
