"""Initializers with inconsistent data, and external data that refers to other locations."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from case import Trial, add, array, i64, info, model
from onnx import TensorProto as T
from onnx import helper as h

n = h.make_node


def weight(name: str, expect: str = "refuse", **fields: Any) -> None:
    tensor = onnx.TensorProto(**{"name": "w", "data_type": T.FLOAT, "dims": [2], **fields})
    add("initializers", name, model([n("Identity", ["w"], ["y"])], [], ["y"], [tensor]), expect)


weight("good", "run", raw_data=bytes(8))
weight("short", raw_data=bytes(7))
weight("long", raw_data=bytes(9))
weight("nothing")
weight("too few values", float_data=[1.0])
weight("too many values", float_data=[1.0] * 3)
weight("values of another type", int64_data=[1, 2])
weight("both kinds of data", "either", raw_data=bytes(8), float_data=[1.0, 2.0])
weight("negative extent", dims=[-2], raw_data=bytes(8))
weight("two negative extents", dims=[-1, -2], raw_data=bytes(8))
weight("10^12 elements", dims=[10**12], raw_data=bytes(8))
weight("extents overflow", dims=[1 << 62, 4], raw_data=b"")
weight("extents overflow to 0", dims=[1 << 32, 1 << 32], raw_data=b"")
weight("65 axes", "refuse", dims=[1] * 65, raw_data=bytes(4))
weight("unknown type", data_type=99, raw_data=bytes(8))
weight("no type", data_type=0, raw_data=bytes(8))
weight("words without data", data_type=T.STRING)
weight("words that are not UTF-8", "either", data_type=T.STRING, string_data=[b"\xff\xfe", b"ok"])
weight("bool of 7", "either", data_type=T.BOOL, raw_data=b"\x07\x00")
weight("half a byte short", data_type=T.INT4, dims=[5], raw_data=bytes(2))
weight("half bytes", "run", data_type=T.INT4, dims=[5], raw_data=bytes(3))
weight("int32 for int8 out of range", "either", data_type=T.INT8, int32_data=[1 << 30, -(1 << 30)])
weight("empty but immense", "either", dims=[1 << 40, 0], raw_data=b"")
weight("complex halved", data_type=T.COMPLEX64, float_data=[1.0, 2.0, 3.0])
weight("segment", "either", raw_data=bytes(8), segment=onnx.TensorProto.Segment(begin=0, end=1 << 60))


def external(
    name: str,
    expect: str = "refuse",
    where: str = "initializer",
    buffer: bool = False,
    prepare: Any = None,
    **entries: str,
) -> None:
    def build(folder: Path) -> Trial:
        inside = folder / "model"
        inside.mkdir()
        (inside / "data.bin").write_bytes(np.arange(8, dtype=np.float32).tobytes())
        (folder / "secret.bin").write_bytes(np.arange(100, dtype=np.float32).tobytes())
        if prepare is not None:
            prepare(inside)
        tensor = onnx.TensorProto(name="w", data_type=T.FLOAT, dims=[2], data_location=T.EXTERNAL)
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value.replace("FOLDER", str(folder)))
        if where == "initializer":
            made = model([n("Identity", ["w"], ["y"])], [], ["y"], [tensor])
        elif where == "constant":
            made = model([n("Constant", [], ["y"], value=tensor)])
        elif where == "sparse":
            made = model([n("Identity", ["w"], ["y"])])
            made.graph.sparse_initializer.add(values=tensor, indices=i64("j", 0, 1), dims=[4])
        else:
            branch = h.make_graph(
                [n("Identity", ["w"], ["z"])], "b", [], [h.make_empty_tensor_value_info("z")], [tensor]
            )
            made = model([n("If", ["c"], ["y"], then_branch=branch, else_branch=branch)], [info("c", (), T.BOOL)])
        if buffer:
            return Trial(made.SerializeToString())
        (inside / "model.onnx").write_bytes(made.SerializeToString())
        return Trial(inside / "model.onnx")

    add("external", name, build, expect)


def link(to: str, name: str = "link.bin") -> Any:
    return lambda folder: os.symlink(to.replace("FOLDER", str(folder.parent)), folder / name)


external("good", "run", location="data.bin", offset="8", length="8")
external("good, no length", "run", location="data.bin")
external("good, through a dot", "run", location="./data.bin")
external("good, link inside", "run", prepare=link("data.bin"), location="link.bin")
for where in ("initializer", "constant", "sparse", "subgraph"):
    external(f"up, in {where}", location="../secret.bin", where=where)
    external(f"absolute, in {where}", location="FOLDER/secret.bin", where=where)
    external(f"link, in {where}", prepare=link("FOLDER/secret.bin"), location="link.bin", where=where)
for location in ("../../../../../../etc/passwd", "/etc/passwd", "a/../../secret.bin", "./../secret.bin", "..", ".", "/", "", "missing.bin",
                 "..\\secret.bin", "C:\\secret.bin", "\\\\host\\share", "file:///etc/passwd", "~/secret.bin", "$HOME/x", "%2e%2e/secret.bin",
                 "data.bin\x00.png", "data.bin/", "data.bin/..", "con", "a" * 5000, "//etc/passwd", "data.bin/../../secret.bin", "http://localhost/x", "`id`"):  # fmt: skip
    external(f"at {location[:30]!r}", "either" if location == "data.bin/" else "refuse", location=location)
external("linked folder", prepare=link("FOLDER", "up"), location="up/secret.bin")
external("link to a device", prepare=link("/dev/zero"), location="link.bin")
external("link to the process", prepare=link("/proc/self/environ"), location="link.bin")
external("link to itself", prepare=link("link.bin"), location="link.bin")
external("a pipe", prepare=lambda folder: os.mkfifo(folder / "pipe"), location="pipe")
external("a folder", prepare=lambda folder: (folder / "more").mkdir(), location="more")
external("no file may be read", "either", prepare=lambda folder: (folder / "data.bin").chmod(0), location="data.bin")
for offset in ("-8", "28", "9999", str(1 << 63), "0x10", "eight", "1.5", "", "١"):
    external(f"offset {offset!r}", "either" if offset == "١" else "refuse", location="data.bin", offset=offset)
for length in ("-8", "0", "4", "16", str(1 << 63), "all"):
    external(f"length {length!r}", location="data.bin", length=length)
external("no entries")
external("without a folder", buffer=True, location="data.bin")
external("unaligned", "run", location="data.bin", offset="3")


def sparse(
    name: str, indices: Any, dims: list[int], expect: str = "refuse", values: int = 2, dtype: Any = np.int64
) -> None:
    made = model([n("Identity", ["w"], ["y"])])
    put = made.graph.sparse_initializer.add(values=array("w", np.ones(values, np.float32)), dims=dims)
    put.indices.CopyFrom(array("i", np.asarray(indices, dtype)))
    add("sparse", name, made, expect)


sparse("good", [0, 3], [4], "run")
sparse("good, places", [[0, 1], [1, 0]], [2, 2], "run")
sparse("out of bounds", [0, 4], [4])
sparse("negative", [-1, 2], [4])
sparse("place out of bounds", [[0, 5], [1, 0]], [2, 2])
sparse("too few", [0], [4])
sparse("too many", [0, 1, 2], [4])
sparse("wrong rank", [[[0, 1]]], [2, 2])
sparse("10^12 elements", [0, 1], [10**6, 10**6])
sparse("extents overflow", [0, 1], [1 << 62, 1 << 62])
sparse("negative extents", [0, 1], [-2, -2])
sparse("in disorder", [3, 0], [4], "either")
sparse("twice", [1, 1], [4], "either")
sparse("of floats", [0.5, 1.5], [4], dtype=np.float32)
sparse("65 axes", [0, 0], [1] * 65)
sparse("no values", np.zeros(0), [4], "run", values=0)
