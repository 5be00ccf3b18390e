"""With this package installed everything else works, and the report names it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import mgx_core as mgx

REASON = "OSError: libaccelerator.so.7: cannot open shared object file"


def driver(*args, code=0, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "mgx_core", *args], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_import_and_running_go_on():
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", [2]))
    main.add_return([main.add(mgx.op("neg"), x)])
    program.compile(mgx.get_target("ref"))
    assert program.run({"x": [1.0, -2.0]})[0].tolist() == [-1.0, 2.0]


def test_the_report_names_it():
    records = {r.name: r for r in mgx.plugin_manager().records}
    broken = records["broken"]
    assert (broken.state, broken.distribution, broken.version) == ("failed", "example-mgx-broken-plugin", "1.0.0")
    assert broken.error == REASON
    assert isinstance(broken.exception, OSError)
    assert records["ref"].state == "ok"


def test_requesting_it_reports_the_reason():
    with pytest.raises(mgx.UnsupportedError, match=r"broken.*failed: OSError: libaccelerator"):
        mgx.get_target("broken")


def test_driver():
    assert "c = float32[4, 3]" in driver("run", "--test", "--ref")
    entries = {e["name"]: e for e in json.loads(driver("plugins", "--json"))}
    assert entries["broken"]["error"] == REASON
    assert entries["ref"]["state"] == "ok"
    line = next(line for line in driver("plugins").split("\n") if line.startswith("broken"))
    assert "failed" in line
    assert REASON in line
    assert "Traceback (most recent call last)" in driver("plugins", "--verbose")
    assert REASON in driver("run", "--test", "--target", "broken", code=2)


def test_it_can_be_left_out():
    entries = {e["name"]: e for e in json.loads(driver("plugins", "--json", MGX_PLUGINS="-broken"))}
    assert entries["broken"]["state"] == "disabled"
