"""The public models in float16 on one GPU: ours, compared with torch.compile and eager torch in a CUDA graph.

python benchmarks/zoo/public.py MODELS OUT [--only resnet50,bert_base] [--batch 1,32] [--rounds 11] [--prepare 240]

MODELS contains NAME_dyn.onnx with the symbolic extents `batch` and, for bert_base, `seq`.  One process per model and batch size
prepares all engines; when all are ready, one after another has exclusive use of the device: bursts of the engines alternate,
timed by events on one stream.  The peers compute the same architecture with other random weights, images in channels last.  OUT
receives rows.json; the table is printed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from device import Row, Run, alone, bursts, compiled, forget, gather, geomean, graphed, line, wait_for_others

SIZES = {"resnet50": 224, "mobilenet_v2": 224, "inception_v3": 299, "densenet121": 224, "vit_base": 224}
TOKENS = 128
MODELS = (*SIZES, "bert_base")
COLUMNS = ("model", "mgx ms", "compile ms", "graph ms", "ratio", "mgx seconds")


def peer(name: str, batch: int) -> tuple[torch.nn.Module, list[torch.Tensor]]:
    """Returns torch's module of a model and its inputs, in float16 on the GPU."""
    if name == "bert_base":
        import transformers

        module = transformers.BertModel(transformers.BertConfig(attn_implementation="sdpa"))
        ids = torch.randint(0, 30000, (batch, TOKENS), device="cuda")
        return module.eval().half().cuda(), [ids, torch.ones_like(ids), torch.zeros_like(ids)]
    if name == "vit_base":
        import timm

        module = timm.create_model("vit_base_patch16_224")
    else:
        import torchvision

        module = torchvision.models.get_model(name, weights=None)
    images = torch.randn(batch, 3, SIZES[name], SIZES[name], device="cuda", dtype=torch.float16)
    last = torch.channels_last
    return module.eval().half().cuda().to(memory_format=last), [images.to(memory_format=last)]


def ours(path: Path, batch: int) -> tuple[Run, float]:
    """Returns our run and the seconds from parsing to the first result."""
    import mgx_core as mgx

    start = time.perf_counter()
    extents = {"batch": batch, "seq": TOKENS} if path.name.startswith("bert") else {"batch": batch}
    program = mgx.parse_onnx(path, dim_params=extents)
    mgx.quantize_fp16(program)
    program.compile(mgx.get_target("gpu"), offload_copy=False)
    feed = {}
    random = np.random.default_rng(0)
    for name, shape in program.get_parameter_shapes().items():
        kind = shape.numpy_dtype
        whole = np.issubdtype(kind, np.integer)
        value = np.ones(shape.lens(), kind) if whole else random.standard_normal(shape.lens()).astype(kind)
        feed[name] = torch.from_numpy(value).cuda()
    stream = torch.cuda.current_stream().cuda_stream
    program.run(feed)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return lambda: program.run_async(feed, stream, "ihipStream_t"), seconds


def measure(name: str, batch: int, given: argparse.Namespace) -> Row:
    """Returns the measurements of one model at one batch size."""
    torch.backends.cudnn.benchmark = True
    row: Row = {"model": f"{name}.b{batch}"}
    run, row["mgx seconds"] = ours(given.models / f"{name}_dyn.onnx", batch)
    calls: dict[str, Run] = {"mgx": run}
    module, inputs = peer(name, batch)
    with torch.inference_mode():
        prepared = {
            "compile": lambda: compiled(module, inputs, "reduce-overhead"),
            "graph": lambda: graphed(module, inputs),
        }
        for engine, prepare in prepared.items():
            try:
                calls[engine] = prepare()
            except Exception as problem:  # torch cannot compile or capture every network
                row[f"{engine} failed"] = f"{type(problem).__name__}: {problem}"[:200]
        wait_for_others(given.out, row["model"])
        with alone(given.scratch):
            times = bursts(calls, given.rounds)
    row |= {f"{engine} ms": statistics.median(t) for engine, t in times.items()}
    peers = [row[f"{engine} ms"] for engine in calls if engine != "mgx"]
    if peers:
        row["ratio"] = row["mgx ms"] / min(peers)
    return row


def one(name: str, batch: int, given: argparse.Namespace) -> Row:
    """Returns the measurements of a model in a separate process."""
    command = [sys.executable, __file__, str(given.models), str(given.out), "--one", "--only", name]
    command += ["--batch", str(batch), "--rounds", str(given.rounds)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return dict(json.loads(done.stdout.strip().splitlines()[-1]))
    return {"model": f"{name}.b{batch}", "failed": done.stderr.strip()[-500:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--batch", default="1,32")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--prepare", type=float, default=240, help="seconds after which prepared models are measured")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    given.scratch = Path(tempfile.gettempdir())
    jobs = [(name, int(batch)) for name in given.only.split(",") for batch in given.batch.split(",")]
    if given.one:
        print(json.dumps(measure(*jobs[0], given)), flush=True)
        os._exit(0)  # torch's compile workers survive an orderly exit
    forget(given.out)
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        rows = list(gather({pool.submit(one, *job, given) for job in jobs}, given.out, given.prepare))
    models = [f"{name}.b{batch}" for name, batch in jobs]
    rows.sort(key=lambda row: models.index(row["model"]))
    (given.out / "rows.json").write_text(json.dumps(rows))
    print(line(COLUMNS), line(["---"] * len(COLUMNS)), sep="\n")
    for row in rows:
        print(line([row.get(c, "") for c in COLUMNS]), row.get("failed", ""))
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    print(
        f"\n{len(ratios)} of {len(rows)} rows: geometric mean {geomean(ratios):.3f}, worst {max(ratios, default=0):.2f}"
    )


if __name__ == "__main__":
    main()
