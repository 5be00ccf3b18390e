"""``python -m mgx_core``: the command line."""

from __future__ import annotations

from .driver import main

if __name__ == "__main__":
    main(prog_name="python -m mgx_core")
