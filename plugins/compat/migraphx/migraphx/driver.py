"""``migraphx-driver``: mgx's command line with MIGraphX's name and defaults."""

from __future__ import annotations

from typing import Final

from mgx_core.driver import main as driver

__all__ = ["main"]

COMPILING: Final = ("compile", "run", "time", "perf", "verify")


def main() -> None:
    """The commands of ``mgx-driver``; parameters and results are copied for the caller where `--enable-offload-copy` says so."""
    driver.main(prog_name="migraphx-driver", default_map={name: {"enable_offload_copy": False} for name in COMPILING})


if __name__ == "__main__":
    main()
