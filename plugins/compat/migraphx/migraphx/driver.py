"""``migraphx-driver``: mgx's command line under MIGraphX's name, with its defaults and its log lines around each command."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mgx_core import __version__
from mgx_core.driver import main as driver
from mgx_core.log import showing

from .environment import log_level, options, remarks, shown

__all__ = ["main"]

COMPILING: Final = ("compile", "run", "time", "perf", "verify", "ranges")


def main() -> None:
    """Runs a command of ``mgx-driver``; parameters and results are copied by the program if `--enable-offload-copy` is set.

    Generated scripts import `migraphx`; `compile` prints the program (`--summary`: a summary of compilation instead).  Version,
    command line, the state of MIGraphX's environment variables and the elapsed time are written to stderr.
    """
    words = [word for word in sys.argv[1:] if word != "--mlir"]
    said = f"[ mgx {__version__} ] migraphx-driver {shlex.join(words)}"
    asks = not words or {"-h", "--help", "-v", "--version", "--ort-sha"} & set(words)
    if not asks:
        print(f"Running {said}", file=sys.stderr)
        for line in remarks(os.environ):
            print(f"note: {line}", file=sys.stderr)
        if len(words) < len(sys.argv) - 1:
            print(
                "note: --mlir has no effect: mgx does not use MLIR; it compiles groups to single kernels without it",
                file=sys.stderr,
            )
    asked = options(os.environ)
    rules = [f"{name}={'on' if on else 'off'}" for name, on in asked.pop("fusion_rules", {}).items()]
    words = _joined(words, rules, asked)
    compiling = {"summary": False, "enable_offload_copy": False, "package": "migraphx", "rules": rules, **asked}
    level = log_level(os.environ)
    said_level = {} if level is None else {"log_level": level}
    defaults = {
        "read": {"package": "migraphx", "nhwc": True} | said_level,
        "params": {"nhwc": True} | said_level,
    } | dict.fromkeys(COMPILING, compiling | {"nhwc": True} | said_level)
    begin = time.perf_counter()
    try:
        with showing(shown(os.environ)):
            driver.main(words, prog_name="migraphx-driver", default_map=defaults)
    finally:
        if not asks:
            print(f"Done    {said} ({time.perf_counter() - begin:.3f} s)", file=sys.stderr)


def _joined(words: Sequence[str], rules: Sequence[str], asked: Mapping[str, Any]) -> list[str]:
    """Returns the command line with the values from environment variables inserted before its own values of the same option.

    click's defaults apply only to options that are absent from the command line.
    """
    found = list(words)
    for option, values in (("--rule", rules), ("--disable-pass", asked.get("disable_passes", ()))):
        places = (k for k, word in enumerate(found) if word == option or word.startswith(f"{option}="))
        at = next(places, None)
        if at is not None:
            found[at:at] = [word for value in values for word in (option, value)]
    return [word for word in found if word != "--exhaustive-tune" or asked.get("exhaustive_tune", True)]


if __name__ == "__main__":
    main()
