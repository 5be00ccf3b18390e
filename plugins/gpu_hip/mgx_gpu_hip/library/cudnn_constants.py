"""Constants of cuDNN's backend API (from the headers of 9.19), as far as graphs of convolutions and attention use them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from .blas_constants import CUBLASLT, CUDA_ROOTS, CUDA_WHEELS
from .loading import Source

__all__ = ["CUDNN", "DATA_TYPES", "POINTWISE", "SIGNATURES", "Attr", "Behavior", "Heuristic", "Kind", "Note", "Type"]

NVRTC: Final = Source(
    ("libnvrtc.so.13", "libnvrtc.so.12"), "MGX_NVRTC_LIBRARY", (*CUDA_WHEELS, "nvidia/cuda_nvrtc/lib"), CUDA_ROOTS
)
CUDNN: Final = Source(
    ("libcudnn.so.9",), "MGX_CUDNN_LIBRARY", ("nvidia/cudnn/lib",), (("CUDNN_HOME", ""), *CUDA_ROOTS),
    needs=(CUBLASLT.source, NVRTC),
)  # fmt: skip

SIGNATURES: Final[Mapping[str, str]] = MappingProxyType({
    "cudnnCreate": "p",
    "cudnnDestroy": "p",
    "cudnnSetStream": "pp",
    "cudnnBackendCreateDescriptor": "ip",
    "cudnnBackendDestroyDescriptor": "p",
    "cudnnBackendFinalize": "p",
    "cudnnBackendSetAttribute": "piiqp",
    "cudnnBackendGetAttribute": "piiqpp",
    "cudnnBackendExecute": "ppp",
})  # fmt: skip


class Kind(IntEnum):
    """Descriptor types."""

    POINTWISE = 0
    CONVOLUTION = 1
    ENGINE = 2
    ENGINE_CONFIG = 3
    ENGINE_HEURISTIC = 4
    PLAN = 5
    OPERATION_CONVOLUTION_FORWARD = 10
    OPERATION_POINTWISE = 13
    OPERATION_GRAPH = 15
    VARIANT_PACK = 16
    TENSOR = 17
    MATMUL = 18
    OPERATION_MATMUL = 19
    REDUCTION = 21
    OPERATION_REDUCTION = 22
    DEVICE_PROPERTIES = 38


class Type(IntEnum):
    """Attribute value types."""

    HANDLE = 0
    DATA_TYPE = 1
    BOOLEAN = 2
    INT64 = 3
    FLOAT = 4
    DOUBLE = 5
    VOID_PTR = 6
    CONVOLUTION_MODE = 7
    HEUR_MODE = 8
    NUMERICAL_NOTE = 11
    POINTWISE_MODE = 14
    DESCRIPTOR = 15
    REDUCTION_OPERATOR = 18
    BEHAVIOR_NOTE = 19
    INT32 = 23
    CHAR = 24


class Attr(IntEnum):
    """Descriptor attributes."""

    POINTWISE_MODE = 0
    POINTWISE_MATH_PREC = 1
    POINTWISE_RELU_LOWER_CLIP = 3
    POINTWISE_RELU_UPPER_CLIP = 4
    POINTWISE_RELU_LOWER_CLIP_SLOPE = 5
    POINTWISE_ELU_ALPHA = 6
    POINTWISE_SOFTPLUS_BETA = 7
    POINTWISE_SWISH_BETA = 8
    POINTWISE_AXIS = 9
    CONVOLUTION_COMP_TYPE = 100
    CONVOLUTION_CONV_MODE = 101
    CONVOLUTION_DILATIONS = 102
    CONVOLUTION_FILTER_STRIDES = 103
    CONVOLUTION_POST_PADDINGS = 104
    CONVOLUTION_PRE_PADDINGS = 105
    CONVOLUTION_SPATIAL_DIMS = 106
    HEUR_MODE = 200
    HEUR_OPERATION_GRAPH = 201
    HEUR_RESULTS = 202
    HEUR_DEVICE_PROPERTIES = 204
    CONFIG_ENGINE = 300
    PLAN_HANDLE = 400
    PLAN_ENGINE_CONFIG = 401
    PLAN_WORKSPACE_SIZE = 402
    PLAN_JSON = 405
    PLAN_DEVICE_PROPERTIES = 407
    CONVOLUTION_FORWARD_ALPHA = 700
    CONVOLUTION_FORWARD_BETA = 701
    CONVOLUTION_FORWARD_DESC = 702
    CONVOLUTION_FORWARD_W = 703
    CONVOLUTION_FORWARD_X = 704
    CONVOLUTION_FORWARD_Y = 705
    OPERATION_POINTWISE_DESC = 750
    OPERATION_POINTWISE_X = 751
    OPERATION_POINTWISE_B = 752
    OPERATION_POINTWISE_Y = 753
    OPERATION_POINTWISE_T = 758
    GRAPH_HANDLE = 800
    GRAPH_OPS = 801
    TENSOR_ALIGNMENT = 900
    TENSOR_DATA_TYPE = 901
    TENSOR_DIMENSIONS = 902
    TENSOR_STRIDES = 903
    TENSOR_ID = 906
    TENSOR_IS_VIRTUAL = 907
    TENSOR_IS_BY_VALUE = 908
    PACK_IDS = 1000
    PACK_POINTERS = 1001
    PACK_WORKSPACE = 1003
    ENGINE_NUMERICAL_NOTE = 1303
    ENGINE_BEHAVIOR_NOTE = 1305
    MATMUL_COMP_TYPE = 1500
    OPERATION_MATMUL_A = 1520
    OPERATION_MATMUL_B = 1521
    OPERATION_MATMUL_C = 1522
    OPERATION_MATMUL_DESC = 1523
    REDUCTION_OPERATOR = 1600
    REDUCTION_COMP_TYPE = 1601
    OPERATION_REDUCTION_X = 1610
    OPERATION_REDUCTION_Y = 1611
    OPERATION_REDUCTION_DESC = 1612
    DEVICE_HANDLE = 2701
    DEVICE_JSON = 2702


class Heuristic(IntEnum):
    """Heuristic modes: A by a decision tree, B by a model, FALLBACK any engine that works."""

    B = 1
    FALLBACK = 2
    A = 3


class Note(IntEnum):
    """Numerical notes of engines."""

    TENSOR_CORE = 0
    DOWN_CONVERT_INPUTS = 1
    REDUCED_PRECISION_REDUCTION = 2
    WINOGRAD = 5
    WINOGRAD_6X6 = 7
    WINOGRAD_13X13 = 8


class Behavior(IntEnum):
    """Behavior notes of engines."""

    RUNTIME_COMPILATION = 0


CROSS_CORRELATION: Final = 1

DATA_TYPES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "float32": 0,
        "float64": 1,
        "float16": 2,
        "int8": 3,
        "int32": 4,
        "uint8": 6,
        "bfloat16": 9,
        "int64": 10,
        "bool": 11,
        "float8_e4m3fn": 12,
        "float8_e5m2": 13,
    }
)

POINTWISE: Final[Mapping[str, int]] = MappingProxyType({
    "add": 0, "mul": 1, "min": 2, "max": 3, "div": 6, "sub": 9, "exp": 13, "log": 15, "identity": 21,
    "relu": 100, "tanh": 101, "sigmoid": 102, "elu": 103, "gelu_erf": 104, "softplus": 105, "swish": 106, "gelu_tanh": 107,
    "greater_or_equal": 303, "less": 304, "index": 501, "select": 601,
})  # fmt: skip

REDUCTION: Final[Mapping[str, int]] = MappingProxyType({"add": 0, "max": 3})

STATUSES: Final[Mapping[int, str]] = MappingProxyType({
    1001: "NOT_INITIALIZED", 1002: "SUBLIBRARY_VERSION_MISMATCH", 1008: "SUBLIBRARY_LOADING_FAILED", 2000: "BAD_PARAM",
    3000: "NOT_SUPPORTED", 4000: "INTERNAL_ERROR", 5000: "EXECUTION_FAILED",
})  # fmt: skip
