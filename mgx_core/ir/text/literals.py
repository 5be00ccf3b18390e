"""The text form of literals' values; parsing restores the same bits."""

from __future__ import annotations

import base64
import re
from typing import Any, Final

import numpy as np

from ...ops.attributes import show
from ...types.argument import Array, Value
from ...types.dtype import DType
from ...types.dtype import of as dtype_of

__all__ = ["SHOWN", "array_from_base64", "array_from_words", "unescaped", "value_text", "words_of"]

SHOWN: Final = 16  # elements written out; larger literals are named by a digest or, in the full form, written in base64

_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.?))", re.DOTALL)
_PLAIN_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"'}
_WORD: Final = re.compile(r'b?"(?:[^"\\]|\\.)*"|[^,\s]+')


def value_text(value: Value, full: bool) -> str:
    """Returns a literal's value as printed in the parentheses of ``@literal(...)``."""
    if isinstance(value, np.ndarray):
        return _array_text(value, full)
    if isinstance(value, tuple):
        return f"tuple {{{_items_text(value, full)}}}"
    if isinstance(value, list):
        return f"list {{{_items_text(value, full)}}}"
    if value is None:
        return "none"
    return f"<{type(value).__name__}>"  # maps: shown, not parseable


def _items_text(items: Any, full: bool) -> str:
    """Returns items of a tuple or list; tensors with their type."""
    return ", ".join(
        f"{dtype_of(v.dtype)}[{', '.join(map(str, v.shape))}]({value_text(v, full)})"
        if isinstance(v, np.ndarray)
        else value_text(v, full)
        for v in items
    )


def _array_text(array: Array, full: bool) -> str:
    dtype = dtype_of(array.dtype)
    if array.size > SHOWN and not full:
        return f"<{array.size} elements, digest {_digest(array)}>"
    if dtype.kind == "s":
        return ", ".join(map(show, array.reshape(-1).tolist()))
    if array.size <= SHOWN:
        flat = np.ascontiguousarray(array).reshape(-1)
        words = [_number_text(v, dtype) for v in flat]
        back = array_from_words(words, dtype)
        if back is not None and back.tobytes() == flat.tobytes():
            return ", ".join(words)
    return f'base64 "{base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()}"'


def _digest(array: Array) -> str:
    import hashlib  # loads a library, which is needed for printing only

    hashed = hashlib.blake2b(digest_size=6)
    if array.dtype == object:
        for item in array.reshape(-1).tolist():
            hashed.update(show(item).encode())
    else:
        hashed.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return hashed.hexdigest()


def _number_text(value: Any, dtype: DType) -> str:
    match dtype.kind:
        case "b":
            return "true" if value else "false"
        case "i" | "u":
            return str(int(value))
        case "c":
            return repr(complex(value))
        case _:
            return str(value) if dtype.name == "float32" else repr(float(value))  # float32: the shortest decimal


def words_of(text: str) -> list[str]:
    """Splits a list of elements into words, keeping strings whole."""
    return _WORD.findall(text)


def array_from_words(words: list[str], dtype: DType) -> Array | None:
    """Parses elements; None if a word is not an element of the type."""
    try:
        match dtype.kind:
            case "s":
                return _strings(words)
            case "b":
                return np.array([{"true": True, "false": False}[w] for w in words], np.bool_)
            case "i" | "u":
                values = [int(w) for w in words]
                if any(not dtype.lowest <= v <= dtype.highest for v in values):
                    return None
                return np.array(values, dtype.numpy if dtype.bits >= 8 else np.int8).astype(dtype.numpy)
            case "c":
                return np.array([complex(w) for w in words], dtype.numpy)
            case _:
                with np.errstate(over="ignore", invalid="ignore"):
                    return np.array([float(w) for w in words], np.float64).astype(dtype.numpy)
    except (KeyError, ValueError, OverflowError):
        return None


def unescaped(body: str) -> str:
    """Decodes a string that `show` wrote between double quotes.  Errors: ValueError for other escapes."""

    def character(found: re.Match[str]) -> str:
        code = found[1] or found[2] or found[3]
        if code:
            return chr(int(code, 16))
        if found[4] not in _PLAIN_ESCAPES:
            raise ValueError(f"there is no escape sequence {found[0]}")
        return _PLAIN_ESCAPES[found[4]]

    return _ESCAPE.sub(character, body) if "\\" in body else body


def _strings(words: list[str]) -> Array:
    out = np.empty(len(words), object)
    for n, word in enumerate(words):
        if word.startswith('b"'):
            out[n] = bytes.fromhex(word[2:-1])
        elif word.startswith('"'):
            out[n] = unescaped(word[1:-1])
        else:
            raise ValueError(word)
    return out


def array_from_base64(text: str, dtype: DType, count: int) -> Array | None:
    """Decodes little-endian elements; None if the text is malformed or of another size."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    if dtype.kind == "s" or len(data) != count * dtype.size:
        return None
    return np.frombuffer(bytearray(data), np.uint8).view(dtype.numpy) if count else np.empty(0, dtype.numpy)
