"""Matrix products by cublasLt or hipBLASLt: plans that launch a problem."""

from __future__ import annotations

import copy
import ctypes
import threading
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from mgx_core.errors import DeviceError, No, ParameterError

from .blas_constants import OUTER_VECTORS, SIGNATURES, BlasTable
from .epilogue import split, words
from .gemm_problem import GemmProblem, Matrix
from .loading import Api, find, out

__all__ = ["Blas", "GemmPlan"]

PLACEHOLDER: Final = 256  # an aligned address
WORKSPACE: Final = 32 << 20  # NVIDIA's recommendation for Hopper


class Blas:
    """A vendor's BLAS library on the current device.

    Errors: DeviceError if the library is not found or fails to create a handle.
    """

    def __init__(self, table: BlasTable, library: Any = None) -> None:
        self.table = table
        names = {table.prefix + name: letters for name, letters in SIGNATURES.items()}
        found = find(table.source) if library is None else library
        self.api = Api(found, names, lambda status: table.statuses.get(status, "unknown status"))
        self.handle, pointer = out()
        self.call("Create", pointer)
        self.version = self._version(found)

    def _version(self, library: Any) -> str:
        name = self.table.prefix + "GetVersion"
        function = getattr(library, name, None)
        if function is None:
            return f"{self.table.name} ?"
        if self.table.name == "cublaslt":
            if isinstance(library, ctypes.CDLL):
                function.restype = ctypes.c_size_t
            return f"{self.table.name} {function()}"
        number, pointer = out(ctypes.c_int)
        function(self.handle, pointer)
        return f"{self.table.name} {number.value}"

    def call(self, name: str, *args: Any) -> None:
        self.api.call(self.table.prefix + name, *args)

    def close(self) -> None:
        """Destroys the handle; plans built with it must not be launched afterwards."""
        if self.handle:
            self.call("Destroy", self.handle)
            self.handle = None

    def plan(self, problem: GemmProblem, choice: Mapping[str, Any] | None = None) -> GemmPlan | No:
        """Returns the saved plan if it is from this library, else the library's first choice."""
        if choice is not None and choice.get("version") == self.version:
            descriptors = self._descriptors(problem.folded)
            if isinstance(descriptors, No):
                return descriptors
            return GemmPlan(self, problem, descriptors, bytes.fromhex(choice["algorithm"]), int(choice["workspace"]))
        plans = self.plans(problem, 1)
        return plans if isinstance(plans, No) else plans[0]

    def plans(self, problem: GemmProblem, count: int = 8) -> list[GemmPlan] | No:
        """Returns at most `count` plans, the library's first choice first."""
        descriptors = self._descriptors(problem.folded)
        if isinstance(descriptors, No):
            return descriptors
        found = self._heuristics(problem.folded, descriptors, count)
        if isinstance(found, No):
            return found
        return [GemmPlan(self, problem, descriptors, algorithm, size) for algorithm, size in found]

    def adapted(self, plan: GemmPlan, problem: GemmProblem) -> GemmPlan | None:
        """Returns a plan with the algorithm of a similar problem's; None if the library cannot tell that this is possible.

        problem: with other extents or strides.
        """
        check = self.table.prefix + "MatmulAlgoCheck"
        if check not in self.api:
            return None
        x = plan.descriptors.adapted(problem.folded)
        result, pointer = out(_result_type(self.table.algo_bytes))
        algorithm = ctypes.create_string_buffer(plan.algorithm, len(plan.algorithm))
        if self.api.status(check, self.handle, x.desc, x.a, x.b, x.c, x.d, algorithm, pointer):
            return None
        if result.state or result.workspace > WORKSPACE:
            return None
        return GemmPlan(self, problem, x, plan.algorithm, int(result.workspace))

    def _descriptors(self, p: GemmProblem) -> Descriptors | No:
        table = self.table
        parts = split(p.epilogue)
        if parts is None:
            return No(f"{table.name} supports one activation, after bias and residual; got {words(p.epilogue)}")
        bias, _, activation = parts
        word = "" if activation is None else activation.kind
        if activation is not None and str(activation) != activation.kind:
            return No(f"{table.name} has no {activation}")
        epilogue = table.epilogues.get((bias, word))
        if epilogue is None:
            return No(f"{table.name} has no epilogue {words(p.epilogue)}")
        for matrix in (p.a, p.b, p.d, p.residual):
            if matrix is not None and matrix.dtype.name not in table.data_types:
                return No(f"{table.name} has no {matrix.dtype}")
        if p.n % 2 and p.d.ld != p.n and p.d.dtype.size < 4:
            # 4096x50257x768 into rows of 50264 left NaN on an H200, for each of four algorithms of cublasLt 13
            return No(f"{table.name}: padded rows of odd length give wrong results")
        if p.compute not in table.compute:
            return No(f"{table.name} has no compute mode {p.compute}")
        return Descriptors(self, p, epilogue, bias)

    def _heuristics(self, p: GemmProblem, x: Descriptors, count: int) -> list[tuple[bytes, int]] | No:
        table = self.table
        preference, pointer = out()
        self.call("MatmulPreferenceCreate", pointer)
        try:

            def set_to(number: int, kind: Any, value: int) -> None:
                where = ctypes.pointer(kind(value))
                self.call("MatmulPreferenceSetAttribute", preference, number, where, ctypes.sizeof(kind))

            set_to(table.preference["max_workspace"], ctypes.c_uint64, WORKSPACE)
            operands = (p.b, p.a, p.residual or p.d, p.d)
            for number, matrix in zip(table.alignment, operands, strict=False):
                set_to(number, ctypes.c_uint32, matrix.align)

            results = (_result_type(table.algo_bytes) * count)()
            found, pointer = out(ctypes.c_int)
            status = self.api.status(
                table.prefix + "MatmulAlgoGetHeuristic",
                self.handle, x.desc, x.a, x.b, x.c, x.d, preference, count, results, pointer,
            )  # fmt: skip
        finally:
            self.call("MatmulPreferenceDestroy", preference)
        good = [(bytes(r.algorithm), int(r.workspace)) for r in results[: found.value] if r.state == 0]
        if status or not good:
            text = f": {self.api.describe(status)} ({status})" if status else ""
            return No(f"{table.name} has no algorithm for {p}{text}")
        return good


