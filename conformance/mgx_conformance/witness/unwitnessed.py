"""Ops that no witness covers, and why."""

from __future__ import annotations

from typing import Final

__all__ = ["UNWITNESSED"]

_GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "a group that fusion makes: it means what its module means, and the ops in that are witnessed": (
        "pointwise", "fused_reduce", "group",
    ),
    "places or chooses modules; the standard knows no such operator": ("run_on_target", "select_module"),
    "stands for memory, for a node that was not read or a branch that cannot run, and computes nothing": (
        "allocate", "unknown", "unreachable",
    ),
    "draws at random; judged by its distribution": ("random_normal", "random_uniform", "random_seed"),
    "the standard has no such operator; held to be the adjoint of col2im by a test of the core": ("im2col",),
    "packing and unpacking are each other's inverse, held so by tests of the core; unpack_int4 is witnessed": (
        "pack_int4", "pack_fp4", "unpack_fp4",
    ),
    "the standard has no factorizations of matrices: tests of the core multiply the factors, those of mgx-torch compare torch": (
        "cholesky", "eig", "eigh", "lu", "matrix_exp", "pivot_order", "qr", "solve_triangular", "svd",
    ),
    "a part of SVM classifiers, whose probabilities are witnessed": ("pairwise_coupling",),
    "the standard has no such function: tests of the core compare it with closed forms, those of mgx-torch with torch": (
        "igamma",
    ),
    "a view of overlapping windows, which a rule finds in gathers: tests of the core compare it with numpy's": (
        "sliding_windows",
    ),
    "the standard writes it as a loop: tests of the core compare it with slices, those of mgx-onnx with such loops": (
        "reduce_slices",
    ),
    "checks a condition when a program runs, and returns its operand": ("require",),
    "a part of the recurrent layers, which are witnessed as wholes with sequence_lens": (
        "rnn_var_sl_last_output", "rnn_var_sl_shift_output", "rnn_var_sl_shift_sequence",
    ),
}  # fmt: skip

UNWITNESSED: Final[dict[str, str]] = {name: reason for reason, names in _GROUPS.items() for name in names}
