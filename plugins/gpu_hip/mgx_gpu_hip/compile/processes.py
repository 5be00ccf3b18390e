"""Compiles in several processes, for compilers whose threads wait for each other's locks.

On 16 cores NVRTC 13 compiles 17 products per second in 8 threads, and no more in 16.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, Final

from mgx_core.named_tuples import NamedTuple

from .compiler import CompileError, Compiler

__all__ = ["MOST", "compiler_processes"]

MOST: Final = 16  # processes
SECONDS: Final = 10  # for a process to end
START: Final = "import sys; from mgx_gpu_hip.compile.processes import serve; serve(int(sys.argv[1]))"


@contextmanager
def compiler_processes(compiler: Compiler, count: int) -> Iterator[Compiler]:
    """Context manager: a compiler that compiles in `count` processes; the given one if processes cannot be started."""
    if not Path(sys.executable or "").name.startswith("python"):
        yield compiler  # Python is embedded in a program, which would be started instead
        return
    made = _Processes(compiler)
    try:
        with suppress(OSError):
            for _ in range(count):
                made.start()
        yield made if made.all else compiler
    finally:
        made.end()


class _Process(NamedTuple):
    """A process, and the pipe of its answers: not the standard output, to which any module that it imports may print."""

    child: subprocess.Popen[bytes]
    answers: IO[bytes]


class _Processes:
    """A compiler that passes each source to an idle process, and compiles it here if that process fails."""

    def __init__(self, compiler: Compiler) -> None:
        self.compiler = compiler
        self.name, self.version, self.locks = compiler.name, compiler.version, False
        self.all: list[_Process] = []
        self.idle: SimpleQueue[_Process] = SimpleQueue()

    def start(self) -> None:
        paths = os.pathsep.join(p or os.getcwd() for p in sys.path)
        source, target = os.pipe()
        answers = os.fdopen(source, "rb")
        try:
            child = subprocess.Popen(
                [sys.executable, "-c", START, str(target)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[target],
                # safe: files of the working directory are imported only if this process would import them, too
                env={**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1"},
            )
        except OSError:
            answers.close()
            raise
        finally:
            os.close(target)
        made = _Process(child, answers)
        self.all.append(made)
        kind = type(self.compiler)
        with suppress(OSError):  # a process that has ended is noticed when it is used
            _send(child.stdin, (kind.__module__, kind.__name__))
        self.idle.put(made)

    def compile(self, text: str, flags: Sequence[str], arch: str) -> bytes:
        """Errors: as of the compiler."""
        process = self.idle.get()
        try:
            _send(process.child.stdin, (text, tuple(flags), arch))
            image, failed = pickle.load(process.answers)
        except (OSError, EOFError, pickle.UnpicklingError):
            process.child.kill()  # what it may still write is not the answer to another source
            return self.compiler.compile(text, flags, arch)
        finally:
            self.idle.put(process)
        if failed is not None:
            raise CompileError(f"{self.name} {self.version}", arch, failed)
        return bytes(image)

    def end(self) -> None:
        for child, _ in self.all:
            with suppress(OSError):
                child.stdin.close()  # type: ignore[union-attr]
        for child, answers in self.all:
            with suppress(subprocess.TimeoutExpired):
                child.wait(SECONDS)
            child.kill()
            child.wait()
            answers.close()


def _send(pipe: Any, message: Any) -> None:
    pipe.write(pickle.dumps(message))
    pipe.flush()


def serve(target: int) -> None:
    """Runs in a process: compiles sources from the standard input until it ends; writes the answers to a file descriptor."""
    given, out = sys.stdin.buffer, os.fdopen(target, "wb")
    module, name = pickle.load(given)
    compiler = getattr(import_module(module), name)()
    while True:
        try:
            text, flags, arch = pickle.load(given)
        except EOFError:
            return
        image, failed = b"", None
        try:
            image = compiler.compile(text, flags, arch)
        except CompileError as error:
            failed = error.log
        _send(out, (image, failed))
