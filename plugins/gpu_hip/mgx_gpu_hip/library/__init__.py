"""Plans that call vendor libraries: products, convolutions and attention of cublasLt, cuDNN, hipBLASLt and MIOpen.

A problem (GemmProblem, ConvProblem, AttentionProblem) describes an operation; `Libraries` returns launchable plans for it, which
can be captured in a graph, or declines.  Tested: cublasLt and cuDNN on an NVIDIA H200.  hipBLASLt and MIOpen are written from
their public declarations and have never run on AMD hardware.
"""

from __future__ import annotations

from .attention import AttentionProblem
from .convolution import ConvProblem
from .epilogue import Activation, Epilogue
from .gemm_problem import GemmProblem, Matrix
from .vendor import Libraries, LibraryPlan

__all__ = [
    "Activation", "AttentionProblem", "ConvProblem", "Epilogue", "GemmProblem", "Libraries", "LibraryPlan", "Matrix",
]  # fmt: skip
