"""From IR text to callable machine code: one target machine, a cache on disk, many functions compiled at once."""

from __future__ import annotations

import ctypes
import ctypes.util
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from .code import Code

__all__ = ["Engine", "Function"]

FORMAT: Final = b"mgxjit2\n"


class Function:
    """A compiled loop, or one that waits to be compiled together with others."""

    __slots__ = ("_address", "engine", "symbol")

    def __init__(self, engine: Engine, symbol: str) -> None:
        self.engine = engine
        self.symbol = symbol
        self._address = 0

    @property
    def address(self) -> int:
        """Where its code is; compiles everything that waits."""
        if not self._address:
            self.engine.flush()
        return self._address


class Engine:
    """Compiles kernels for one CPU.

    cpu, features: LLVM's words for another machine than this one; cache: the directory of compiled objects (None: no cache;
    default: ``jit`` in the directory that $MGX_CACHE_DIR names, or ``~/.cache/mgx``).
    Functions are known by the text that determines them; equal texts share one function.
    """

    def __init__(
        self, cpu: str | None = None, features: str | None = None, cache: Path | str | None = "", level: int = 2
    ) -> None:
        import llvmlite  # type: ignore[import-untyped]
        import llvmlite.binding as llvm  # type: ignore[import-untyped]
        from llvmlite.binding import orcjit

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._llvm, self._orc = llvm, orcjit
        self.cpu = cpu or llvm.get_host_cpu_name()
        if features is None:
            features = "" if cpu else llvm.get_host_cpu_features().flatten()
        self.features = features
        self._level = level
        machine = self._machine()
        self.wide = self._has_wide(machine)
        self.lanes = 16 if self.wide else 8
        self.stamp = "|".join((llvmlite.__version__, self.cpu, features, str(level), str(self.lanes)))
        self._jit = orcjit.create_lljit_compiler(machine)
        self._emitter = self._machine()
        self._cache = _cache_directory() if cache == "" else Path(cache) if cache else None
        self._functions: dict[str, Function] = {}
        self._trackers: list[Any] = []
        self._waiting: list[tuple[Function, str, bytes | None]] = []
        self._lock = threading.RLock()
        self._libraries = 0
        self._libm = ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6")
        self.compiled = 0  # functions made by LLVM rather than read from the cache

    def _machine(self) -> Any:
        target = self._llvm.Target.from_default_triple()
        return target.create_target_machine(
            cpu=self.cpu, features=self.features, opt=self._level, reloc="pic", codemodel="small", jit=True
        )

    def _has_wide(self, machine: Any) -> bool:
        """Whether the machine has AVX-512 with byte, doubleword and short vector forms."""
        if "+avx512f" in self.features:
            return all(f"+avx512{x}" in self.features for x in ("f", "bw", "dq", "vl"))
        if self.features:
            return False
        names = (
            "skylake-avx512",
            "cascadelake",
            "icelake",
            "sapphirerapids",
            "znver4",
            "znver5",
            "x86-64-v4",
            "cooperlake",
        )
        return self.cpu.startswith(names)

    # making functions

    def function(self, key: str, build: Callable[[Code], None]) -> Function:
        """The function that `build` writes; `key` holds everything that `build` depends on."""
        symbol = "k" + hashlib.sha256(f"{self.stamp}\n{key}".encode()).hexdigest()[:24]
        with self._lock:
            found = self._functions.get(symbol)
            if found is None:
                found = self._functions[symbol] = Function(self, symbol)
                image = self._read(symbol)
                text = ""
                if image is None:
                    code = Code(self.lanes, self.wide)
                    build(code)
                    text = self._module(code, symbol)
                self._waiting.append((found, text, image))
            return found

    def _module(self, code: Code, symbol: str) -> str:
        width = 512 if self.wide else 256
        attributes = f'nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'
        text = code.text(symbol)
        body = "\n".join([text, *code.extra.values()])
        declared = [d for name, d in sorted(code.declared.items())]
        return "\n".join([body, *declared, f"attributes #0 = {{ {attributes} }}", ""])

    def flush(self) -> None:
        """Compile and load everything that waits."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            if not waiting:
                return
            images = []
            for function, text, image in waiting:
                if image is None:
                    image = self._compile(text)
                    self.compiled += 1
                    self._write(function.symbol, image)
                images.append(image)
            self._load([f for f, _, _ in waiting], images)

    def _compile(self, text: str) -> bytes:
        try:
            module = self._llvm.parse_assembly(text)
        except RuntimeError as error:
            raise RuntimeError(f"{error}\n{text}") from None
        return bytes(self._emitter.emit_object(module))

    def _load(self, functions: list[Function], images: list[bytes]) -> None:
        builder = self._orc.JITLibraryBuilder()
        for function, image in zip(functions, images, strict=True):
            builder.add_object_img(image).export_symbol(function.symbol)
        for name in _LIBM:
            address = ctypes.cast(getattr(self._libm, name), ctypes.c_void_p).value
            builder.import_symbol(name, address)
        for name in ("memcpy", "memset", "memmove"):
            builder.import_symbol(name, ctypes.cast(getattr(self._libm, name), ctypes.c_void_p).value)
        self._libraries += 1
        tracker = builder.link(self._jit, f"mgx{self._libraries}")
        self._trackers.append(tracker)
        for function in functions:
            function._address = tracker[function.symbol]

    def assembly(self, build: Callable[[Code], None]) -> str:
        """The machine code of a function as text, for people."""
        code = Code(self.lanes, self.wide)
        build(code)
        return str(self._emitter.emit_assembly(self._llvm.parse_assembly(self._module(code, "kernel"))))

    # the cache on disk

    def _path(self, symbol: str) -> Path | None:
        return None if self._cache is None else self._cache / f"{symbol}.o"

    def _read(self, symbol: str) -> bytes | None:
        path = self._path(symbol)
        if path is None:
            return None
        try:
            data = path.read_bytes()
        except OSError:
            return None
        head = len(FORMAT)
        image = data[head + 32 :]
        if data[:head] != FORMAT or hashlib.sha256(image).digest() != data[head : head + 32]:
            return None
        return image

    def _write(self, symbol: str, image: bytes) -> None:
        path = self._path(symbol)
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new", delete=False) as file:
                file.write(FORMAT + hashlib.sha256(image).digest() + image)
            os.replace(file.name, path)
        except OSError:
            return  # a cache that cannot be written is no error


_LIBM: Final = tuple(
    name + kind
    for name in ("exp", "expm1", "log", "log1p", "log2", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
                 "asinh", "acosh", "atanh", "erf", "pow", "fmod", "floor", "ceil", "trunc", "rint", "fma")
    for kind in ("", "f")
)  # fmt: skip


def _cache_directory() -> Path:
    root = os.environ.get("MGX_CACHE_DIR")
    return (Path(root) if root else Path.home() / ".cache" / "mgx") / "jit"
