"""Cost of importing mgx_core beyond that of numpy: new processes, interleaved, medians.

python benchmarks/import_time.py [--rounds 15] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys

TIMED = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


def once(module: str) -> float:
    out = subprocess.run([sys.executable, "-c", TIMED.format(module)], capture_output=True, text=True, check=True)
    return float(out.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json")
    given = parser.parse_args()
    times: dict[str, list[float]] = {"numpy": [], "mgx_core": []}
    for _ in range(given.rounds):
        for module, seconds in times.items():
            seconds.append(once(module))
    numpy, core = (statistics.median(times[m]) * 1e3 for m in ("numpy", "mgx_core"))
    print(f"numpy {numpy:.1f} ms, mgx_core {core:.1f} ms (numpy included), difference {core - numpy:.1f} ms")
    if given.json:
        with open(given.json, "w") as file:
            json.dump({"numpy_ms": numpy, "mgx_core_ms": core, "difference_ms": core - numpy}, file, indent=1)


if __name__ == "__main__":
    main()
