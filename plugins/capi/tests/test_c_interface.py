"""The library used from C and C++ programs that are compiled here, and from Python.

Run by ``make test-capi``, since compiling the programs takes longer than a unit test.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mgx_c.declarations import functions
from mgx_c.locations import root

PROGRAMS = Path(__file__).parent / "programs"
FLAGS = [
    f"-I{root() / 'include'}",
    f"-L{root() / 'lib'}",
    "-lmigraphx_c",
    f"-Wl,-rpath,{root() / 'lib'}",
    "-ldl",
    "-pthread",
]
Build = Callable[..., Path]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    folder = tmp_path_factory.mktemp("programs")

    def build(name: str, *options: str, into: str = "") -> Path:
        made = folder / (into or name.replace(".", "_"))
        if not made.exists():
            compiler = ["c++", "-std=c++14"] if name.endswith("cpp") else ["cc", "-std=gnu11"]
            command = [
                *compiler,
                "-Wall",
                "-Wextra",
                "-Werror",
                *options,
                str(PROGRAMS / name),
                "-o",
                str(made),
                *FLAGS,
            ]
            subprocess.run(command, check=True)
        return made

    return build


def run(program: Path, *arguments: object, folder: Path, **environment: str) -> str:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [program, *map(str, arguments)],
        cwd=folder,
        env=inherited | environment,
        text=True,
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_library_exports_the_header_and_nothing_else() -> None:
    declared = {f.name for f in functions((root() / "include" / "migraphx" / "migraphx.h").read_text())}
    assert len(declared) == 201
    table = subprocess.run(
        ["nm", "-D", "--defined-only", root() / "lib" / "libmigraphx_c.so"], capture_output=True, text=True
    )
    exported = {line.split()[-1] for line in table.stdout.splitlines()}
    assert exported == declared | {"mgx_last_error", "migraphx_test_private_disable_exception_catch"}


def test_shapes_arguments_modules_and_messages(build: Build, tmp_path: Path) -> None:
    run(build("building.cpp"), folder=tmp_path)


def test_compile_options_are_accessed_by_handle(build: Build, tmp_path: Path) -> None:
    run(build("options.cpp"), folder=tmp_path)


def test_programs_are_compared_with_the_reference(build: Build, tmp_path: Path) -> None:
    run(build("verifying.cpp"), folder=tmp_path)


def test_extents_that_are_expressions(build: Build, model: Path, tmp_path: Path) -> None:
    run(build("symbolic.cpp"), model, folder=tmp_path)


def test_a_model_is_parsed_run_traced_saved_and_loaded(build: Build, model: Path, tmp_path: Path) -> None:
    run(build("running.cpp"), model, folder=tmp_path)


@pytest.mark.parametrize("standard", ["c++14", "c++17"])
def test_options_of_reading(standard: str, build: Build, models: Path, tmp_path: Path) -> None:
    program = build("models.cpp", f"-std={standard}", into=f"models_{standard}")
    assert "@literal" in run(program, models, folder=tmp_path)


def test_operators_of_the_programs_own(build: Build, tmp_path: Path) -> None:
    run(build("custom_operator.cpp"), folder=tmp_path)


def test_operators_of_the_programs_own_on_a_device(build: Build, tmp_path: Path) -> None:
    run(build("device_operator.cpp"), folder=tmp_path, MGX_GPU_DEVICE="host:1")


def test_bad_handles_become_status_codes(build: Build, tmp_path: Path) -> None:
    run(build("status.c"), folder=tmp_path)


def test_threads_share_a_program(build: Build, tmp_path: Path) -> None:
    run(build("threads.cpp"), 4, 2, 8192, folder=tmp_path)


def test_forks_and_dlopen(build: Build, tmp_path: Path) -> None:
    run(build("forking.c"), root() / "lib" / "libmigraphx_c.so", folder=tmp_path)


def test_inside_a_python_process() -> None:
    library = ctypes.CDLL(str(root() / "lib" / "libmigraphx_c.so"))
    library.mgx_last_error.restype = ctypes.c_char_p
    target = ctypes.c_void_p()
    assert library.migraphx_target_create(ctypes.byref(target), b"ref") == 0
    assert library.migraphx_target_create(ctypes.byref(target), b"nowhere") == 3
    assert b"nowhere" in library.mgx_last_error()
    assert library.migraphx_target_destroy(ctypes.c_void_p(12345)) == 1


def test_an_interpreter_without_the_package_is_an_error(build: Build, tmp_path: Path) -> None:
    """The library, copied out of its environment, reports what it searched for."""
    lost = tmp_path / "somewhere" / "mgx_c" / "lib"
    lost.mkdir(parents=True)
    shutil.copy(root() / "lib" / "libmigraphx_c.so.3", lost)
    environment = {"LD_LIBRARY_PATH": str(lost)}
    program = build("status.c")
    unset = subprocess.run(["patchelf", "--version"], capture_output=True) if shutil.which("patchelf") else None
    if unset is None:
        code = f"import ctypes; l = ctypes.CDLL({str(lost / 'libmigraphx_c.so.3')!r}); l.mgx_last_error.restype = ctypes.c_char_p\n"
        code += "t = ctypes.c_void_p(); print(l.migraphx_target_create(ctypes.byref(t), b'ref'), l.mgx_last_error().decode())"
        base = Path(sys.base_prefix) / "bin" / "python3"
        done = subprocess.run([base, "-I", "-c", code], capture_output=True, text=True)
        assert re.match(r"4 the Python package mgx_c cannot be imported .*MGX_PYTHON", done.stdout), (
            done.stdout + done.stderr
        )
    else:
        assert subprocess.run([program], env=os.environ | environment).returncode != 0


EXAMPLES = Path(__file__).parents[3] / "examples"
MODEL = EXAMPLES / "digits" / "digits.onnx"


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    cmake = Path(sys.executable).parent / "cmake"
    package = f"-Dmigraphx_DIR={root() / 'lib' / 'cmake' / 'migraphx'}"
    for command in ([cmake, "-S", EXAMPLES / "cpp", "-B", folder, package], [cmake, "--build", folder]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


def test_the_example_classifies_a_digit(examples: Path) -> None:
    stored = np.load(EXAMPLES / "digits" / "digits.npz")
    rows = "\n".join(" ".join(map(str, row)) for row in stored["images"][0].tolist())
    done = subprocess.run([examples / "digits", MODEL], input=rows, text=True, capture_output=True, check=True)
    assert int(done.stdout) == stored["answers"][0].argmax()


def test_the_example_runs_several_batches(examples: Path, tmp_path: Path) -> None:
    said = run(examples / "dynamic_batch", MODEL, folder=tmp_path).splitlines()
    assert said == [f"{n} images, {n} x 10 scores" for n in (1, 3, 64, 2)]


def test_the_example_saves_and_loads(examples: Path, tmp_path: Path) -> None:
    assert "the same result" in run(examples / "parse_load_save", MODEL, "digits.mxr", folder=tmp_path)


def test_the_example_traces(examples: Path, tmp_path: Path) -> None:
    lines = [line.split() for line in run(examples / "trace", MODEL, folder=tmp_path).splitlines()]
    assert lines[0][1] == "@param" and len(lines) > 3 and all(float(largest) >= 0 for _, _, largest in lines)


def test_the_example_calls_a_library(examples: Path, tmp_path: Path) -> None:
    assert run(examples / "custom_operator", folder=tmp_path).split() == ["-1", "-3", "-6", "-10", "-15"]


def written_as_cpp(program: Any, body: str, folder: Path) -> list[str]:
    """Writes a program as C++ with this body of main, runs it and returns the words that it prints."""
    from mgx_core.ir.text.cpp import cpp

    (folder / "made.cpp").write_text(f"{cpp(program.core.get_main_module())}\nint main()\n{{{body}}}\n")
    subprocess.run(["c++", "-std=c++14", folder / "made.cpp", "-o", folder / "made", *FLAGS], check=True)
    return run(folder / "made", folder=folder).split()


def test_a_program_with_a_symbolic_batch_written_as_cpp_accepts_any(model: Path, tmp_path: Path) -> None:
    import migraphx

    program = migraphx.parse_onnx(model, default_dyn_dim_value=migraphx.shape.dynamic_dimension(1, 8))
    body = """
    auto p = make_program();
    p.compile(migraphx::target("ref"));
    for (std::size_t rows : {1, 3}) {
        std::vector<float> values(4 * rows, 1);
        migraphx::argument x(migraphx::shape(migraphx_shape_float_type, {rows, 4}), values.data());
        for (float value : p.eval({{"x", x}}).front().as_vector<float>()) std::printf("%g ", value);
    }
"""
    assert written_as_cpp(program, body, tmp_path) == ["2", "0", "4", "0"] * 4


def test_a_program_written_as_cpp_gives_equal_results(build: Build, tmp_path: Path) -> None:
    import migraphx

    program = migraphx.parse_onnx(MODEL)
    body = """
    auto p = make_program();
    p.compile(migraphx::target("ref"));
    auto shapes = p.get_parameter_shapes();
    const char* name = shapes.names().front();
    auto result = p.eval({{name, migraphx::argument::generate(shapes[name])}}).front();
    for (float value : result.as_vector<float>()) std::printf("%.6g ", value);
"""
    found = written_as_cpp(program, body, tmp_path)
    program.compile(migraphx.get_target("ref"))
    ((name, shape),) = program.get_parameter_shapes().items()
    expected = np.array(program.run({name: migraphx.generate_argument(shape)})[0]).reshape(-1)
    np.testing.assert_allclose([float(v) for v in found], expected, rtol=1e-5)
