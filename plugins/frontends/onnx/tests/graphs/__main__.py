"""Random graphs on every target, compared with onnxruntime.

python graphs [--seconds N] [--random N] [--gpu CHANCE] [--kind KIND] [--case N]

Exit code 1 for wrong results, rejected models and crashes.  Targets are the installed ones of ref, cpu and the emulated gpu (the
latter on a part of the cases, since its kernels are compiled).  ``--kind``: how programs are processed (see `compare.KINDS`).
``--case N`` repeats one case in this process and prints its smallest failing part.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
os.environ.setdefault("MGX_GPU_DEVICE", "host")
os.environ["MGX_KEEP_PROGRAMS"] = "0"

from campaign import Campaign, asked  # noqa: E402


def plans(request: dict[str, Any], special: bool) -> list[tuple[str, dict[str, Any], str]]:
    """Returns targets with options, and whether the program is run from its text or its file."""
    import numpy as np

    from mgx_core.plugins.manager import manager

    rng = np.random.default_rng([request["random"], request["case"], 1])
    known = manager().names("targets")
    fast = bool(rng.random() < 0.5) and not special
    found: list[tuple[str, dict[str, Any], str]] = [
        ("ref", {"fast_math": False, "optimize": bool(rng.random() < 0.7)}, "")
    ]
    for name, chance in (("cpu", 1.0), ("gpu", request["gpu"])):
        if name in known and rng.random() < chance:
            options = {
                "fast_math": fast,
                "validate": bool(rng.random() < 0.5),
                "aggressive_memory": bool(rng.random() < 0.1),
            }
            found.append((name, options, str(rng.choice(["", "", "text", "file"]))))
    return found


def work(request: dict[str, Any], shrink: bool = False) -> dict[str, Any]:
    """Runs one case and returns its outcome."""
    import numpy as np
    import onnx.printer
    from compare import Case, case_of, defined, opened, smallest, wrong
    from families import drawn

    warnings.simplefilter("ignore")
    with np.errstate(all="ignore"):
        g, results = drawn([request["random"], request["case"]])
        if not results or (g.special and request["kind"] == "int8"):  # ranges of NaN are refused
            return {"outcome": "ran"}
        case = case_of(g, results, request["kind"])
        if case.kind.startswith("open"):
            case = opened(case, request["case"])
        if case.special:
            case = defined(case, g.values)
        for target, options, way in plans(request, case.special):

            def failing(less: Case, plan: Any = (target, options, way)) -> str:
                try:
                    return wrong(less, *plan)
                except Exception as error:
                    return f"{type(error).__name__}: {error}"

            said = failing(case)
            if said and shrink:
                kind = said.partition(":")[0]
                case = smallest(case, g.values, lambda less: bool(less and failing(less)))
                print(onnx.printer.to_text(case.model()))
                with np.printoptions(threshold=40, precision=6):
                    print({**case.inputs, **case.constants}, kind)
            if said:
                return {"outcome": "wrong", "error": f"{target} {options} {way}: {said}"[:600]}
    return {"outcome": "ran"}


def main() -> int:
    chance = {"type": float, "default": 0.05, "help": "how often the emulated gpu takes part"}
    from compare import KINDS

    kind = {"choices": list(KINDS), "default": "float32", "help": "what is done with the graphs"}
    options = asked(__doc__, [("--gpu", chance), ("--kind", kind)])
    request = {"random": options.random, "gpu": options.gpu, "kind": options.kind}
    if options.case is not None:
        print(work({**request, "case": options.case}, shrink=True))
        return 0
    return Campaign(Path(__file__)).run(request, options.seconds, options.cases)


if __name__ == "__main__":
    sys.exit(main())
