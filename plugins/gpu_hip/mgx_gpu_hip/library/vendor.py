"""One interface per family over a vendor's libraries: products, convolutions, attention."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from mgx_core.errors import DeviceError, No, UnsupportedError

from . import attention, convolution, cudnn_gemm, cudnn_narrow
from .attention import AttentionProblem
from .blas_tables import CUBLASLT, HIPBLASLT, BlasTable
from .convolution import ConvProblem
from .cudnn import Cudnn
from .cudnn_narrow import NarrowProblem
from .gemm import Blas
from .gemm_problem import GemmProblem
from .miopen import MIOpen

__all__ = ["Libraries", "LibraryPlan", "fastest"]

Choice = Mapping[str, Any]
P = TypeVar("P", bound="LibraryPlan")


class LibraryPlan(Protocol):
    """A library call that is ready to launch.

    workspace: bytes of device memory a launch needs; choice: JSON-able, brings the plan back without a search.  `launch` takes
    the stream, the operands' device addresses by name (product: a b d bias residual; convolution: x w y bias residual;
    attention: q k v o bias) and workspace; it may be captured in a graph.
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
    """The libraries of a vendor, each loaded when first asked.

    vendor: `cuda` or `hip`; device: a description of an NVIDIA GPU (Cudnn.describe_device) to plan for where there is none,
    which then serves convolutions, attention and what cuDNN can do of products.  A library that is absent makes every
    answer a refusal that says so.
    Errors: UnsupportedError for another vendor.
    """

    def __init__(
        self, vendor: str, device: Mapping[str, Any] | None = None, loaded: Mapping[str, Any] | None = None
    ) -> None:
        if vendor not in ("cuda", "hip"):
            raise UnsupportedError(f"vendor libraries exist for cuda and hip, asked for {vendor!r}")
        self.vendor = vendor
        self.device = device
        self._loaded: dict[str, Any] = dict(loaded or {})
        self._lock = threading.Lock()

    def another(self) -> Libraries:
        """Returns the same libraries with handles of their own, for another thread."""
        return Libraries(self.vendor, self.device)

    def gemm(self, problem: GemmProblem, choice: Choice | None = None) -> LibraryPlan | No:
        """Returns the plan of a saved choice, or the first good one."""
        saved_by = (choice or {}).get("library")
        refused = []
        for name, ask in self._gemm_makers():
            if saved_by is None or saved_by == name:
                plan: LibraryPlan | No = self._ask(name, partial(_swapped, ask, problem, choice))
                if not isinstance(plan, No):
                    return plan
                refused.append(plan.why)
        return No("; ".join(refused) or f"no library {saved_by!r} for {self.vendor}")

    def gemms(self, problem: GemmProblem, count: int = 8, compiled: bool = True) -> list[LibraryPlan] | No:
        """Plans to time against each other, at most `count` from each library.

        compiled: also engines that compile kernels for the problem, which takes a fraction of a second each.
        """
        asks: list[tuple[str, Callable[[Any], Any]]] = [(self._blas.name, lambda made: made.plans(problem, count))]
        if self.vendor == "cuda" and compiled:
            asks.append(("cudnn", lambda made: cudnn_gemm.plans_gemm(made, problem, count)))
        return self._all(asks)

    def convolution(self, problem: ConvProblem, choice: Choice | None = None) -> LibraryPlan | No:
        """Returns the plan of a saved choice, or the first good one."""
        if self.vendor == "hip":
            ours: LibraryPlan | No = self._ask("miopen", lambda made: made.plan(problem, choice))
            return ours
        answer: LibraryPlan | No = self._ask("cudnn", lambda made: convolution.plan_conv(made, problem, choice))
        return answer

    def convolutions(self, problem: ConvProblem, count: int = 8, compiled: bool = True) -> list[LibraryPlan] | No:
        """Plans to time against each other; compiled: also of engines that compile kernels for the problem."""
        if self.vendor == "hip":
            ours: list[LibraryPlan] | No = self._ask("miopen", lambda made: made.plans(problem, count))
            return ours
        answer: list[LibraryPlan] | No = self._ask(
            "cudnn", lambda made: convolution.plans_conv(made, problem, count, compiled)
        )
        return answer

    def narrow(self, problem: NarrowProblem, choice: Choice | None = None) -> LibraryPlan | No:
        """Returns the plan of a saved choice, or the first good one."""
        if self.vendor == "hip":
            return No("no AMD library finishes sums of bytes with work of any kind")
        answer: LibraryPlan | No = self._ask("cudnn", lambda made: cudnn_narrow.plan_narrow(made, problem, choice))
        return answer

    def narrows(self, problem: NarrowProblem, count: int = 4) -> list[LibraryPlan] | No:
        """Plans to time against each other."""
        if self.vendor == "hip":
            return No("no AMD library finishes sums of bytes with work of any kind")
        answer: list[LibraryPlan] | No = self._ask(
            "cudnn", lambda made: cudnn_narrow.plans_narrow(made, problem, count)
        )
        return answer

    def attention(self, problem: AttentionProblem, choice: Choice | None = None) -> LibraryPlan | No:
        """Returns the plan of a saved choice, or the first good one."""
        if self.vendor == "hip":
            return No("no AMD library has a stable C interface for attention")
        answer: LibraryPlan | No = self._ask("cudnn", lambda made: attention.plan_attention(made, problem, choice))
        return answer

    def attentions(self, problem: AttentionProblem, count: int = 8) -> list[LibraryPlan] | No:
        """Plans to time against each other."""
        if self.vendor == "hip":
            return No("no AMD library has a stable C interface for attention")
        answer: list[LibraryPlan] | No = self._ask(
            "cudnn", lambda made: attention.plans_attention(made, problem, count)
        )
        return answer

    @property
    def _blas(self) -> BlasTable:
        return CUBLASLT if self.vendor == "cuda" else HIPBLASLT

    def _gemm_makers(self) -> list[tuple[str, Callable[[Any, GemmProblem, Choice | None], Any]]]:
        makers: list[tuple[str, Any]] = [(self._blas.name, lambda made, p, choice: made.plan(p, choice))]
        if self.vendor == "cuda":
            makers.append(("cudnn", _small_gemm))
        return makers

    def _ask(self, name: str, ask: Callable[[Any], Any]) -> Any:  # the maker's answer, or a refusal
        try:
            made = self._get(name)
        except DeviceError as error:
            return No(str(error))
        return ask(made)

    def _all(self, asks: Sequence[tuple[str, Callable[[Any], Any]]]) -> list[LibraryPlan] | No:
        found: list[LibraryPlan] = []
        refused = []
        for name, ask in asks:
            answer = self._ask(name, ask)
            if isinstance(answer, No):
                refused.append(answer.why)
            else:
                found += answer
        return found or No("; ".join(refused))

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
                return DeviceError(f"{name} plans only where the device is")
            return Blas(self._blas)
        except DeviceError as error:
            return error

    def close(self) -> None:
        """Gives all handles back; plans made by them must not be launched afterwards."""
        with self._lock:
            for made in self._loaded.values():
                if not isinstance(made, DeviceError):
                    made.close()
            self._loaded.clear()