@cache
def _result_type(algo_bytes: int) -> Any:
    """Returns the type of the heuristic's results."""

    class Result(ctypes.Structure):
        _fields_ = [
            ("algorithm", ctypes.c_uint8 * algo_bytes),
            ("workspace", ctypes.c_size_t),
            ("state", ctypes.c_int),
            ("waves", ctypes.c_float),
            ("reserved", ctypes.c_int * 4),
        ]

    return Result


class Descriptors:
    """The vendor's descriptors of one problem, passed transposed: a and b are exchanged."""

    def __init__(self, blas: Blas, p: GemmProblem, epilogue: int, bias: bool) -> None:
        table = blas.table
        self.blas = blas
        self.owner: Descriptors | None = None  # of the description of the operation, which others share
        self.lock = threading.Lock()
        self.addresses: dict[str, int] = {}
        self._address = ctypes.c_uint64()  # what `point` passes
        self._pointer = ctypes.pointer(self._address)
        self.desc: Any = None
        self.layouts: list[Any] = []
        wide = p.compute == "f64"
        scale = {"f16": 2, "f64": 1, "i32": 10}.get(p.compute, 0)
        kind: Any = {"f16": ctypes.c_uint16, "f64": ctypes.c_double, "i32": ctypes.c_int32}.get(
            p.compute, ctypes.c_float
        )
        self.alpha = kind(
            _half(p.alpha) if p.compute == "f16" else p.alpha if wide or kind is ctypes.c_float else int(p.alpha)
        )
        one = _half(1.0) if p.compute == "f16" else 1
        self.beta = kind(one if p.residual is not None else 0)
        self.scalars = (ctypes.pointer(self.alpha), ctypes.pointer(self.beta))
        desc, pointer = out()
        blas.call("MatmulDescCreate", pointer, table.compute[p.compute], scale)
        self.desc = desc
        self._set("trans_a", ctypes.c_int32, table.operation[p.b.transposed])
        self._set("trans_b", ctypes.c_int32, table.operation[p.a.transposed])
        self._set("epilogue", ctypes.c_uint32, epilogue)
        if bias:
            self._set("bias_type", ctypes.c_int32, table.data_types[(p.bias_dtype or p.d.dtype).name])
        if p.scaled:
            for word in ("a_scale", "b_scale"):
                self._set(f"{word}_mode", ctypes.c_int32, OUTER_VECTORS)
                self.point(f"{word}_pointer", PLACEHOLDER)  # the search refuses vectors without an address
        self._lay_out(p)

    def adapted(self, p: GemmProblem) -> Descriptors:
        """Returns descriptors for other extents and strides, which share the description of the operation."""
        made = copy.copy(self)
        made.owner, made.layouts = self, []
        made._lay_out(p)
        return made

    def _lay_out(self, p: GemmProblem) -> None:
        self.a = self._layout(p.b, p.k, p.n, p.batch)
        self.b = self._layout(p.a, p.m, p.k, p.batch)
        self.d = self._layout(p.d, p.m, p.n, p.batch)
        self.c = self.d if p.residual is None else self._layout(p.residual, p.m, p.n, p.batch)

    def _set(self, word: str, kind: Any, value: int) -> None:
        self.blas.call(
            "MatmulDescSetAttribute",
            self.desc, self.blas.table.desc[word], ctypes.pointer(kind(value)), ctypes.sizeof(kind),
        )  # fmt: skip

    def _layout(self, x: Matrix, rows: int, columns: int, batch: int) -> Any:
        if x.transposed:
            rows, columns = columns, rows
        blas = self.blas
        layout, pointer = out()
        # the vendor's matrices are column-major: a row-major [rows, columns] is a column-major [columns, rows]
        blas.call("MatrixLayoutCreate", pointer, blas.table.data_types[x.dtype.name], columns, rows, x.ld)
        self.layouts.append(layout)
        if batch > 1:
            for word, kind, value in (
                ("batch_count", ctypes.c_int32, batch), ("batch_stride", ctypes.c_int64, x.batch_stride)
            ):  # fmt: skip
                blas.call(
                    "MatrixLayoutSetAttribute",
                    layout, blas.table.layout[word], ctypes.pointer(kind(value)), ctypes.sizeof(kind),
                )  # fmt: skip
        return layout

    def point(self, word: str, address: int) -> None:
        """Sets the address of a vector of the epilogue."""
        if address != self.addresses.get(word):
            self._address.value = address
            self.blas.call("MatmulDescSetAttribute", self.desc, self.blas.table.desc[word], self._pointer, 8)
            self.addresses[word] = address

    def __del__(self) -> None:
        try:
            for layout in self.layouts:
                self.blas.call("MatrixLayoutDestroy", layout)
            if self.desc is not None and self.owner is None:
                self.blas.call("MatmulDescDestroy", self.desc)
        except (DeviceError, TypeError, AttributeError):  # at exit the library may have been unloaded first
            pass


