"""``ops`` and ``plugins``."""

from __future__ import annotations

from mgx_core import ops
from mgx_core.plugins.manager import Lazy, hookimpl


def test_ops_lists_all(drive, drive_json):
    assert drive("ops", "--list").split() == ops.STANDARD.names()
    found = {o["name"]: o for o in drive_json("ops")}
    assert found.keys() == set(ops.STANDARD.names())
    assert found["softmax"]["attributes"] == [{"name": "axis", "type": "int", "default": "-1", "required": False}]
    assert found["tanh"]["scalar"] == "tanh(x0)"


def test_one_op(drive, drive_json):
    text = drive("ops", "softmax")
    assert text.startswith("softmax(x)")
    assert "axis" in text
    assert "Errors: ShapeError" in text
    assert drive_json("ops", "dot")["signature"] == "dot(a, b)"
    assert text.splitlines()[-1] == "from mgx_core.ops.softmax import Softmax"
    assert "did you mean 'softmax'" in drive("ops", "softmix", code=2)


def test_plugins(drive, drive_json):
    (entry,) = drive_json("plugins")
    assert (entry["name"], entry["state"], entry["error"]) == ("testing", "ok", "")
    assert entry["offers"]["targets"] == ["host", "wrong"]
    assert "targets host, wrong; frontends chain" in drive("plugins")


def test_plugins_load_finds_what_is_broken(drive, drive_json, plugins):
    class Half:
        @staticmethod
        @hookimpl
        def targets():
            return [Lazy("half", "mgx_core.errors:absent")]

        @staticmethod
        @hookimpl
        def kernels(target):
            return []

    plugins.register(Half, "half")
    assert [e["state"] for e in drive_json("plugins")] == ["ok", "ok"]
    assert "kernels" in drive("plugins")
    entry = drive_json("plugins", "--load")[1]
    assert entry["state"] == "failed"
    assert "has no attribute 'absent'" in entry["error"]


def test_nothing_installed(drive, plugins):
    plugins.records.clear()
    assert "pip install" in drive("plugins")
