"""Serializes native programs for program files, and restores them.

The data holds values, primitives with their chosen layouts, object code of loops, and the arguments of every step.  Restoring
needs no plans and no compiler.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from mgx_core import StoreError, UnsupportedError
from mgx_core import dtype as dt
from mgx_core.targets.saved import Keep, SavedInstance
from mgx_core.types.argument import Array
from mgx_core.types.mapped import forget_pages

from .native_library import native
from .recipes import Recipe, address_of, aligned, apply_recipe

__all__ = ["FORMAT", "NotSaved", "Recorder", "recompute", "rebuild"]

FORMAT: Final = 6  # version of the data that a runner saves, and of the native module
DTYPES: Final = {t.name: t for t in dt.ALL}
# kinds of control steps, with the methods of a native program that add them
CONTROL: Final = {
    "branch": "begin_branch", "other": "begin_other", "end": "end_branch", "trip": "begin_loop", "again": "end_loop",
}  # fmt: skip


class NotSaved(Exception):
    """A program has a step that cannot be serialized; the message names it."""


class Recorder:
    """Records the calls that build a native program as plain data.

    keep: stores an array in the file and returns its number; weights with a short recipe are recomputed instead; image: returns
    symbol and object code of a compiled loop by address.
    """

    def __init__(self, arena: int, keep: Keep, image: Callable[[int], tuple[str, bytes] | None]) -> None:
        self._arena = arena
        self._keep = keep
        self._image = image
        self._values: list[Any] = []
        self._arrays: list[int] = []
        self._primitives: dict[int, int] = {}
        self._recipes: list[Any] = []
        self._symbols: dict[str, int] = {}
        self._objects: list[bytes] = []
        self._steps: list[Any] = []
        self._results: list[int] = []

    def plain(self) -> dict[str, Any]:
        return {
            "arena": self._arena,
            "values": self._values,
            "arrays": self._arrays,
            "primitives": self._recipes,
            "symbols": list(self._symbols),
            "objects": self._objects,
            "steps": self._steps,
            "results": self._results,
        }

    # values

    def _value(self, *entry: Any) -> int:
        self._values.append(list(entry))
        return len(self._values) - 1

    def input(self, dtype: Any, dims: Sequence[int]) -> int:
        return self._value("input", dt.of(dtype).name, list(dims))

    def output(self, dtype: Any, dims: Sequence[int]) -> int:
        return self._value("output", dt.of(dtype).name, list(dims))

    def arena(self, offset: int, nbytes: int) -> int:
        return self._value("arena", offset, nbytes)

    def literal(self, address: int, nbytes: int, owner: Any) -> int:
        from .packing import Derived

        derived = isinstance(owner, Derived)
        if self._keep.brief and derived and owner.recipe is not None:
            with contextlib.suppress(NotSaved):
                recipe = [owner.recipe.kind, _plain(owner.recipe.args)]
                return self._value("made", self._array(owner.sources[0]), nbytes, *recipe)
        for array in owner.arrays if derived else [owner]:
            if isinstance(array, np.ndarray) and address_of(array) == address:
                return self._value("literal", self._array(array), nbytes)
        raise NotSaved(f"a constant of {nbytes} bytes is not an array")

    def _array(self, array: Array) -> int:
        self._arrays.append(self._keep(array))
        return len(self._arrays) - 1

    def result(self, value: int) -> None:
        self._results.append(value)

    def finish(self) -> None:
        return None

    # steps

    def add_primitive(self, name: str, made: Any, args: Mapping[int, tuple[int, int]]) -> None:
        number = self._primitives.get(id(made))
        if number is None:
            number = self._primitives[id(made)] = len(self._recipes)
            builder, given, keywords = made.recipe
            chosen = [[arg, made.md(arg).layout, made.md(arg).nbytes] for arg in args]
            self._recipes.append([builder, _plain(given), _plain(keywords), made.impl, made.scratchpad_size, chosen])
        self._steps.append(["primitive", name, number, [[arg, *ref] for arg, ref in args.items()]])

    def add_loop(
        self,
        name: str,
        address: int,
        owner: Any,
        buffers: Sequence[tuple[int, int]],
        args: Sequence[int] = (),
        work: int = 1,
        grain: int = 1,
        scratch_bytes: int = 0,
        deferred: Any = None,
        then: Sequence[tuple[int, Sequence[int], int, int]] = (),
    ) -> None:
        refs, later = [list(b) for b in buffers], [[self._place(name, x[0]), *_numbers(*x[1:])] for x in then]
        numbers = _numbers(args, work, grain)
        self._steps.append(["loop", name, self._place(name, address), refs, *numbers, scratch_bytes, deferred, later])

    def _place(self, name: str, address: int) -> list[Any]:
        """Returns where the code of a loop of step `name` is stored."""
        found = self._image(address)
        if found is not None:
            symbol, image = found
            if symbol not in self._symbols:
                self._symbols[symbol] = len(self._objects)
                self._objects.append(image)
            return ["object", self._symbols[symbol]]
        offset = native().own_offset(address)
        if offset is None:
            raise NotSaved(f"{name} is a function of another package")
        return ["own", offset]

    def begin_branch(self, name: str, condition: tuple[int, int]) -> None:
        self._steps.append(["branch", name, list(condition)])

    def begin_other(self, name: str) -> None:
        self._steps.append(["other", name])

    def end_branch(self, name: str) -> None:
        self._steps.append(["end", name])

    def begin_loop(self, name: str, *trips: Any) -> None:
        self._steps.append(["trip", name, *(list(t) if isinstance(t, tuple) else t for t in trips)])

    def end_loop(self, name: str) -> None:
        self._steps.append(["again", name])

    def add_host(self, name: str, *call: Any) -> None:
        raise NotSaved(f"the step {name} calls Python")


def rebuild(plain: Mapping[str, Any], saved: SavedInstance) -> Any:
    """Rebuilds a native program from a recorder's data, which is part of a saved instance.

    Errors: StoreError if a primitive's layouts differ from those that its weights were packed for.
    """
    _native = native()
    primitives = [_describe(recipe) for recipe in plain["primitives"]]
    _native.prepare(primitives)
    for made, recipe in zip(primitives, plain["primitives"], strict=True):
        _check(made, recipe[3], recipe[5])
    code, symbols = _native.CodeImage(plain["objects"]), plain["symbols"]
    program = _native.NativeProgram("main", plain["arena"])
    for kind, *entry in plain["values"]:
        if kind in ("literal", "made"):
            number = plain["arrays"][entry[0]]
            array = _aligned(saved.fetch(number)) if kind == "literal" else recompute(saved, number, entry[2:])
            if array.nbytes != entry[1]:
                raise StoreError(f"a constant must have {entry[1]} bytes, got {array.nbytes}")
            program.literal(address_of(array), array.nbytes, array)
        elif kind == "arena":
            program.arena(*entry)
        else:
            getattr(program, kind)(DTYPES[entry[0]].numpy, entry[1])
    for kind, *entry in plain["steps"]:
        if kind == "primitive":
            name, number, refs = entry
            program.add_primitive(name, primitives[number], {arg: (value, offset) for arg, value, offset in refs})
        elif kind == "loop":
            name, where, *rest, then = entry
            later = [(_code_address(code, symbols, place), *numbers) for place, *numbers in then]
            program.add_loop(name, _code_address(code, symbols, where), code, *rest, later)
        elif kind in CONTROL:
            getattr(program, CONTROL[kind])(*entry)
        else:
            raise StoreError(f"unknown kind of step {kind!r}")
    for value in plain["results"]:
        program.result(value)
    program.finish()
    return program


def _code_address(code: Any, symbols: Sequence[str], place: Sequence[Any]) -> int:
    """Returns the address of a loop that `Recorder` has stored."""
    inside, number = place
    found: int = native().own_address(number) if inside == "own" else code.address(symbols[number])
    return found


def _numbers(args: Sequence[int], work: int, grain: int) -> list[Any]:
    return [[int(n) for n in args], work, grain]


def recompute(saved: SavedInstance, number: int, recipe: Sequence[Any]) -> Array:
    """Applies a recipe to a stored array, once for all instances."""
    key = number, repr(recipe)
    found: Array | None = saved.made.get(key)
    if found is None:
        source = saved.fetch(number)
        found = saved.made[key] = apply_recipe(Recipe(recipe[0], tuple(map(_object, recipe[1]))), source)
        forget_pages(source)
    return found


def _describe(recipe: Sequence[Any]) -> Any:
    builder, args, keywords = recipe[:3]
    return getattr(native(), builder)(*map(_object, args), **_object(keywords), deferred=True)


def _check(made: Any, implementation: str, chosen: Sequence[Sequence[Any]]) -> None:
    if made.impl != implementation:
        raise StoreError(f"{made.kind} requires implementation {implementation}, got {made.impl} on this machine")
    for arg, layout, nbytes in chosen:
        md = made.md(arg)
        if md.layout != layout or md.nbytes != nbytes:
            raise StoreError(f"{made.kind} requires layout {md.layout} here, the file has {layout}")


def _aligned(array: Array) -> Array:
    """Returns the array if it is cache-line aligned (as in a mapped file), else an aligned copy."""
    return array if address_of(array) % 64 == 0 else aligned(array)


def _plain(value: Any) -> Any:
    """Converts arguments of builders and steps to plain data; descriptors and mappings become tagged maps."""
    _native = native()
    if value is None or isinstance(value, (bool, str, bytes)):
        return value
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value)
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {"map": [[_plain(k), _plain(v)] for k, v in value.items()]}
    if isinstance(value, _native.MemoryDesc):
        try:
            return {"md": _plain(value.plain_form)}
        except UnsupportedError as error:
            raise NotSaved(error.message) from None
    raise NotSaved(f"an argument of type {type(value).__name__}")


def _object(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_object(p) for p in plain]
    if isinstance(plain, dict):
        if "map" in plain:
            return {_object(k): _object(v) for k, v in plain["map"]}
        given = plain["md"]
        return native().MemoryDesc.absent() if given is None else native().MemoryDesc(*given)
    return plain
