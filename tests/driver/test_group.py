"""Command lookup, exit codes of errors, and options with several values."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from mgx_core.driver.group import COMMANDS, SEPARATOR, DriverCommand
from mgx_core.plugins.manager import Lazy, hookimpl


def test_help_lists_every_command_and_teaches(drive):
    text = drive("--help")
    for name in (*COMMANDS, "hello"):
        assert f"\n  {name} " in text
    assert "mgx-driver perf model.onnx" in text
    for name in COMMANDS:
        assert "Examples:" in drive(name, "--help")


def test_help_imports_no_operations_or_tables():
    code = (
        "import sys; from mgx_core.driver import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('rich', 'onnx', 'mgx_core.driver.perf', 'mgx_core.store') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip().endswith("[]")


def test_module_is_runnable():
    done = subprocess.run([sys.executable, "-m", "mgx_core", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("mgx-driver")


def test_plugin_command(drive):
    assert drive("hello") == "hello from a plugin\n"


def test_plugin_command_that_does_not_load(drive, plugins):
    class Bad:
        @staticmethod
        @hookimpl
        def commands():
            return [Lazy("bad", "mgx_core.errors:nothing", "Broken.")]

    plugins.register(Bad, "bad")
    assert "bad" in drive("--help")
    assert "could not be loaded" in drive("bad", code=3)
    assert drive("hello") == "hello from a plugin\n"


def test_unknown_and_misplaced_commands(drive):
    assert "did you mean 'verify'" in drive("verfy", code=2)
    assert "the command comes first: main run model.onnx" in drive("model.onnx", "run", code=2)


def test_aliases(drive):
    assert drive("op", "dot") == drive("ops", "dot")


def test_many_values_become_one_token():
    command = DriverCommand("x", many=("--input-dim", "-p"))
    args = ["m", "--input-dim", "@x", "1", "-1", "--ref", "-p", "a", "b", "--input-dim=@y", "2", "--", "-p", "q"]
    joined = ["m", "--input-dim", f"@x{SEPARATOR}1{SEPARATOR}-1", "--ref", "-p", f"a{SEPARATOR}b"]
    assert command.joined(args) == [*joined, "--input-dim", f"@y{SEPARATOR}2", "--", "-p", "q"]


def test_errors_are_one_line_with_status_2(drive, tmp_path):
    path = tmp_path / "m.chain"
    path.write_text("one line")
    text = drive("read", path, code=2)
    assert text.startswith("error: ")
    assert text.count("\n") == 1
    assert "two lines are required, got 1" in text


def test_traceback_on_request(drive, tmp_path):
    path = tmp_path / "m.chain"
    path.write_text("one line")
    for args in (["--traceback", "read", path], ["read", path, "--traceback"]):
        assert "Traceback (most recent call last)" in drive(*args, code=2)


def test_bugs_have_a_status_of_their_own(drive, tmp_path):
    path = tmp_path / "m.chain"
    path.write_bytes(b"\xff\xfe")  # the tests' frontend has no check of its own for this
    assert "m.chain': frontend 'chain' failed: UnicodeDecodeError" in drive("read", path, code=3)


@pytest.mark.parametrize("args", [["read"], ["read", "nothing.chain"], ["run", "--test", "--ref", "--target", "host"]])
def test_usage_errors(drive, args):
    drive(*args, code=2)


def test_missing_target_says_what_to_install(drive):
    assert "pip install mgx-ref" in drive("run", "--test", "--ref", code=2)


def test_json_is_one_document(drive):
    for args in (
        ["params", "--test"],
        ["run", "--test"],
        ["perf", "--test", "-n", "2"],
        ["verify", "--test"],
        ["ops"],
        ["plugins"],
    ):
        json.loads(drive(*args, "--json"))


LOUD = """
import ctypes, sys
from types import SimpleNamespace
from mgx_core.plugins import manager as plugins
from mgx_core import Frontend, Program, Shape, op
from mgx_core.driver import main
from mgx_core.plugins.manager import Lazy, Plugins, hookimpl

class Loud(Frontend):
    def parse_buffer(self, data):
        print("from Python")
        ctypes.CDLL(None).puts(b"from C")
        program = Program()
        main = program.get_main_module()
        main.add_return([main.add(op("exp"), main.add_parameter("x", Shape("float32", [2])))])
        return program

sys.modules["loud"] = SimpleNamespace(Loud=Loud)
made = Plugins(discover=False)
made.register(SimpleNamespace(__name__="loud", frontends=hookimpl(lambda: [Lazy("loud", "loud:Loud")])), "loud")
plugins._manager[:] = [made]
main(sys.argv[1:], standalone_mode=False)
print("after it")
"""


@pytest.mark.parametrize("form", [["params", "--json"], ["read", "--json"], ["read"]])
def test_output_of_plugins_is_not_output_of_a_command(tmp_path, form):
    (tmp_path / "m.loud").write_bytes(b"")
    call = [sys.executable, "-c", LOUD, form[0], str(tmp_path / "m.loud"), *form[1:]]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    assert "from Python\n" in done.stderr and "from C\n" in done.stderr
    said, _, rest = done.stdout.partition("after it")
    assert "from" not in said and rest == "\n"
    if "--json" in form:
        json.loads(said)
    else:
        assert "exp(" in said
