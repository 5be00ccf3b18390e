"""JIT engine: compiles IR text to object code with LLVM, caches objects on disk and loads them in batches.

LLVM is imported only when a function has to be compiled; prebuilt and cached objects are loaded without it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

from mgx_core import DeviceError
from mgx_core.cache import DiskCache, Held
from mgx_core.garbage import ends_with_the_process
from mgx_core.hashing import sha256
from mgx_core.records import dataclass

from ..native_library import native
from .code import Code
from .opcodes import KEY as INTERPRETER
from .prebuilt import FEATURES, PROCESSORS, PrebuiltLoops, file_name, kind_of, symbol_of

__all__ = ["Engine", "Function"]

FORMAT: Final = 4
LEVEL: Final = 2  # LLVM's optimization level
# prefixes of AMD's CPU names: LLVM's, and those of `cpu_key`, which starts with cpuid's vendor string ("AuthcAMD")
DIVIDING: Final = ("znver", "68747541444d4163")


_engines: WeakSet[Engine] = WeakSet()
_forks = threading.Lock()
_acquired: list[Any] = []  # locks held by a thread that forks


def _acquire_locks() -> None:
    """Waits until no thread compiles: a forked child would inherit held locks, LLVM's too, and never release them."""
    _forks.acquire()
    for engine in list(_engines):
        engine._lock.acquire()
        _acquired.append(engine._lock)


def _release_locks() -> None:
    while _acquired:
        _acquired.pop().release()
    _forks.release()


os.register_at_fork(before=_acquire_locks, after_in_parent=_release_locks, after_in_child=_release_locks)


class Function:
    """A compiled loop, or one that is pending: functions are compiled and loaded in batches."""

    __slots__ = ("_address", "engine", "symbol")

    def __init__(self, engine: Engine, symbol: str) -> None:
        self.engine = engine
        self.symbol = symbol
        self._address = 0

    @property
    def address(self) -> int:
        """Returns the address of its code; compiles all pending functions.

        Errors: DeviceError if it cannot be compiled or loaded; the next call tries again.
        """
        if not self._address:
            self.engine.make(self)
        return self._address


@dataclass
class _Pending:
    """A function that is not loaded yet.

    build: generates its code; text: the IR (empty if not generated because the object was cached); image: the object file.
    """

    function: Function
    build: Callable[[Code], None]
    text: str
    image: bytes | None


