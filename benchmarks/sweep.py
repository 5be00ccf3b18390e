"""Many architectures compiled by ``torch.compile(backend="mgx")``, compared with eager: correctness, and seconds to compile.

    python benchmarks/sweep.py OUT timm|transformers [--device cuda] [--workers 15] [--seconds 600]
        [--precision f32,f16] [NAME ...]

timm: two random networks of each of its modules, except large ones.  transformers: each model type that `AutoModel` creates
from a configuration, reduced in size, with the first of several kinds of inputs that eager accepts.  Random weights.

A network is wrong if its float32 results differ from torch's in float64 by more than 1e-4 and three times torch's own error, or
its float16 results by more than 1e-3 and twice torch's own error; failing calls and crashing processes are also wrong.  A wrong
network is also run with torch's own backends, since some models compute something else under any.  OUT receives rows.json.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import multiprocessing
import queue
import random
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

KINDS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
LARGE = ("huge", "giant", "xlarge", "large", "_xl", "gigantic", "enormous", "384", "448", "512", "so400", "so150")
LARGE += ("101", "152", "200", "270", "350", "420")
LAYERS, WIDTH, HEADS, WORDS = 2, 64, 4, 120
MOST = 150_000_000  # parameters
# names of sizes in configurations
SMALL = dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "embedding_size", "image_size"), WIDTH)
SMALL |= dict.fromkeys(
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), LAYERS
)
SMALL |= dict.fromkeys(
    ("num_attention_heads", "n_head", "n_heads", "encoder_attention_heads", "decoder_attention_heads"), HEADS
)
SMALL |= dict.fromkeys(
    ("intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "n_inner"), 2 * WIDTH
)
SMALL |= dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4)
SMALL |= dict.fromkeys(("num_key_value_heads", "num_experts_per_tok", "num_codebooks", "decoder_start_token_id"), 2)
SMALL |= dict.fromkeys(
    ("head_dim", "d_kv", "patch_size", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "state_size"), 16
)
SMALL |= {"attention_head_dim": 16, "vocab_size": WORDS, "max_position_embeddings": 128, "moe_intermediate_size": WIDTH}
SMALL |= {"projection_dim": 32, "q_lora_rank": 32, "kv_lora_rank": 32, "n_group": 1, "topk_group": 1}
SMALL |= {"num_mel_bins": 32, "max_source_positions": 50}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "use_cache": False}


class Skipped(Exception):
    """A network that is not available here."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("source", choices=("timm", "transformers"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--precision", default="f32,f16")
    given = parser.parse_intermixed_args()
    names = given.names or (timm_names() if given.source == "timm" else transformer_names())
    rows: list[dict[str, Any]] = []
    for row in swept(names, given):
        rows.append(row)
        if row.get("wrong"):
            print(json.dumps(row), flush=True)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "rows.json").write_text(json.dumps(rows))
    tried = [r for r in rows if "skipped" not in r]
    print(f"{given.source}: {len(tried)} of {len(names)} tried, {sum(not r.get('wrong') for r in tried)} right")


def timm_names() -> list[str]:
    import timm
    from timm.models import model_entrypoint

    modules: dict[str, list[str]] = {}
    for name in timm.list_models():
        modules.setdefault(model_entrypoint(name).__module__, []).append(name)
    draw = random.Random(7)
    found = []
    for _, names in sorted(modules.items()):
        small = [n for n in names if not any(word in n for word in LARGE)] or names
        found += draw.sample(small, min(2, len(small)))
    return found


def transformer_names() -> list[str]:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return sorted(CONFIG_MAPPING_NAMES)


