"""Error messages for names that no installed plugin offers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from .record import PluginRecord

__all__ = ["FILES", "absent", "missing", "no_target"]

# packages of common names
KNOWN: Final = {
    "ref": "mgx-ref",
    "cpu": "mgx-cpu-dnnl",
    "gpu": "mgx-gpu-hip",
    "onnx": "mgx-onnx",
    "tf": "mgx-tf",
    "tflite": "mgx-tflite",
    "pt2": "mgx-torch",
}
# common aliases of names
ALIASES: Final = {
    "cuda": "gpu", "nvidia": "gpu", "hip": "gpu", "rocm": "gpu", "amd": "gpu", "x86": "cpu", "host": "cpu", "reference": "ref",
    "tensorflow": "tf", "savedmodel": "tf", "keras": "tf", "torch": "pt2", "pytorch": "pt2", "lite": "tflite",
}  # fmt: skip
# frontends by file extension, for packages that may not be installed
FILES: Final = {
    "onnx": "onnx", "tflite": "tflite", "pt2": "pt2",
    "pb": "tf", "pbtxt": "tf", "graphdef": "tf", "keras": "tf", "h5": "tf",
}  # fmt: skip


def missing(records: Sequence[PluginRecord], what: str, name: str, offered: Iterable[str]) -> str:
    """Returns the error message for an unknown name: that its plugin failed or is disabled, or what to install."""
    for r in records:
        known = name == r.name or KNOWN.get(name) == r.distribution or any(name in o for o in r.offers.values())
        if known and r.state != "ok":
            verb = "failed" if r.state == "failed" else "is disabled"
            return f"the plugin for {what} {name!r} ({r.distribution}) {verb}: {r.error}"
    names = list(offered)
    have = ", ".join(map(repr, names)) or "none"
    near = _near(name, names)
    hint = f"pip install {KNOWN[name]}" if name in KNOWN else "install the package that provides it"
    hint = f"did you mean {near!r}?" if near else hint
    return f"there is no {what} {name!r} (installed: {have}); {hint}{absent(records, what + 's')}"


def no_target(records: Sequence[PluginRecord], offered: Iterable[str]) -> str:
    """Returns the error message if no installed target runs on this machine."""
    have = ", ".join(map(repr, offered)) or "none"
    return (
        f"there is no target that runs on this machine (installed: {have}); pip install mgx-cpu-dnnl or mgx-gpu-hip if it "
        f"supports them, or else mgx-ref{absent(records, 'targets')}"
    )


def _near(name: object, names: Sequence[str]) -> str:
    """Returns the offered name closest to `name`, by alias or spelling; empty if there is none."""
    key = str(name).strip().lstrip(".").lower()
    by_key = {n.lower(): n for n in names}
    if key in KNOWN and name == key:
        return ""  # the name is right, but its package is not installed
    found = by_key.get(key) or by_key.get(ALIASES.get(key, ""), "")
    if not found:
        import difflib  # only needed for messages

        found = next(iter(difflib.get_close_matches(key, names, 1)), "")
    return found


def absent(records: Sequence[PluginRecord], *hooks: str) -> str:
    """Returns the end of an error message: the plugins that failed or are disabled.

    hooks: only plugins that failed to load or in one of these hooks; none given: all.
    """
    failed = [
        f"{r.name} ({r.distribution}: {r.error})"
        for r in records
        if r.state == "failed" and (not hooks or any(f.hook in ("", *hooks) for f in r.failures))
    ]
    left_out = [f"{r.name} ({r.distribution})" for r in records if r.state == "disabled"]
    named = {"plugins that failed": failed, "left out by MGX_PLUGINS": left_out}
    return "".join(f"; {what}: {', '.join(plugins)}" for what, plugins in named.items() if plugins)