def _small_gemm(cudnn: Cudnn, problem: GemmProblem, choice: Choice | None) -> Any:
    """cuDNN's plan without a measurement: only for small results.

    On an H200 a product with erf GELU took 4.0 to 6.4 us for 128x3072 (two launches: 6.0), but 60 us for 4096x3072 (49).
    """
    if choice is None and problem.batch * problem.m * problem.n > 1 << 20:
        return No("cuDNN's fused product is slower than a product and a launch for the rest where the result is large")
    return cudnn_gemm.plan_gemm(cudnn, problem, choice)


def _swapped(ask: Callable[..., Any], problem: GemmProblem, choice: Choice | None, made: Any) -> Any:
    return ask(made, problem, choice)


def fastest(plans: Sequence[P], seconds: Callable[[P], float]) -> tuple[P, list[tuple[P, float]]]:
    """Returns the plan that `seconds` measures lowest, and all measures in rising order; a plan whose launch fails is left out.

    Errors: DeviceError if none can be launched.
    """
    measured: list[tuple[P, float]] = []
    failures: list[str] = []
    for plan in plans:
        try:
            measured.append((plan, seconds(plan)))
        except DeviceError as error:
            failures.append(str(error))
    if not measured:
        raise DeviceError(f"none of {len(plans)} plans could be launched: {'; '.join(failures)}")
    measured.sort(key=lambda pair: pair[1])
    return measured[0][0], measured