class GemmPlan:
    """One algorithm for one problem.

    workspace: bytes required at launch (0: none); choice: JSON-able, restores the plan without a search (Blas.plan).
    """

    def __init__(
        self, blas: Blas, problem: GemmProblem, descriptors: Descriptors, algorithm: bytes, workspace: int
    ) -> None:
        self.blas = blas
        self.problem = problem
        self.workspace = workspace
        self.algorithm = algorithm
        self.descriptors = descriptors
        self._algorithm = ctypes.create_string_buffer(algorithm, len(algorithm))
        self._function = blas.api.functions[blas.table.prefix + "Matmul"]
        self._biased = "bias" in problem.epilogue

    @property
    def name(self) -> str:
        return f"{self.blas.table.name} gemm {self.problem}"

    @property
    def choice(self) -> dict[str, Any]:
        return {
            "library": self.blas.table.name,
            "version": self.blas.version,
            "algorithm": self.algorithm.hex(),
            "workspace": self.workspace,
        }

    def launch(
        self,
        stream: int,
        a: int,
        b: int,
        d: int,
        *,
        bias: int | None = None,
        residual: int | None = None,
        a_scale: int | None = None,
        b_scale: int | None = None,
        workspace: int | None = None,
    ) -> None:
        """Enqueues on a stream; all operands are device addresses.  May be captured in a graph.

        Errors: DeviceError from the library; ParameterError if an address that the problem requires is missing.
        """
        if (bias is None) == self._biased or (residual is None) == (self.problem.residual is not None):
            raise ParameterError(f"{self.name}: bias and residual must be given if and only if the epilogue has them")
        if (a_scale is not None, b_scale is not None) != (self.problem.scaled, self.problem.scaled):
            raise ParameterError(f"{self.name}: factors must be given if and only if the problem is scaled")
        if workspace is None and self.workspace:
            raise ParameterError(f"{self.name} requires a workspace of {self.workspace} bytes")
        x = self.descriptors
        alpha, beta = x.scalars
        with x.lock:
            # a and b are exchanged
            for word, address in (("bias_pointer", bias), ("a_scale_pointer", b_scale), ("b_scale_pointer", a_scale)):
                if address is not None:
                    x.point(word, address)
            status = self._function(
                self.blas.handle, x.desc, alpha, b, x.a, a, x.b, beta, d if residual is None else residual, x.c, d, x.d,
                self._algorithm, workspace, self.workspace, stream,
            )  # fmt: skip
        if status:
            raise self.blas.api.error(f"{self.blas.table.prefix}Matmul ({self.name})", status)

    def __repr__(self) -> str:
        return self.name


def _half(value: float) -> int:
    import numpy as np

    return int(np.float16(value).view(np.uint16))
