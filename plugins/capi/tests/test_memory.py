"""Memory: the programs under AddressSanitizer and valgrind, and eight threads for a minute.

Run by ``make test-capi-memory``; takes minutes, since valgrind slows the interpreter down by a factor of fifty.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from mgx_c.locations import root

pytestmark = pytest.mark.slow

HERE: Final = Path(__file__).parent
ENVIRONMENT: Final = {
    **{k: v for k, v in os.environ.items() if not k.startswith("PYTHON")},
    "PYTHONMALLOC": "malloc",  # every object is a separate allocation, which the tools track
    "MGX_PYTHON": sys.executable,
    "MGX_GPU_DEVICE": "host:1",
}
PROGRAMS: Final = {
    "status.c": [],
    "building.cpp": [],
    "options.cpp": [],
    "symbolic.cpp": ["{model}"],
    "verifying.cpp": [],
    "running.cpp": ["{model}"],
    "models.cpp": ["{models}"],
    "custom_operator.cpp": [],
    "device_operator.cpp": [],
    "threads.cpp": ["4", "20", "1000000000"],  # growth is measured without the tools, whose own data grows
    "forking.c": ["{library}"],
}
VALGRIND: Final = (
    "valgrind --quiet --xml=yes --track-origins=yes --leak-check=full --show-leak-kinds=definite --error-limit=no "
    "--num-callers=40 --child-silent-after-fork=yes --fair-sched=yes"
)
# origins of uninitialized bytes that CPython reads
ORIGINS: Final = {
    "_PyLong_New": "int(0) has one digit that is never written; its value is the size, 0, times that digit",
}
Run = Callable[..., subprocess.CompletedProcess[str]]


def compiled(name: str, folder: Path, library: Path, *options: str) -> Path:
    made = folder / name.replace(".", "_")
    compiler = ["c++", "-std=c++14"] if name.endswith("cpp") else ["cc", "-std=gnu11"]
    source = HERE / "programs" / name
    where = [f"-I{library / 'include'}", f"-L{library / 'lib'}", "-lmigraphx_c", f"-Wl,-rpath,{library / 'lib'}"]
    command = [*compiler, "-g", *options, source, "-o", made, *where, "-ldl", "-pthread"]
    subprocess.run(command, check=True)
    return made


def words(name: str, model: Path, models: Path, library: Path) -> list[str]:
    return [w.format(model=model, models=models, library=library / "lib" / "libmigraphx_c.so") for w in PROGRAMS[name]]


def output(done: subprocess.CompletedProcess[str]) -> str:
    return f"status {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}"


# AddressSanitizer, with an instrumented library and instrumented programs


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the library compiled with AddressSanitizer, outside the environment."""
    folder = tmp_path_factory.mktemp("sanitized")
    cmake = Path(sys.executable).parent / "cmake"
    options = [
        f"-DPython_EXECUTABLE={sys.executable}",
        "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
        "-DCMAKE_C_FLAGS=-fsanitize=address -fno-omit-frame-pointer",
    ]
    for command in (
        [cmake, "-S", HERE.parent, "-B", folder / "build", *options],
        [cmake, "--build", folder / "build"],
        [cmake, "--install", folder / "build", "--prefix", folder],
    ):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder / "mgx_c"


@pytest.fixture
def address(sanitized: Path, tmp_path: Path, model: Path, models: Path) -> Run:
    """Runs a program under AddressSanitizer."""

    def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        program = compiled(name, tmp_path, sanitized, "-fsanitize=address")
        # a quarantine of 16 MB, so that growth is the program's
        environment = ENVIRONMENT | {"ASAN_OPTIONS": "detect_leaks=1:quarantine_size_mb=16"}
        given = arguments or words(name, model, models, sanitized)
        return subprocess.run([program, *given], cwd=tmp_path, env=environment, capture_output=True, text=True)

    return run


@pytest.mark.parametrize("name", PROGRAMS)
def test_address_sanitizer(name: str, address: Run) -> None:
    done = address(name)
    assert done.returncode == 0, output(done)


