"""A worker process with limited memory that answers requests; if it dies or times out it is replaced and the request reported."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["Confined"]


class Confined:
    """Runs ``function(request)`` of the Python file `code` in another process.

    memory: bytes of address space; seconds: timeout of one request.
    """

    def __init__(self, code: Path, function: str, memory: int = 4 << 30, seconds: float = 5.0) -> None:
        self.argv = [sys.executable, "-W", "ignore", __file__, str(code), function, str(memory)]
        self.seconds = seconds
        self.process: subprocess.Popen[str] | None = None

    def _start(self) -> subprocess.Popen[str]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        process = subprocess.Popen(
            self.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"the worker process does not start: {' '.join(self.argv)}")
        return process

    def ask(self, request: Any) -> dict[str, Any]:
        """Returns the function's answer with its duration in seconds, or ``{"outcome": "crash" | "hang"}``."""
        if self.process is None:
            self.process = self._start()
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        start = time.perf_counter()
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], self.seconds)
        line = process.stdout.readline() if ready else ""
        took = time.perf_counter() - start
        if line:
            return {**json.loads(line), "seconds": took}
        code = process.wait(5) if ready else None
        self.close()
        if code is None:
            return {"outcome": "hang", "error": f"no answer after {self.seconds} seconds", "seconds": took}
        return {"outcome": "crash", "error": f"the process ended with code {code}", "seconds": took}

    def close(self) -> None:
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self.process = None

    def __enter__(self) -> Confined:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _work(code: str, function: str, memory: int) -> None:
    import resource

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # models may cause output from any library
    sys.path.insert(0, str(Path(code).parent))
    spec = importlib.util.spec_from_file_location("confined_code", code)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["confined_code"] = module
    spec.loader.exec_module(module)
    answer = getattr(module, function)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    _work(sys.argv[1], sys.argv[2], int(sys.argv[3]))
