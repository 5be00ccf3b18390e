"""A common interface to a vendor's libraries: plans of products, convolutions and attention."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from mgx_core.errors import DeviceError, No, UnsupportedError

from . import cudnn_problems
from .attention import AttentionProblem
from .blas_constants import CUBLASLT, HIPBLASLT, BlasTable
from .convolution import ConvProblem
from .cudnn import Cudnn
from .cudnn_narrow import NarrowProblem
from .gemm import Blas
from .gemm_problem import GemmProblem
from .miopen import MIOpen

__all__ = ["Libraries", "LibraryPlan"]

Choice = Mapping[str, Any]
REFUSED: Final[Mapping[type, str]] = {  # problems AMD's libraries do not support
    NarrowProblem: "no AMD library applies pointwise ops to the sums of 8-bit products",
    AttentionProblem: "no AMD library has a stable C interface for attention",
}


class LibraryPlan(Protocol):
    """A launchable library call.

    workspace: bytes of device memory per launch; choice: JSON-able, restores the plan without a search.  `launch` takes the
    stream, the operands' device addresses by name (product: a b d bias residual a_scale b_scale; convolution: x w y bias
    residual; attention: q k v o bias) and the workspace; it may be captured in a graph.
    """

    @property
    def name(self) -> str: ...

    @property
    def workspace(self) -> int: ...

    @property
    def choice(self) -> dict[str, Any]: ...

    @property
    def launch(self) -> Callable[..., None]: ...


class Libraries:
    """The libraries of a vendor, each loaded on first use.

    vendor: `cuda` or `hip`; device: a description of an NVIDIA GPU (Cudnn.describe_device) to plan for without one, which covers
    convolutions, attention and products that cuDNN supports.  Requests for a missing library are declined with that reason.
    Errors: UnsupportedError for another vendor.
    """

    def __init__(
        self, vendor: str, device: Mapping[str, Any] | None = None, loaded: Mapping[str, Any] | None = None
    ) -> None:
        if vendor not in ("cuda", "hip"):
            raise UnsupportedError(f"vendor libraries exist for cuda and hip, got {vendor!r}")
        self.vendor = vendor
        self.device = device
        self._loaded: dict[str, Any] = dict(loaded or {})
        self._lock = threading.Lock()

    def another(self) -> Libraries:
        """Returns the same libraries with new handles, for another thread."""
        return Libraries(self.vendor, self.device)

    def plan(self, problem: Any, choice: Choice | None = None) -> LibraryPlan | No:
        """Returns the saved plan, or the first suitable one."""
        saved_by = (choice or {}).get("library")
        refused = []
        for name in self._names(problem):
            if saved_by is None or saved_by == name:
                found: LibraryPlan | No = self._ask(name, _plan, problem, choice)
                if not isinstance(found, No):
                    return found
                refused.append(found.why)
        return No("; ".join(refused) or REFUSED.get(type(problem)) or f"no library {saved_by!r} for {self.vendor}")

    def plans(
        self, problem: Any, count: int = 8, compiled: bool = True, share: tuple[int, int] = (0, 1)
    ) -> list[LibraryPlan] | No:
        """Returns plans to time against each other, at most `count` from each library.

        compiled: include engines that compile kernels for the problem, which takes a fraction of a second or more each.
        share: (i, n): of cuDNN, only every n-th engine from the i-th on; of other libraries, all if i is 0, else none.
        """
        found: list[LibraryPlan] = []
        refused = []
        for name in self._names(problem):
            if name == "cudnn" and isinstance(problem, GemmProblem) and not compiled:
                continue
            if name != "cudnn" and share[0]:
                continue
            answer = self._ask(name, _plans, problem, count, compiled, share)
            if isinstance(answer, No):
                refused.append(answer.why)
            else:
                found += answer
        return found or No("; ".join(refused) or REFUSED.get(type(problem), ""))

    def versions(self, problem: Any) -> str:
        """Returns the libraries with plans for such problems and their versions, for which a stored refusal is valid."""
        return ", ".join(f"{name} {self._version(name)}" for name in self._names(problem))

    def _version(self, name: str) -> str:
        try:
            return str(self._get(name).version)
        except DeviceError as error:
            return str(error)

    @property
    def _blas(self) -> BlasTable:
        return CUBLASLT if self.vendor == "cuda" else HIPBLASLT

    def _names(self, problem: Any) -> list[str]:
        """Returns the libraries with plans for such problems, in order of preference."""
        products = [self._blas.name] if isinstance(problem, GemmProblem) else []
        if isinstance(problem, GemmProblem) and problem.dtype.bits == 8:
            return products  # cuDNN's products of 8 bits are those of `NarrowProblem`
        if self.vendor == "cuda":
            return [*products, "cudnn"]
        return [*products, "miopen"] if isinstance(problem, ConvProblem) else products

    def _ask(self, name: str, ask: Callable[..., Any], *given: Any) -> Any:  # the library's answer, or a refusal
        try:
            made = self._get(name)
        except DeviceError as error:
            return No(str(error))
        return ask(made, *given)

    def _get(self, name: str) -> Any:
        with self._lock:
            made = self._loaded.get(name)
            if made is None:
                made = self._make(name)
                self._loaded[name] = made
            if isinstance(made, DeviceError):
                raise made
            return made

    def _make(self, name: str) -> Any:
        try:
            if name == "cudnn":
                return Cudnn(device=self.device)
            if name == "miopen":
                return MIOpen()
            if self.device is not None:
                return DeviceError(f"{name} cannot plan without the device")
            return Blas(self._blas)
        except DeviceError as error:
            return error

    def close(self) -> None:
        """Destroys all handles; plans built with them must not be launched afterwards."""
        with self._lock:
            for made in self._loaded.values():
                if not isinstance(made, DeviceError):
                    made.close()
            self._loaded.clear()


def _plan(library: Any, problem: Any, choice: Choice | None) -> Any:
    """Returns a plan without timing it; of cuDNN's fused products only those with small results.

    On an H200 a product with erf GELU took 4.0 to 6.4 us for 128x3072 (as two launches 6.0), but 60 us for 4096x3072 (49).
    """
    if not isinstance(library, Cudnn):
        return library.plan(problem, choice)
    if isinstance(problem, GemmProblem) and choice is None and problem.batch * problem.m * problem.n > 1 << 20:
        return No("for large results cuDNN's fused product is slower than a product and a separate launch")
    return cudnn_problems.plan(library, problem, choice)


def _plans(library: Any, problem: Any, count: int, compiled: bool, share: tuple[int, int]) -> Any:
    if isinstance(library, Cudnn):
        return cudnn_problems.plans(library, problem, count, compiled, share)
    return library.plans(problem, count)
