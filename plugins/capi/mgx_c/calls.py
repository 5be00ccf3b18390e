"""Adapts Python functions to C calls: converts arguments and results according to the header's declarations.

The conversion of each parameter follows from its type and position:

| parameter | conversion |
|---|---|
| ``migraphx_X_t x``, ``const_migraphx_X_t x`` | the object that the handle refers to |
| ``migraphx_X_t* x`` as first parameter | returns a new handle; if an X has no destroy function, another handle owns it |
| ``const_migraphx_X_t* x`` as first parameter | returns a handle that lives as long as the handle of the first argument |
| a pointer and a size | a list of numbers, strings or objects; bytes for ``const void*`` |
| ``T* out`` as first parameter | returns a number, a pointer, or an array owned by the handle |
| ``const char*`` | a string, None if null |
| anything else | unchanged, as cffi passes it |
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from .declarations import Function, Parameter
from .handles import Handle, HandleError, Handles

__all__ = ["Calls", "SUCCESS"]

SUCCESS, BAD_PARAMETER, UNKNOWN_TARGET, UNKNOWN_ERROR = 0, 1, 3, 4

_HANDLE = re.compile(r"(?:const )?(const_)?migraphx_(\w+)_t(\*?)$")
_NEVER_DESTROYED = ("module", "context")
_SCALARS = ("size_t*", "bool*", "double*", "migraphx_shape_datatype_t*", "migraphx_program_verify_mode*", "void**")

Read = Callable[..., Any]  # converts one C argument, or a pointer and a size
Store = Callable[[Sequence[Any], Any, "Handle | None", Sequence[Any]], None]  # stores a result


class UnknownTarget(Exception):
    """No installed package provides a target of this name."""


class Calls:
    """Wraps Python functions as C callbacks; stores the message of each thread's last failure."""

    def __init__(self, ffi: Any, lib: Any, kinds: frozenset[str]) -> None:
        self.ffi, self.lib, self.kinds = ffi, lib, kinds
        self.handles = Handles()
        self._cast, self._places = ffi.cast, ffi.typeof("uintptr_t*")
        self._word = ffi.typeof("uintptr_t")
        self._thread = threading.local()
        self._names: dict[str, Any] = {}

    def last_error(self) -> Any:
        return getattr(self._thread, "message", self.name(""))

    def fail(self, name: str, error: BaseException) -> int:
        """Stores and prints the message of a failure; returns the status code."""
        text = f"{name}: {error}" if str(error) else f"{name}: {type(error).__name__}"
        self._thread.message = self.ffi.new("char[]", text.encode())
        print(f"mgx: {text}", file=sys.stderr, flush=True)
        if isinstance(error, HandleError):
            return BAD_PARAMETER
        return UNKNOWN_TARGET if isinstance(error, UnknownTarget) else UNKNOWN_ERROR

    def pointer(self, handle: Handle) -> Any:
        return self.ffi.cast("void*", handle.address)

    def address(self, pointer: Any) -> int:
        return int(self._cast(self._word, pointer))

    def name(self, text: str) -> Any:
        """Returns an interned C string, which is never freed."""
        made = self._names.get(text)
        if made is None:
            made = self._names[text] = self.ffi.new("char[]", text.encode())
        return made

    def text(self, pointer: Any) -> str | None:
        return None if pointer == self.ffi.NULL else self.ffi.string(pointer).decode()

    def array(self, kind: str, pointer: Any, size: int) -> Any:
        """Returns the items of a C array.  Errors: HandleError for a null array that is not empty."""
        if not size:
            return b"" if kind == "const void*" else []
        if pointer == self.ffi.NULL:
            raise HandleError(f"an array of {size} items is required, got null")
        if kind == "const void*":
            return bytes(self.ffi.buffer(self.ffi.cast("char*", pointer), size))
        items = self.ffi.unpack(pointer, size)
        if kind == "const char**":
            return [self.text(i) for i in items]
        held = self._handle(kind)
        return [self.handles.get(self.address(i), held[1]).value for i in items] if held else list(items)

    def _handle(self, kind: str) -> tuple[bool, str, bool] | None:
        """Parses a handle type: whether it is const, its kind, whether it is a pointer to a handle; None for other types."""
        matched = _HANDLE.match(kind)
        return (bool(matched[1]), matched[2], bool(matched[3])) if matched and matched[2] in self.kinds else None

    def wrap(self, function: Function, implementation: Callable[..., Any]) -> Callable[..., int]:
        """Returns a callback for `function`; `implementation` receives converted objects and returns the result."""
        name = function.name.removeprefix("migraphx_")
        parameters = [p for p in function.parameters if p.type != "..."]
        store, skipped = self._store(name, parameters)
        readers = self._readers(parameters, skipped)

        def call(*given: Any) -> int:  # on the path of every run: plain loops for speed
            try:
                owner = None
                values = []
                for index, sized, read in readers:
                    value = read(given[index], given[index + 1]) if sized else read(given[index])
                    if type(value) is Handle:
                        owner = owner or value
                        value = value.value
                    values.append(value)
                if skipped and not given[0]:
                    raise HandleError("a pointer to store the result is required, got null")
                result = implementation(*values)
                if store is not None:
                    store(given, result, owner, values)
            except BaseException as error:  # no exception may propagate into C
                return self.fail(name, error)
            return SUCCESS

        return call

    def _readers(self, parameters: Sequence[Parameter], skipped: int) -> list[tuple[int, bool, Read]]:
        """Returns for each Python argument its index, whether a size follows, and its conversion."""
        made: list[tuple[int, bool, Read]] = []
        index = skipped
        while index < len(parameters):
            after = parameters[index + 1] if index + 1 < len(parameters) else None
            sized = _sized(parameters[index], after)
            made.append((index, sized, self._reader(parameters[index], sized)))
            index += 2 if sized else 1
        return made

    def _reader(self, parameter: Parameter, sized: bool) -> Read:
        kind = parameter.type
        held = self._handle(kind)
        if sized:
            return lambda pointer, size: self.array(kind, pointer, size)
        if held:
            return self._handle_reader(held[1])
        if parameter.name == "buffer":
            return self.address
        return self.text if kind in ("const char*", "char*") else lambda value: value

    def _handle_reader(self, kind: str) -> Read:
        cast, word, get = self._cast, self._word, self.handles.get
        return lambda pointer: get(int(cast(word, pointer)), kind)

    def _store(self, name: str, parameters: Sequence[Parameter]) -> tuple[Store | None, int]:
        """Returns the function that stores a result, and the number of leading parameters that it uses."""
        first = parameters[0]
        held = self._handle(first.type)
        if held and held[2]:
            const, kind, _ = held
            if not const and kind not in _NEVER_DESTROYED:
                return self._put_new(kind), 1
            return self._put_owned(name, kind), 1
        if first.type == "const size_t**":
            return self._put_numbers, 2
        if first.type in _SCALARS and first.name == "out":
            return lambda given, result, *_: given[0].__setitem__(0, result), 1
        if first.type == "char**":
            return self._put_text_or_address, 1
        if first.type == "const char**":
            return self._put_names, 1
        if first.type == "char*" and first.name == "out":
            return self._put_text, 2
        return None, 0

    def _put_new(self, kind: str) -> Store:
        def put(given: Sequence[Any], result: Any, owner: Handle | None, rest: Sequence[Any]) -> None:
            self._put(given, self.handles.new(kind, result))

        return put

    def _put_owned(self, name: str, kind: str) -> Store:
        def put(given: Sequence[Any], result: Any, owner: Handle | None, rest: Sequence[Any]) -> None:
            if owner is None:
                self._put(given, self.handles.new(kind, result))
            else:
                self._put(given, self.handles.owned(owner, (name, *rest[1:]), kind, result))

        return put

    def _put(self, given: Sequence[Any], handle: Handle) -> None:
        self._cast(self._places, given[0])[0] = handle.address

    def _put_numbers(self, given: Sequence[Any], result: Sequence[int], owner: Handle | None, _: Any) -> None:
        made = self.ffi.new("size_t[]", list(result))
        assert owner is not None
        kept = owner.memory.setdefault(tuple(result), made)
        given[0][0], given[1][0] = kept, len(result)

    def _put_names(self, given: Sequence[Any], result: Any, owner: Handle | None, _: Any) -> None:
        if isinstance(result, str) and owner is not None:
            made = self.ffi.new("char[]", result.encode())
            given[0][0] = owner.memory.setdefault(result, made)
            return
        for index, text in enumerate([result] if isinstance(result, str) else result):
            given[0][index] = self.name(text)

    def _put_text_or_address(self, given: Sequence[Any], result: Any, owner: Handle | None, _: Any) -> None:
        given[0][0] = self.name(result) if isinstance(result, str) else self.ffi.cast("char*", result)

    def _put_text(self, given: Sequence[Any], result: str, owner: Handle | None, _: Any) -> None:
        room = given[1]
        if not room:
            raise HandleError("a buffer for the name is required, got 0 bytes")
        text = result.encode()[: room - 1] + b"\0"
        self.ffi.memmove(given[0], text, len(text))


def _sized(parameter: Parameter, after: Parameter | None) -> bool:
    """True if a parameter is an array whose size is the next parameter."""
    return parameter.type.endswith("*") and after is not None and after.type == "size_t" and "size" in after.name