class Engine:
    """Compiles kernels for one CPU.

    cpu, features: LLVM's names of a CPU other than the host and of its features; cache: directory of compiled objects (None: no
    cache; default: ``jit`` in the user's cache folder); ready: folders searched for prebuilt loops.
    Functions are cached by their key; equal keys share one function.
    """

    def __init__(
        self,
        cpu: str | None = None,
        features: str | None = None,
        cache: Path | str | None = "",
        ready: Sequence[str] = (),
    ) -> None:
        self.cpu = cpu or ""  # empty: the host
        self.features = features or ""
        self.wide = self._has_wide()
        self.lanes = 16 if self.wide else 8
        machine = cpu or native().cpu_key()
        self.divides = machine.startswith(DIVIDING)
        self.bfloat16 = self.wide and not cpu and not features and "avx512_bf16" in native().cpu_features()
        self.stamp = "|".join((_generator(), machine, self.features, str(LEVEL), str(self.lanes)))
        self._cache = None if cache is None else DiskCache("jit", FORMAT, Path(cache) if cache else None)
        self._ready_in = ready
        self._functions: dict[str, Function] = {}
        self._loaded: list[Any] = []
        self._images: dict[int, tuple[str, bytes]] = {}
        self._failed: dict[str, tuple[_Pending, str]] = {}  # by symbol, with the reason
        self._waiting: list[_Pending] = []
        self._lock = threading.RLock()
        _engines.add(self)
        self.compiled = 0  # functions compiled by LLVM rather than loaded from a cache

    @cached_property
    def _emitter(self) -> Any:
        """Returns LLVM's target machine."""
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        ends_with_the_process(llvm.TargetMachine)
        here = not self.cpu
        return llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name() if here else self.cpu,
            features=llvm.get_host_cpu_features().flatten() if here and not self.features else self.features,
            opt=LEVEL,
            reloc="pic",
            codemodel="small",
            jit=True,
        )

    @property
    def isa(self) -> str:
        """Returns the suffix of the native module's loops for this CPU's instruction set."""
        return "avx512" if self.wide else "avx2"

    def _has_wide(self) -> bool:
        """Returns True if the CPU has AVX-512 with its BW, DQ and VL extensions."""
        parts = ("f", "bw", "dq", "vl")
        if not self.cpu and not self.features:
            return {f"avx512{x}" for x in parts} <= set(native().cpu_features())
        if "+avx512f" in self.features:
            return all(f"+avx512{x}" in self.features for x in parts)
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

    # functions

    def function(self, key: str, build: Callable[[Code], None]) -> Function:
        """Returns the function that `build` generates; `key` must determine its code."""
        symbol = symbol_of(self.stamp, key)
        with self._lock:
            found = self.found(key, build)
            if found is None:
                found = self._functions[symbol] = Function(self, symbol)
                self._waiting.append(_Pending(found, build, self._text(symbol, build), None))
            return found

    def found(self, key: str, build: Callable[[Code], None]) -> Function | None:
        """Returns a function if its object is loaded, prebuilt or cached; None if LLVM would have to compile it."""
        symbol = symbol_of(self.stamp, key)
        with self._lock:
            found = self._functions.get(symbol)
            if found is None:
                ready, image = self._ready.get(key) or (symbol, None)
                if image is None and self._cache is not None:
                    image = self._cache.get(symbol)
                if image is None:
                    return None
                found = self._functions[symbol] = Function(self, ready)
                self._waiting.append(_Pending(found, build, "", image))
            return found

    @cached_property
    def interpreter(self) -> Function | None:
        """Returns the bytecode interpreter for loops that are not compiled; None if the package was built without it."""
        return self.found(INTERPRETER, _write_interpreter) if self._ready.get(INTERPRETER) else None

    @cached_property
    def _ready(self) -> PrebuiltLoops:
        """Returns the prebuilt loops of the package that this CPU can run."""
        kind = kind_of(self.wide, self.divides)
        able = set(native().cpu_features()) >= FEATURES[PROCESSORS[kind]]
        paths = (Path(folder, file_name(kind)) for folder in self._ready_in if able)
        return PrebuiltLoops(next((path for path in paths if path.is_file()), None))

    def _text(self, symbol: str, build: Callable[[Code], None]) -> str:
        code = Code(self.lanes, self.wide, self.divides, self.bfloat16)
        build(code)
        return self._module(code, symbol)

    def _module(self, code: Code, symbol: str) -> str:
        width = 512 if self.wide else 256
        attributes = f'nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'
        text = code.text(symbol)
        body = "\n".join([text, *code.extra.values()])
        declared = [d for name, d in sorted(code.declared.items())]
        return "\n".join([body, *declared, f"attributes #0 = {{ {attributes} }}", ""])

    def flush(self) -> None:
        """Compiles and loads all pending functions; a failure is recorded, and raised when the failed function is used."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            ready = [p for p in waiting if p.image is not None or self._compiled(p)]
            try:
                self._load(ready)
            except DeviceError:
                for one in ready:  # one bad object fails the whole batch
                    self._load_alone(one)

    def make(self, function: Function) -> None:
        """Compiles and loads all pending functions; retries `function` if it failed.  Errors: DeviceError if it fails again."""
        with self._lock:
            failed = self._failed.pop(function.symbol, None)
            if failed is not None:
                self._waiting.append(failed[0])
            self.flush()
            again = self._failed.get(function.symbol)
            if again is not None:
                raise DeviceError(f"cannot compile a loop: {again[1]}")

    def _compiled(self, pending: _Pending) -> bool:
        """Compiles a pending function and caches the object; False, with the error recorded, if that fails."""
        symbol = pending.function.symbol
        try:
            pending.text = pending.text or self._text(symbol, pending.build)
            pending.image = image = self.emit_object(pending.text)
        except (RuntimeError, MemoryError, OSError, ImportError) as error:
            self._failed[symbol] = pending, str(error) or type(error).__name__
            return False
        self.compiled += 1
        if self._cache is not None:
            self._cache.put(symbol, image)
        return True

    def _load_alone(self, pending: _Pending) -> None:
        """Loads one function; if its object came from a cache and cannot be loaded, compiles it again."""
        try:
            try:
                self._load([pending])
            except DeviceError:
                if pending.text:
                    raise
                if self._compiled(pending):
                    self._load([pending])
        except DeviceError as error:
            pending.image = None
            self._failed[pending.function.symbol] = pending, error.message

    def emit_object(self, text: str) -> bytes:
        """Compiles IR text to an object file.  Errors: RuntimeError if LLVM refuses the text."""
        return bytes(self._emitter.emit_object(self._parsed(text)))

    def _parsed(self, text: str) -> Any:
        import llvmlite.binding as llvm

        try:
            return llvm.parse_assembly(text)
        except RuntimeError as error:
            raise RuntimeError(f"{error}\n{text}") from None

    def _load(self, made: list[_Pending]) -> None:
        if not made:
            return
        images = [p.image or b"" for p in made]
        loaded = native().CodeImage(images)
        addresses = [loaded.address(p.function.symbol) for p in made]
        self._loaded.append(loaded)
        for one, address, image in zip(made, addresses, images, strict=True):
            one.function._address = address
            self._images[address] = one.function.symbol, image

    def held(self) -> Held:
        """Returns the number of loaded functions and the bytes of their object files."""
        with self._lock:
            return Held(len(self._images), sum(len(image) for _, image in self._images.values()))

    def objects(self) -> dict[str, bytes]:
        """Returns the object files of all loaded functions by symbol."""
        with self._lock:
            return dict(self._images.values())

    def image(self, address: int) -> tuple[str, bytes] | None:
        """Returns the symbol and object file of the loaded function at an address; None if there is none."""
        return self._images.get(address)


def _write_interpreter(c: Code) -> None:
    from .opcode_handlers import write

    write(c)


@cache
def _generator() -> str:
    """Returns a hash of the code generator's sources, so that objects of older versions are not loaded."""
    with os.scandir(Path(__file__).parent) as entries:
        found = sorted((e.name, e.stat().st_size, e.stat().st_mtime_ns) for e in entries if e.name.endswith(".py"))
    return sha256(repr(found).encode()).hexdigest()[:16]