def swept(names: Sequence[str], given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yields a row for each network; a process that ends is replaced, and its network is wrong."""
    context = multiprocessing.get_context("spawn")
    asked: Any = context.Queue()
    told: Any = context.Queue()
    for name in names:
        asked.put(name)
    start = lambda: context.Process(target=worker, args=(asked, told, vars(given)), daemon=True)  # noqa: E731
    processes = [start() for _ in range(min(given.workers, len(names)))]
    for process in processes:
        process.start()
    busy: dict[int, str] = {}
    done, until = 0, time.time() + given.seconds
    while done < len(names) and time.time() < until:
        try:
            pid, row = told.get(timeout=2)
        except queue.Empty:
            for at, process in enumerate(processes):
                if not process.is_alive():
                    processes[at] = start()
                    processes[at].start()
                    if (lost := busy.pop(process.pid or 0, None)) is not None:
                        done += 1
                        yield {"name": lost, "wrong": f"the process ended with {process.exitcode}"}
            continue
        if "began" in row:
            busy[pid] = row["began"]
        else:
            busy.pop(pid, None)
            done += 1
            yield row
    for process in processes:
        process.kill()


def worker(asked: Any, told: Any, given: dict[str, Any]) -> None:
    import os

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    while True:
        name = asked.get()
        told.put((os.getpid(), {"began": name}))
        told.put((os.getpid(), compared(name, **given)))


def compared(name: str, source: str, device: str, precision: str, **_: Any) -> dict[str, Any]:
    """Returns the errors of one network, relative to the largest value of each result."""
    row: dict[str, Any] = {"name": name}
    try:
        torch.manual_seed(0)
        make = timm_network if source == "timm" else transformer
        module, call = make(name, device)
        with torch.no_grad():
            plain = floats(call(module, torch.float32))
            try:
                exact = floats(call(module.double(), torch.float64))
            except (RuntimeError, TypeError, ValueError):  # its types are explicit
                exact = plain
            for word in precision.split(","):
                _compare(module, call, word, exact, row)
    except Skipped as why:
        row["skipped"] = str(why)[:200]
    except Exception as problem:  # any exception of a compiler is a finding
        row["wrong"] = f"{type(problem).__name__}: {problem}"[-600:]
    return row


def _compare(
    module: torch.nn.Module, call: Callable[..., Any], word: str, exact: Sequence[torch.Tensor], row: dict[str, Any]
) -> None:
    kind = KINDS[word]
    module.to(kind)
    try:
        own = error(floats(call(module, kind)), exact)
    except RuntimeError:  # torch has no kernel for the type
        return
    began = time.perf_counter()
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="mgx")
    got = max(error(floats(call(compiled, kind)), exact) for _ in range(2))
    row |= {f"{word} own": own, word: got, f"{word} s": round(time.perf_counter() - began, 1)}
    if not got <= (max(1e-4, 3 * own) if word == "f32" else max(1e-3, 2 * own)):
        torch._dynamo.reset()
        other = error(floats(call(torch.compile(module, backend="aot_eager"), kind)), exact)
        row["aot_eager"] = other
        if not math.isclose(other, got, rel_tol=1e-2):
            row["wrong"] = f"{word} differs by {got:.2g}, torch's own by {own:.2g}"


def timm_network(name: str, device: str) -> tuple[torch.nn.Module, Callable[..., Any]]:
    import timm

    module = fitting(timm.create_model(name, pretrained=False)).to(device)
    x = torch.randn(2, *module.default_cfg.get("input_size", (3, 224, 224))).to(device)
    return module, lambda network, kind: network(x.to(kind))


def transformer(name: str, device: str) -> tuple[torch.nn.Module, Callable[..., Any]]:
    from transformers import CONFIG_MAPPING, AutoModel

    try:
        config = shrunk(CONFIG_MAPPING[name]())
        module = fitting(AutoModel.from_config(config)).to(device)
    except Skipped:
        raise
    except Exception as problem:  # many configurations have inconsistent defaults
        raise Skipped(f"{type(problem).__name__}: {problem}") from None
    ids = torch.randint(3, 100, (2, 12))
    channels = getattr(config, "num_channels", 3) or 3
    tries: list[dict[str, torch.Tensor]] = [
        {"input_ids": ids},
        {"input_ids": ids, "decoder_input_ids": ids[:, :7]},
        {"pixel_values": torch.randn(2, channels, WIDTH, WIDTH)},
        {"input_ids": ids, "pixel_values": torch.randn(2, 3, WIDTH, WIDTH)},
        {"input_values": torch.randn(2, 4000)},
        {"input_features": torch.randn(2, 32, 100)},
        {"input_features": torch.randn(2, 100, 32)},
        {"input_values": torch.randn(2, 1, 4000)},
        {"pixel_values": torch.randn(2, 3, 224, 224)},
        {"inputs_embeds": torch.randn(2, 12, WIDTH)},
    ]
    for values in tries:

        def call(network: Any, kind: torch.dtype, values: dict[str, torch.Tensor] = values) -> Any:
            return network(**{k: (v.to(kind) if v.is_floating_point() else v).to(device) for k, v in values.items()})

        try:
            with torch.no_grad():
                call(module, torch.float32)
            return module, call
        except Exception:  # other inputs are tried
            continue
    raise Skipped("it takes none of the inputs that are tried")


def shrunk(config: Any, depth: int = 0) -> Any:
    """Returns a configuration with few layers and short rows, including nested configurations."""
    for name, value in (SMALL | TOKENS).items():
        old = getattr(config, name, None)
        if (name in TOKENS and hasattr(config, name)) or (isinstance(old, int) and not isinstance(old, bool)):
            setattr(config, name, value)
    for inner in list(vars(config).values()):
        if depth < 2 and hasattr(inner, "model_type"):
            shrunk(inner, depth + 1)
    kinds = getattr(config, "layer_types", None)
    if isinstance(kinds, list) and len(kinds) > LAYERS:
        config.layer_types = (list(dict.fromkeys(kinds)) * LAYERS)[:LAYERS]
    return config


def fitting(module: torch.nn.Module) -> torch.nn.Module:
    if sum(p.numel() for p in module.parameters()) > MOST:
        raise Skipped("it is too large")
    return module.eval()


def floats(result: Any) -> list[torch.Tensor]:
    """Returns the floating-point tensors among the results."""
    if hasattr(result, "to_tuple"):
        result = result.to_tuple()
    return [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.is_floating_point()]


def error(got: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> float:
    """Returns the largest difference, relative to its tensor's largest value; infinite if one of two numbers is not finite."""
    worst = 0.0
    for x, y in zip(got, wanted, strict=True):
        x, y = x.double(), y.double()
        finite = torch.isfinite(y)
        if x.shape != y.shape or not torch.equal(torch.isfinite(x), finite):
            return math.inf
        if finite.any():
            worst = max(worst, float((x - y)[finite].abs().max() / y[finite].abs().max().clamp_min(1e-30)))
    return worst


if __name__ == "__main__":
    main()
