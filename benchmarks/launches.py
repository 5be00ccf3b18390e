"""Launches after the fuse stage, for a target that accepts every fusion, next to the model's ONNX node count.

python benchmarks/launches.py MODELS [--only a,b] [--json FILE]

Views (transposes, slices, reshapes without a copy), parameters, literals and tuple items are not counted as launches.
"""

from __future__ import annotations

import argparse
import collections
import json
from pathlib import Path

import onnx

import mgx_core as mgx
from mgx_core.compile.stages import optimize_module
from mgx_core.targets.memory import root


def is_launch(ins: mgx.Instruction) -> bool:
    if ins.is_param or ins.is_literal or ins.is_return or ins.is_absent or ins.name == "get_tuple_elem":
        return False
    view = ins.op.view
    if view is None or not ins.inputs:
        return True
    return not ins.result.dynamic() and root(ins) is ins


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--json")
    given = parser.parse_args()
    names = given.only.split(",") if given.only else sorted(p.stem for p in given.models.glob("*.onnx"))
    results = {}
    for name in names:
        path = given.models / f"{name}.onnx"
        nodes = len(onnx.load(path, load_external_data=False).graph.node)
        module = mgx.parse_onnx(path).get_main_module()
        optimize_module(module, mgx.CompileOptions())
        kinds = collections.Counter(
            f"{i.name}[{i.op.tag}]" if i.name == "group" else i.name for i in module if is_launch(i)
        )
        results[name] = {"launches": sum(kinds.values()), "nodes": nodes, "kinds": dict(kinds)}
        shown = ", ".join(f"{k} {n}" for k, n in kinds.most_common())
        print(f"{name:20} {sum(kinds.values()):4} launches of {nodes:4} nodes: {shown}", flush=True)
    if given.json:
        with open(given.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
