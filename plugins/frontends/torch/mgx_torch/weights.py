"""Selects weights that become constants, detects changes to them, and shares their memory with programs."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
import xxhash

from mgx_core.types.argument import Array

from .tensors import borrowed, host_array

__all__ = ["Fingerprint", "held", "shared_array", "only_in_products"]

# operators whose kernels read a weight in torch's layout, and views
PRODUCTS: Final = frozenset(("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "embedding", "einsum"))
VIEWS: Final = frozenset(("t", "transpose", "permute", "view", "reshape", "detach", "alias", "unsqueeze", "expand"))
WATCHED: Final = 1 << 28  # bytes of matrix operands above which hashing them takes too long
SMALL: Final = 1 << 14  # bytes up to which comparing a weight is cheaper than passing it


def held(
    gm: torch.fx.GraphModule,
    static: Sequence[int],
    args: Sequence[Any],
    *,
    trusted: bool,
    narrowed: bool,
    watched: bool,
) -> tuple[int, ...]:
    """Returns the indices of those weights of which a program of this graph keeps packed copies.

    trusted: no unseen writes occur, so that all are kept; narrowed: the program computes in a narrower type; watched: device
    weights are checked on the device at each call (`Program.compile`).
    Watched weights are kept except embedding tables, of which a run reads some rows, and very large operands of products.
    Device weights that are not watched are kept only if they are not floating-point, since comparing them would synchronize.
    On the host, large operands of products are passed at each call, since packing them gains little; others are compared at
    each call (`Fingerprint`).
    """
    if trusted:
        return tuple(static)
    nodes = [n for n in gm.graph.nodes if n.op == "placeholder"]
    if watched:
        on_device = [
            i for i in static if args[i] is not None and args[i].device.type != "cpu" and args[i].is_contiguous()
        ]
        tables = {
            i for i in on_device if args[i].nbytes > SMALL and any(_packet(u) == "embedding" for u in nodes[i].users)
        }
        factors = {i for i in on_device if i not in tables and only_in_products(nodes[i])}
        passed = tables | factors if sum(args[i].nbytes for i in factors) > WATCHED else tables
        return tuple(i for i in on_device if i not in passed)

    def kept(i: int) -> bool:
        weight = args[i]
        if weight is None:  # passed by AOTAutograd for an input that the graph does not read
            return False
        if not weight.is_floating_point():
            return True
        if weight.device.type != "cpu":
            return False
        return narrowed or weight.nbytes <= SMALL or not only_in_products(nodes[i])

    return tuple(i for i in static if kept(i))


def only_in_products(node: torch.fx.Node) -> bool:
    """True if a value and its views are used only by matrix products."""
    for user in node.users:
        if user.op == "output":
            continue
        name = _packet(user)
        if name not in PRODUCTS and not (name in VIEWS and only_in_products(user)):
            return False
    return True


def _packet(node: torch.fx.Node) -> str:
    """Returns the name of the operator that a node calls; empty if it is not one of torch's."""
    return node.target._schema.name.partition("::")[2] if isinstance(node.target, torch._ops.OpOverload) else ""


class Fingerprint:
    """A fingerprint of a weight's contents: torch's version counter, and a digest of all bytes in host memory.

    exact: False omits the digest, so that writes that torch does not count (through `.data`, or by others that share the memory)
    are not detected.
    """

    def __init__(self, weight: torch.Tensor, exact: bool = True) -> None:
        self.version = _version(weight)
        self._words = _words(weight) if exact and weight.device.type == "cpu" and weight.numel() else None
        self._seen = b"" if self._words is None else _digest(self._words)
        self._compared = self._words if self._words is not None and self._words.nbytes <= SMALL else None

    def holds(self, weight: torch.Tensor) -> bool:
        """True if the weight, at the same address, is unchanged; a small one also if equal elements were written."""
        if self._compared is not None:
            return self._compared.tobytes() == self._seen
        return _version(weight) == self.version and (self._words is None or _digest(self._words) == self._seen)


def _version(weight: torch.Tensor) -> int:
    """Returns torch's version counter, which is not maintained in inference mode."""
    return 0 if weight.is_inference() else int(weight._version)


def _words(weight: torch.Tensor) -> Array | None:
    """Returns the bytes of a weight in memory order, or in logical order if they are few.

    Lazy conjugation and negation of views are ignored.
    """
    flat = weight.detach()
    if flat.is_complex():
        flat = torch.view_as_real(flat.conj() if flat.is_conj() else flat)
    if flat.is_neg():
        flat = torch._neg_view(flat)
    array = host_array(flat.permute(sorted(range(flat.dim()), key=lambda axis: -flat.stride(axis))))
    if array.nbytes <= SMALL or not array.flags.c_contiguous:
        return array
    return array.reshape(-1).view(np.uint8)


def _digest(array: Array) -> bytes:
    """Returns all bytes of a small array, a 128-bit hash of a large one."""
    if array.nbytes <= SMALL or not array.flags.c_contiguous:
        return array.tobytes()
    return bytes(xxhash.xxh3_128_digest(array))


class SharedWeights:
    """Tracks which weight memory live programs share, and its version when it was first shared."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._there: dict[int, list[tuple[Any, Fingerprint]]] = {}

    def array(self, weight: torch.Tensor, name: str) -> Array:
        """Returns the weight as an array on its memory, or a copy if it was written to since it was first shared."""
        # targets cache packed weights by address: changed memory would hit stale entries
        with self._lock:
            there = [(a, v) for ref, v in self._there.get(weight.data_ptr(), ()) if (a := ref()) is not None]
            if not all(fingerprint.holds(weight) for _, fingerprint in there):
                return borrowed(weight.detach().clone(), name)
            array: Array = borrowed(weight, name)
            if weight.device.type != "cpu":
                return array
            # views keep this one alive, not each other
            owner = array.base if isinstance(array.base, np.ndarray) else array
            # weights that begin at one address may be of different sizes
            for known, _ in there:
                if (known.dtype, known.shape, known.strides) == (owner.dtype, owner.shape, owner.strides):
                    return known.view(array.dtype)  # remembered as long as any program uses the memory
            self._there = {k: v for k, v in self._there.items() if any(ref() is not None for ref, _ in v)}
            remembered = [*there, (owner, Fingerprint(weight))]
            self._there[weight.data_ptr()] = [(weakref.ref(a), fingerprint) for a, fingerprint in remembered]
            return array


@functools.cache
def _shared_weights() -> SharedWeights:
    return SharedWeights()


def shared_array(weight: torch.Tensor, name: str) -> Array:
    """Returns a weight as an array that a program may retain.  Errors: UnsupportedError for tensors without plain numbers."""
    return _shared_weights().array(weight, name)