@pytest.mark.parametrize("fault", ["beyond", "freed", "lost"])
def test_address_sanitizer_finds_faults(fault: str, address: Run) -> None:
    assert address("faulty.c", "none").returncode == 0
    found = address("faulty.c", fault)
    assert found.returncode != 0 and "faulty.c" in found.stderr


def test_address_sanitizer_inside_a_python_process(sanitized: Path) -> None:
    """Leaks are not checked: the interpreter's own leaks at exit are not the library's."""
    runtime = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    code = (
        f"import ctypes; library = ctypes.CDLL({str(sanitized / 'lib' / 'libmigraphx_c.so')!r}); p = ctypes.c_void_p()\n"
        "assert library.migraphx_target_create(ctypes.byref(p), b'cpu') == 0\n"
        "assert library.migraphx_target_destroy(p) == 0 and library.migraphx_target_destroy(p) == 1\n"
    )
    environment = ENVIRONMENT | {"LD_PRELOAD": runtime.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, output(done)


# valgrind, on the installed library


@pytest.fixture
def memcheck(tmp_path: Path, model: Path, models: Path) -> Callable[..., list[str]]:
    """Runs a program under valgrind; returns the errors that are not caused by CPython or the dynamic loader."""
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")

    def run(name: str, *arguments: str) -> list[str]:
        program = compiled(name, tmp_path, root())
        report = tmp_path / "report.xml"
        tool = [*VALGRIND.split(), f"--xml-file={report}", f"--suppressions={HERE / 'memcheck.supp'}"]
        command = [*tool, program, *(arguments or words(name, model, models, root()))]
        done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
        assert done.returncode == 0, output(done)
        return [text for error in ElementTree.parse(report).iter("error") if (text := described(error))]

    return run


def frames(stack: ElementTree.Element) -> list[tuple[str, str]]:
    """Returns function and file of each frame, the innermost first."""
    return [(f.findtext("fn", "?"), Path(f.findtext("obj", "?")).name) for f in stack.iter("frame")]


def described(error: ElementTree.Element) -> str:
    """Returns an error as text, or nothing if it is CPython's: a read inside CPython of memory that CPython left uninitialized.

    Valgrind loses the origin of some values; these count as CPython's if the read is inside CPython.
    """
    kind = error.findtext("kind", "?")
    stacks = [frames(s) for s in error.findall("stack")]
    if kind.startswith("Uninit"):
        origin = {function for function, _ in stacks[1][:3]} if len(stacks) > 1 else set()
        inside = stacks[0][0][1].startswith(("libpython3", "_")) and stacks[0][0][1] != "_cffi_backend"
        if origin & ORIGINS.keys() or (inside and not origin):
            return ""
    lines = [f"{function} ({file})" for stack in stacks for function, file in stack]
    return "\n  ".join([f"{kind}: {error.findtext('what') or error.findtext('xwhat/text')}", *lines])


@pytest.mark.parametrize("name", PROGRAMS)
def test_valgrind(name: str, memcheck: Callable[..., list[str]]) -> None:
    errors = memcheck(name)
    assert not errors, "\n\n".join(errors)


def test_valgrind_finds_faults(memcheck: Callable[..., list[str]]) -> None:
    """Uses one process, since an interpreter takes most of a minute to start."""
    faults = ["beyond", "freed", "lost", "unwritten"]
    found = memcheck("faulty.c", "none", *faults)
    assert all(any(f"{fault} (faulty_c)" in error for fault in faults) for error in found)
    assert not [fault for fault in faults if not any(f"{fault} (faulty_c)" in error for error in found)], found


# the library without tools


def test_eight_threads_for_a_minute(tmp_path: Path) -> None:
    """Checks results, and that memory grows by at most 8 MB in the second half."""
    program = compiled("threads.cpp", tmp_path, root())
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run([program, "8", "60", "8192"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, output(done)
    print(done.stdout.strip())
