"""Library plans timed on the device for the problem at hand, and the winners kept on disk."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from mgx_core import No
from mgx_core.errors import DeviceError, ParameterError
from mgx_core.targets.tuning import TuningStore
from mgx_core.types.dtype import DType

from .library.attention import AttentionProblem
from .library.convolution import ConvProblem
from .library.cudnn_graph import packed
from .library.cudnn_narrow import NarrowProblem
from .library.gemm import GemmProblem, Matrix
from .library.vendor import Libraries
from .runtime import CallError, Device

__all__ = ["Timed", "Tuner"]

LAUNCHES = 5
KNOWN = 512  # problems whose plans are kept at hand
READ = frozenset(
    {"a", "b", "x", "w", "q", "k", "v"}
)  # operands that hold data while plans are timed; the rest hold zeros
GUESS = 2e8  # operations in a microsecond, where nothing was measured


class Timed:
    """A plan and the microseconds that a launch takes.

    choice: names the plan; make: gives it, called when it is first asked for (most remembered plans are only compared).
    """

    def __init__(self, us: float, choice: Mapping[str, Any], make: Callable[[], Any]) -> None:
        self.us = us
        self.choice = choice
        self._make = make

    @classmethod
    def of(cls, plan: Any, us: float) -> Timed:
        return cls(us, plan.choice, lambda: plan)

    @cached_property
    def plan(self) -> Any:
        return self._make()


class Tuner(TuningStore):
    """Asks libraries for several plans of a problem and keeps the fastest.

    A program whose shapes keep changing would spend its time on measuring: after `patience` sets of shapes what is not known
    yet is the library's own choice.  For `exhaustive` questions (the compile option ``exhaustive_tune``) the number of timed
    problems has no limit, more plans are tried, also those that are compiled for the problem, and choices of other questions
    are ignored.

    folder: by default ``tuning`` in ``$MGX_CACHE_DIR`` or the user's cache directory; choices are kept by device.
    """

    def __init__(self, device: Device, libraries: Libraries, folder: Path | None = None, patience: int = 16) -> None:
        self.device = device
        self.libraries = libraries
        super().__init__(f"{device.properties.name} {device.arch}", folder)
        self.patience = patience
        self.found: OrderedDict[tuple[Any, bool], Timed | No] = OrderedDict()

    def gemm(self, p: GemmProblem, compiled: bool = True, exhaustive: bool = False) -> Timed | No:
        """The fastest plan of a product; compiled: where no ready-made kernel serves, also kernels compiled for it."""
        sizes = {
            "a": _space(p.a, p.m, p.k, p.batch),
            "b": _space(p.b, p.k, p.n, p.batch),
            "d": _space(p.d, p.m, p.n, p.batch),
        }
        if p.residual is not None:
            sizes["residual"] = _space(p.residual, p.m, p.n, p.batch)
        if "bias" in p.epilogue:
            sizes["bias"] = 8 * p.n

        def many() -> Any:
            if exhaustive:
                return self.libraries.gemms(p, 32, True)
            plans = self.libraries.gemms(p, 16 if p.flops < 4e9 else 6, False)
            return self.libraries.gemms(p, 3, True) if isinstance(plans, No) and compiled else plans

        return self._best(p, lambda choice: self.libraries.gemm(p, choice), many, sizes, exhaustive, compiled)

    def convolution(self, p: ConvProblem, exhaustive: bool = False) -> Timed | No:
        """The fastest plan of a convolution."""
        size = p.dtype.size
        sizes = {
            "x": size * math.prod(p.dims),
            "w": size * p.filters * (p.dims[1] // p.groups) * math.prod(p.kernel),
            "y": size * math.prod(p.out_dims),
        }
        if "residual" in p.epilogue:
            sizes["residual"] = sizes["y"]
        if "bias" in p.epilogue:
            sizes["bias"] = 8 * p.filters
        return self._best(
            p,
            lambda choice: self.libraries.convolution(p, choice),
            lambda: self.libraries.convolutions(p, *((24, True) if exhaustive else (8, False))),
            sizes,
            exhaustive,
        )

    def narrow(self, p: NarrowProblem, exhaustive: bool = False) -> Timed | No:
        """The fastest plan of a product of bytes or 8-bit floats with its pointwise work."""
        many = partial(self.libraries.narrows, p, 12 if exhaustive else 4)
        return self._best(p, lambda choice: self.libraries.narrow(p, choice), many, p.sizes, exhaustive)

    def attention(self, p: AttentionProblem, exhaustive: bool = False) -> Timed | No:
        """The library's own choice, timed; refused where there is no patience for that."""
        if self._hurried(exhaustive) and repr(p) not in self.choices:
            return No("the library's attention was not timed")
        size = p.dtype.size
        sizes = {
            "q": size * _reach((p.batch, p.heads, p.queries, p.size), p.q),
            "k": size * _reach((p.batch, p.groups, p.keys, p.size), p.k),
            "v": size * _reach((p.batch, p.groups, p.keys, p.out_size), p.v),
            "o": size * _reach((p.batch, p.heads, p.queries, p.out_size), p.o),
        }
        if p.bias is not None:
            sizes["bias"] = 4 * _reach(p.bias, p.bias_strides or packed(p.bias))
        return self._best(
            p,
            lambda choice: self.libraries.attention(p, choice),
            lambda: self.libraries.attentions(p) if exhaustive else No(""),
            sizes,
            exhaustive,
        )

    def _hurried(self, exhaustive: bool) -> bool:
        return not (self.patience or exhaustive)

    def done(self) -> None:
        """Another set of shapes has its plans."""
        self.patience = max(self.patience - 1, 0)
        self.save()

    def asked(self) -> dict[str, Any]:
        """Returns the choices for the problems so far, as plain data that another process can `learn`."""
        with self.lock:
            known = sorted(self.found.items(), key=lambda one: one[0][1])  # of two, the exhaustive one stays
            return {
                repr(p): {"refused": found.why, "exhaustive": exhaustive}
                if isinstance(found, No)
                else {"choice": dict(found.choice), "us": found.us, "exhaustive": exhaustive}
                for (p, exhaustive), found in known
            }

    def lasts(self, choice: Any) -> bool:
        return "choice" in choice  # refusals hold for the program file that brought them

    def _best(
        self,
        problem: Any,
        one: Callable[[Mapping[str, Any] | None], Any],
        many: Callable[[], Sequence[Any] | No],
        sizes: Mapping[str, int],
        exhaustive: bool,
        fall_back: bool = True,
    ) -> Timed | No:
        """fall_back: ask for one plan where there are not several."""
        with self.lock:
            known = self.found.get((problem, True)) or self.found.get((problem, exhaustive))
            if known is None:
                last = one if fall_back else lambda choice: No("no ready-made kernel")
                known = self._remembered(
                    repr(problem),
                    one,
                    lambda: self._measured(repr(problem), problem, last, many, sizes, exhaustive),
                    exhaustive,
                )
                self.found[problem, exhaustive] = known
                if len(self.found) > KNOWN:
                    self.found.popitem(last=False)
            return known

    def _remembered(
        self,
        key: str,
        one: Callable[[Mapping[str, Any] | None], Any],
        measure: Callable[[], Timed | No],
        exhaustive: bool,
    ) -> Timed | No:
        """A kept choice, measured again only if the plan that it names cannot be had any more."""
        kept = self.choices.get(key)
        if kept is None or (exhaustive and not kept.get("exhaustive")):
            return measure()
        if "refused" in kept:
            return No(kept["refused"])

        def make() -> Any:
            plan = one(kept["choice"])
            if not isinstance(plan, No) and plan.choice.get("version") == kept["choice"].get("version"):
                return plan
            with self.lock:
                found = measure()
            if isinstance(found, No):
                raise DeviceError(f"{key}: {found.why}")
            return found.plan

        return Timed(float(kept["us"]), kept["choice"], make)

    def _measured(
        self,
        key: str,
        problem: Any,
        one: Callable[[Mapping[str, Any] | None], Any],
        many: Callable[[], Sequence[Any] | No],
        sizes: Mapping[str, int],
        exhaustive: bool,
    ) -> Timed | No:
        if self._hurried(exhaustive):
            plan = one(None)
            return plan if isinstance(plan, No) else Timed.of(plan, 5.0 + problem.flops / GUESS)
        several = many()
        plans: Sequence[Any] = () if isinstance(several, No) else several
        if not plans:
            single = one(None)
            if isinstance(single, No):
                return single
            plans = [single]
        self.device.activate()
        stream = self.device.stream()
        held = {name: self.device.allocate(max(size, 256)) for name, size in sizes.items()}
        for name, buffer in held.items():
            stream.fill(buffer.address, 0, max(sizes[name], 256))
        for name in READ & held.keys():
            _scatter(stream, held[name].address, sizes[name], problem.dtype)
        space = max(plan.workspace for plan in plans)
        workspace = self.device.allocate(space) if space else None
        addresses = {name: buffer.address for name, buffer in held.items()}
        best: Timed | None = None
        for plan in plans:
            least = best.us if best is not None else math.inf
            try:
                us = self._time(plan, stream, addresses, None if workspace is None else workspace.address, least)
            except (DeviceError, ParameterError) as error:
                if isinstance(error, CallError) and error.lost:
                    raise error.located(f"timing {plan.name}") from None
                continue
            if best is None or us < best.us * 0.98:  # the library's order decides between equals
                best = Timed.of(plan, us)
        stream.wait()
        if best is None:
            return No(f"none of {len(plans)} plans could be launched for {key}")
        self.keep(key, {"choice": dict(best.choice), "us": best.us, "exhaustive": exhaustive})
        return best

    def _time(self, plan: Any, stream: Any, addresses: Mapping[str, int], workspace: int | None, least: float) -> float:
        """Microseconds of a launch among others, replayed from a graph so that the host does not count.

        least: the best so far; a plan that is clearly slower is launched only twice.
        """

        def timed(call: Callable[[int], Any]) -> float:
            before, after = self.device.event(timing=True), self.device.event(timing=True)
            before.record(stream)
            call(stream.handle)
            after.record(stream)
            after.wait()
            return after.since(before) * 1000

        def launch(handle: int) -> None:
            plan.launch(handle, workspace=workspace, **addresses)

        launch(stream.handle)
        once = timed(launch)
        if once > 150 and once > 1.2 * least:
            return once
        count = LAUNCHES if once < 200 else 2
        with self.device.capture(stream) as captured:
            for _ in range(count):
                launch(stream.handle)
        graph = captured.instantiate()
        graph.launch(stream.handle)
        return min(timed(graph.launch) for _ in range(2 if once < 200 else 1)) / count


def _scatter(stream: Any, address: int, size: int, dtype: DType) -> None:
    """Fills an operand with numbers of a normal distribution: activations and the processor's clock depend on the data."""
    drawn = np.random.default_rng(0).standard_normal(min(size // dtype.size, 1 << 16))
    block = (drawn * (0.25 if dtype.is_float else 32)).clip(-127, 127).astype(dtype.numpy)
    stream.copy_in(address, block)
    stream.wait()
    done = block.nbytes
    while done < size:
        part = min(done, size - done)
        stream.copy(address + done, address, part)
        done += part


def _space(x: Matrix, rows: int, columns: int, batch: int) -> int:
    return x.dtype.size * (x.batch_stride * (batch - 1) + x.ld * (columns if x.transposed else rows))


def _reach(dims: Sequence[int], strides: Sequence[int]) -> int:
    return 1 + sum((n - 1) * s for n, s in zip(dims, strides, strict=True))
