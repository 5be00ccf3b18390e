"""Exports public architectures to ONNX with torch, each with inputs and torch's own results.

python benchmarks/zoo/export.py OUT [--only a,b] [--batch 1] [--open] [--exporter dynamo]

--only selects networks of the list or hand-written ones, all hand-written ones as handmade, or any other of timm as
timm.NAME.SIZE, which is written as NAME.  Without it, the whole list is exported.

Writes NAME.bBATCH.onnx (with external weights beside it if it is large), NAME.bBATCH.in.npz and NAME.bBATCH.gold.npz, the
results of torch in float64 (the first of several) rounded to float32.  --open leaves the batch symbolic.  Each export runs in
a separate process with a time limit; networks that torch cannot export are listed with the last line of the error.  Needs
torch, timm, torchvision, transformers, onnxscript.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def export(name: str, out: Path, batch: int, exporter: str, open_batch: bool) -> None:
    """Writes one model, its inputs and its results."""
    warnings.filterwarnings("ignore")
    import numpy as np
    import torch

    sys.path.insert(0, str(HERE))
    from architectures import make, named

    torch.set_num_threads(1)
    architecture = named(name)
    if architecture.family == "detection":
        exporter = "torchscript"  # torch.export does not support the loops over detections
    module, inputs = make(architecture, batch)
    values = tuple(inputs.values())
    stem = _stem(name, batch)
    options: dict[str, Any] = {"input_names": list(inputs), "opset_version": 18}
    with torch.no_grad():
        gold = _first(module(*values))
        wide = _first(module.double()(*(v.double() if v.is_floating_point() else v for v in values)))
        if not wide.isfinite().all():
            raise SystemExit("torch's result in float64 is not finite: there is no reference to compare with")
        module.float()
        if exporter == "dynamo":
            shapes = tuple({0: torch.export.Dim("batch")} for _ in values) if open_batch else None
            torch.onnx.export(module, values, out / f"{stem}.onnx", dynamo=True, dynamic_shapes=shapes, **options)
        else:
            axes = {n: {0: "batch"} for n in inputs} if open_batch else None
            options["opset_version"] = 17
            torch.onnx.export(module, values, str(out / f"{stem}.onnx"), dynamo=False, dynamic_axes=axes, **options)
    own = float((gold.double() - wide).abs().max() / wide.abs().max().clamp_min(1e-30))
    np.savez(out / f"{stem}.in.npz", **{k: v.numpy() for k, v in inputs.items()})
    np.savez(out / f"{stem}.gold.npz", result=wide.float().numpy(), own_error=np.float32(own))


def _first(result: Any) -> Any:
    """Returns a module's result, the first of several."""
    return result[0] if isinstance(result, tuple | list) else result


def _stem(name: str, batch: int) -> str:
    """Returns the common prefix of a network's files."""
    return f"{name.split('.')[1] if '.' in name else name}.b{batch}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--exporter", choices=("torchscript", "dynamo"), default="dynamo")
    parser.add_argument("--open", action="store_true")
    parser.add_argument("--limit", type=float, default=300, help="timeout in seconds for one export")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.one:
        export(given.only, given.out, given.batch, given.exporter, given.open)
        return
    sys.path.insert(0, str(HERE))
    from architectures import ARCHITECTURES, HANDMADE

    names = list(ARCHITECTURES)
    if given.only:
        names = [n for name in given.only.split(",") for n in (HANDMADE if name == "handmade" else [name])]
    failed = 0
    for name in names:
        if (given.out / f"{_stem(name, given.batch)}.gold.npz").exists():
            continue
        command = [sys.executable, __file__, str(given.out), "--one", "--only", name, "--batch", str(given.batch)]
        command += ["--exporter", given.exporter, *(["--open"] if given.open else [])]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=given.limit)
            why = "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no message"])[-1]
        except subprocess.TimeoutExpired:
            why = f"took over {given.limit:g} s"
        failed += bool(why)
        print(f"{name:36} {'not exported: ' + why[:150] if why else 'ok'}", flush=True)
    print(f"{len(names) - failed} of {len(names)} exported")


if __name__ == "__main__":
    main()
