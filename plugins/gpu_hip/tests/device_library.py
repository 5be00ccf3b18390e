"""Library plans on a real GPU: results and times compared with torch eager, both as replayed graphs.

As a script it prints one table; `pytest device_library.py` only checks the results.  torch is the reference and the allocator
here; the package does not need it.

    PYTHONPATH=.:plugins/gpu_hip python plugins/gpu_hip/tests/device_library.py [--tune N] [--only WORD] [--check]
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from mgx_core import dtype
from mgx_core.errors import No
from mgx_gpu_hip.library import Activation, AttentionProblem, ConvProblem, GemmProblem, Libraries, LibraryPlan, Matrix

RELU, RELU6 = Activation("relu"), Activation("relu", high=6.0)
GELU, GELU_TANH, SWISH = Activation("gelu_erf"), Activation("gelu_tanh"), Activation("swish")
HALF, SINGLE, BRAIN = dtype.float16, dtype.float32, dtype.bfloat16
E4M3, E5M2 = dtype.float8_e4m3fn, dtype.float8_e5m2
# maximum error relative to the largest value; TF32 would have 3e-4
LIMIT = {HALF: 2e-3, SINGLE: 2e-5, BRAIN: 1.6e-2}
BYTE_FLOAT_SUMS = 2.0**-12  # products of 8-bit floats: units keep some 13 bits of the sums of a few terms


def gemms() -> Iterator[GemmProblem]:
    packed = GemmProblem.packed
    for of in (HALF, SINGLE):
        for batch in (1, 32):
            rows, patches = 128 * batch, 197 * batch
            yield packed(rows, 768, 768, of, epilogue=("bias",))
            yield packed(rows, 2304, 768, of, epilogue=("bias",))
            yield packed(rows, 768, 768, of, epilogue=("bias", "residual"))
            if of is HALF and batch == 1:
                yield packed(rows, 3072, 768, of, epilogue=("bias", GELU))
            yield packed(rows, 3072, 768, of, epilogue=("bias", GELU_TANH))
            yield packed(rows, 768, 3072, of, epilogue=("bias", "residual"))
            yield packed(patches, 3072, 768, of, b_transposed=True, epilogue=("bias",))
            yield packed(patches, 768, 3072, of, b_transposed=True, epilogue=("bias", "residual"))
            yield packed(batch, 1000, 2048, of, b_transposed=True, epilogue=("bias",))
            yield packed(128, 128, 64, of, batch=12 * batch, b_transposed=True, alpha=0.125)
            yield packed(128, 64, 128, of, batch=12 * batch)
    yield packed(128, 50257, 768, HALF, b_transposed=True)
    yield packed(128, 50264, 768, HALF, b_transposed=True)  # five times as fast as 50257


def odd_gemms() -> Iterator[GemmProblem]:
    packed = GemmProblem.packed
    for of in (HALF, SINGLE, BRAIN):
        yield packed(33, 17, 65, of, epilogue=("bias", RELU))
        yield packed(40, 24, 56, of, a_transposed=True, epilogue=(RELU,))
        yield packed(16, 48, 32, of, batch=5, b_shared=True, epilogue=("bias",))
        yield packed(24, 40, 64, of, batch=3, a_transposed=True, b_shared=True, alpha=0.5)
    for of in (HALF, BRAIN):
        operands = Matrix(of, 64, batch_stride=40 * 64), Matrix(of, 24, batch_stride=64 * 24)
        yield GemmProblem(40, 24, 64, *operands, Matrix(SINGLE, 24, batch_stride=40 * 24), batch=3)
        yield GemmProblem(40, 24, 64, *operands, Matrix(SINGLE, 24), epilogue=("bias",), bias_dtype=SINGLE)
    yield GemmProblem(
        32, 64, 48, Matrix(HALF, 56), Matrix(HALF, 72), Matrix(HALF, 80), residual=Matrix(HALF, 96),
        epilogue=("bias", "residual"),
    )  # fmt: skip


def scaled_gemms() -> Iterator[GemmProblem]:
    """Products of 8-bit floats, with factors per column, as quantization makes them, or one factor."""
    for rows in (4096, 6304, 197):
        for n, k in ((2304, 768), (768, 768), (3072, 768), (768, 3072)):
            yield byte_floats(rows, n, k)
            yield byte_floats(rows, n, k, scaled=False, alpha=0.5)
    yield byte_floats(4096, 3072, 768, epilogue=("bias", GELU_TANH))
    yield byte_floats(4096, 768, 3072, epilogue=("bias", "residual"))
    yield byte_floats(4096, 768, 3072, to=BRAIN)


def odd_scaled_gemms() -> Iterator[GemmProblem]:
    yield byte_floats(33, 48, 80, epilogue=("bias", RELU))
    yield byte_floats(33, 48, 80, epilogue=(), to=SINGLE)
    yield byte_floats(40, 32, 64, types=(E4M3, E5M2), epilogue=())
    yield byte_floats(40, 32, 64, types=(E5M2, E4M3), to=BRAIN)
    yield byte_floats(40, 32, 64, scaled=False, alpha=0.5)


def byte_floats(
    m: int, n: int, k: int, types: Any = (E4M3, E4M3), to: Any = HALF, epilogue: Any = ("bias",), **more: Any
) -> GemmProblem:
    left, right = types
    given = {"scaled": True, "bias_dtype": to if "bias" in epilogue else None} | more
    residual = Matrix(to, n) if "residual" in epilogue else None
    return GemmProblem(
        m, n, k, Matrix(left, k), Matrix(right, k, True), Matrix(to, n), residual=residual, epilogue=epilogue, **given
    )


def conv(
    batch: int, c: int, size: int, filters: int, k: Any, stride: int = 1, groups: int = 1, pad: Any = None, **more: Any
) -> ConvProblem:
    kernel = (k, k) if isinstance(k, int) else k
    pads = tuple((n // 2, n // 2) for n in kernel) if pad is None else ((pad, pad),) * 2
    return ConvProblem((batch, c, size, size), filters, kernel, (stride, stride), pads=pads, groups=groups, **more)


def convolutions() -> Iterator[ConvProblem]:
    br, brr = ("bias", RELU), ("bias", "residual", RELU)
    for of in (HALF, SINGLE):
        for b in (1, 32):
            more = {"dtype": of}
            yield conv(b, 3, 224, 64, 7, 2, epilogue=br, **more)  # ResNet-50
            for width, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
                yield conv(b, 4 * width, size, width, 1, epilogue=br, **more)
                yield conv(b, width, size, width, 3, epilogue=br, **more)
                yield conv(b, width, size, 4 * width, 1, epilogue=brr, **more)
                if width > 64:
                    yield conv(b, width, 2 * size, width, 3, 2, epilogue=br, **more)
                    yield conv(b, 2 * width, 2 * size, 4 * width, 1, 2, epilogue=("bias",), **more)
            yield conv(b, 96, 112, 96, 3, 2, 96, epilogue=("bias", RELU6), **more)  # MobileNet v2
            yield conv(b, 144, 56, 144, 3, 1, 144, epilogue=("bias", RELU6), **more)
            clipped = ("bias", RELU6) if of is HALF else ("bias",)
            yield conv(b, 24, 56, 144, 1, epilogue=clipped, **more)
            yield conv(b, 144, 56, 24, 1, epilogue=("bias", "residual"), **more)
            yield conv(b, 320, 7, 1280, 1, epilogue=clipped, **more)
            yield conv(b, 192, 17, 192, (1, 7), epilogue=br, **more)  # Inception v3
            yield conv(b, 192, 17, 192, (7, 1), epilogue=br, **more)
            yield conv(b, 288, 35, 384, 3, 2, pad=0, epilogue=br, **more)
            yield conv(b, 80, 73, 192, 3, pad=0, epilogue=br, **more)
    yield conv(1, 128, 56, 128, 3, epilogue=("bias", SWISH))


def odd_convolutions() -> Iterator[ConvProblem]:
    for of in (HALF, SINGLE, BRAIN):
        yield conv(2, 16, 14, 24, 3, epilogue=(), dtype=of)
        yield conv(2, 16, 14, 24, 3, epilogue=("bias",), dtype=of)
        if of is not BRAIN:
            yield conv(2, 16, 14, 16, 3, 2, 16, epilogue=("bias", "residual", SWISH), dtype=of)
        if of is not SINGLE:
            yield conv(2, 16, 14, 16, 1, epilogue=("residual",), dtype=of)
            yield conv(2, 16, 14, 24, 3, epilogue=("bias", SWISH, "residual"), dtype=of)
            yield conv(2, 16, 14, 24, 3, epilogue=("bias", GELU), dtype=of)
        yield conv(2, 16, 14, 24, 3, 2, 4, epilogue=("bias", RELU), dtype=of)
        if of is not SINGLE:
            yield conv(2, 16, 14, 24, 3, epilogue=(), dtype=of, alpha=2.0**-17)
            yield conv(2, 16, 14, 24, 3, epilogue=("bias", "residual"), dtype=of, alpha=0.25)
        yield ConvProblem((2, 16, 14, 15), 24, (3, 4), (2, 1), pads=((0, 1), (1, 2)), epilogue=("bias", RELU), dtype=of)
        yield conv(2, 16, 14, 24, 3, epilogue=("bias", RELU), dtype=of, x_pitch=40, y_pitch=64)
        yield ConvProblem((2, 16, 15, 17), 24, (3, 3), (1, 1), (2, 2), ((2, 2), (2, 2)), epilogue=("bias",), dtype=of)


def attentions() -> Iterator[AttentionProblem]:
    packed = AttentionProblem.packed
    for b in (1, 32):
        yield packed(b, 12, 128, 128, 64)
        yield by_heads(b, 12, 128, 64)
        yield packed(b, 12, 128, 128, 64, bias=(b, 1, 1, 128))
        yield by_heads(b, 12, 197, 64)
        yield by_heads(b, 12, 128, 64, causal=True)
    yield packed(1, 32, 2048, 2048, 128, causal=True, kv_heads=8)
    yield packed(8, 32, 1, 2048, 128, kv_heads=8)


def odd_attentions() -> Iterator[AttentionProblem]:
    packed = AttentionProblem.packed
    yield packed(2, 4, 77, 77, 80, dtype=BRAIN)
    yield packed(2, 4, 50, 70, 64, bias=(1, 4, 50, 70))
    yield packed(2, 4, 40, 40, 64, causal=True, bias=(2, 1, 40, 40))
    yield packed(2, 8, 33, 65, 32, kv_heads=2, scale=0.3)
    yield packed(2, 12, 64, 40, 64, kv_heads=1)
    yield packed(2, 4, 40, 40, 64, bias=(2, 1, 40, 40), bias_dtype=SINGLE)


def by_heads(b: int, h: int, s: int, d: int, **more: Any) -> AttentionProblem:
    """Returns operands as slices of one [batch, length, 3, heads, size] tensor, result as [batch, length, heads, size]."""
    inside = (s * 3 * h * d, d, 3 * h * d, 1)
    return AttentionProblem(
        b, h, s, s, d, inside, inside, inside, (s * h * d, d, h * d, 1), 1 / math.sqrt(d), **more
    )  # fmt: skip


class Case(NamedTuple):
    """A problem with memory to run it: addresses for launches, the result, the expected result, torch's implementation."""

    problem: Any
    operands: dict[str, Any]
    result: Any
    expected: Callable[[], Any]
    eager: Callable[[], Any]


def torch_type(of: Any) -> Any:
    import torch

    return {
        HALF: torch.float16, SINGLE: torch.float32, BRAIN: torch.bfloat16, E4M3: torch.float8_e4m3fn, E5M2: torch.float8_e5m2,
    }[of]  # fmt: skip


def activate(x: Any, a: Activation) -> Any:
    import torch.nn.functional as F

    if a.kind == "relu":
        return x.clamp(a.low, a.high) if a.high is not None else F.relu(x)
    if a.kind == "swish":
        return F.silu(x)
    return F.gelu(x, approximate="tanh" if a.kind == "gelu_tanh" else "none")


def finish(x: Any, epilogue: Any, bias: Any, residual: Any) -> Any:
    for step in epilogue:
        x = x + bias if step == "bias" else x + residual if step == "residual" else activate(x, step)
    return x


def random(*dims: int, of: Any, scale: float = 1.0) -> Any:
    import torch

    return (torch.randn(dims, device="cuda", dtype=torch.float32) * scale).to(torch_type(of))


def window(memory: Any, dims: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    return memory.as_strided(dims, strides)


def gemm_case(p: GemmProblem) -> Case:
    import torch

    def matrix(x: Matrix, rows: int, columns: int, scale: float = 1.0) -> tuple[Any, Any]:
        """Returns memory and the operand as a batch of [rows, columns]."""
        inner = columns if x.transposed else rows
        memory = random(max(x.batch_stride * (p.batch - 1), 0) + inner * x.ld, of=x.dtype, scale=scale)
        steps = (x.batch_stride, 1, x.ld) if x.transposed else (x.batch_stride, x.ld, 1)
        return memory, window(memory, (p.batch, rows, columns), steps)

    a, av = matrix(p.a, p.m, p.k)
    b, bv = matrix(p.b, p.k, p.n, 1 / math.sqrt(p.k))
    d, dv = matrix(p.d, p.m, p.n)
    operands = {"a": a, "b": b, "d": d}
    bias = residual = None
    if "bias" in p.epilogue:
        bias = operands["bias"] = random(p.n, of=p.d.dtype)
    if p.residual is not None:
        operands["residual"], residual = matrix(p.residual, p.m, p.n)

    factor: Any = 1.0
    if p.scaled:
        operands["a_scale"], operands["b_scale"] = (random(size, of=SINGLE).abs() + 0.5 for size in (p.m, p.n))
        factor = operands["a_scale"][:, None].double() * operands["b_scale"].double()

    def run(wide: bool) -> Any:
        if p.dtype.bits == 8 and not wide:
            factors = [torch.ones((p.m, 1), device="cuda"), torch.ones((1, p.n), device="cuda")]
            return torch._scaled_mm(av[0], bv[0], *factors, out_dtype=torch.bfloat16)
        up = (lambda x: None if x is None else x.double()) if wide else (lambda x: x)
        x, y = up(av), up(bv)
        if p.dtype.bits == 8:
            sums = torch.matmul(x, y) * factor * p.alpha
            return finish(sums, p.epilogue, up(bias), up(residual))
        if p.batch == 1 and bias is not None and p.alpha == 1:
            return finish(
                torch.nn.functional.linear(x[0], y[0].T, up(bias)),
                p.epilogue[1:],
                None,
                None if residual is None else up(residual)[0],
            )[None]
        z = torch.matmul(x, y)
        return finish(z * p.alpha if p.alpha != 1 else z, p.epilogue, up(bias), up(residual))

    return Case(p, operands, dv, lambda: run(True), lambda: run(False))


def conv_case(p: ConvProblem) -> Case:
    import torch.nn.functional as F

    def image(dims: tuple[int, ...], pitch: int) -> tuple[Any, Any]:
        memory = random(dims[0], *dims[2:], pitch or dims[1], of=p.dtype)
        return memory, memory[..., : dims[1]].permute(0, 3, 1, 2)

    x, xv = image(p.dims, p.x_pitch)
    y, yv = image(p.out_dims, p.y_pitch)
    inner = p.dims[1] // p.groups
    w = random(p.filters, *p.kernel, inner, of=p.dtype, scale=1 / math.sqrt(inner * math.prod(p.kernel)))
    operands = {"x": x, "w": w, "y": y}
    bias = residual = None
    if "bias" in p.epilogue:
        bias = operands["bias"] = random(p.filters, of=p.dtype)
    if "residual" in p.epilogue:
        operands["residual"], residual = image(p.out_dims, p.residual_pitch)
    pads = [n for pair in reversed(p.pads) for n in pair]

    def run(wide: bool) -> Any:
        up = (lambda t: None if t is None else t.double()) if wide else (lambda t: t)
        first = bias is not None and p.epilogue[0] == "bias"
        image = F.pad(up(xv), pads)
        weights = up(w.permute(0, 3, 1, 2)) * p.alpha
        z = F.conv2d(image, weights, up(bias) if first else None, p.stride, 0, p.dilation, p.groups)
        return finish(z, p.epilogue[1:] if first else p.epilogue, up(bias), up(residual))

    return Case(p, operands, yv, lambda: run(True), lambda: run(False))


def attention_case(p: AttentionProblem) -> Case:
    import torch
    import torch.nn.functional as F

    def operand(heads: int, rows: int, size: int, strides: tuple[int, ...]) -> tuple[Any, Any]:
        dims = (p.batch, heads, rows, size)
        memory = random(1 + sum((n - 1) * s for n, s in zip(dims, strides, strict=True)), of=p.dtype)
        return memory, window(memory, dims, strides)

    q, qv = operand(p.heads, p.queries, p.size, p.q)
    k, kv = operand(p.groups, p.keys, p.size, p.k)
    v, vv = operand(p.groups, p.keys, p.out_size, p.v)
    o, ov = operand(p.heads, p.queries, p.out_size, p.o)
    operands = {"q": q, "k": k, "v": v, "o": o}
    mask = None
    if p.bias is not None:
        mask = operands["bias"] = random(*p.bias, of=p.bias_dtype or p.dtype)

    def expected() -> Any:
        more = p.heads // p.groups
        scores = qv.double() @ kv.double().repeat_interleave(more, 1).transpose(-1, -2) * p.scale
        if mask is not None:
            scores = scores + mask.double()
        if p.causal:
            seen = torch.ones(p.queries, p.keys, dtype=torch.bool, device="cuda").tril()
            scores = scores.masked_fill(~seen, -math.inf)
        return scores.softmax(-1) @ vv.double().repeat_interleave(more, 1)

    def eager() -> Any:
        return F.scaled_dot_product_attention(
            qv, kv, vv, mask, is_causal=p.causal, scale=p.scale, enable_gqa=p.groups != p.heads
        )

    return Case(p, operands, ov, expected, eager)


def seconds(run: Callable[[], Any], repeat: int = 20) -> float:
    """Returns seconds per run in a replayed graph of `repeat` runs: median of 5."""
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
        run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(repeat):
            run()
    graph.replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(5):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[2] / repeat / 1e3


class Runner:
    """The libraries, with plans launched on torch's current stream in torch's memory."""

    def __init__(self) -> None:
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        torch.manual_seed(0)
        torch.zeros(1, device="cuda")
        self.libraries = Libraries("cuda")
        self.scratch = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")

    def case(self, p: Any) -> Case:
        made = {GemmProblem: gemm_case, ConvProblem: conv_case, AttentionProblem: attention_case}[type(p)]
        return made(p)

    def plans(self, p: Any, count: int) -> list[LibraryPlan] | No:
        """Returns plans that need no compilation; if there are none, a few that do."""
        if isinstance(p, AttentionProblem):
            return self.libraries.plans(p, count)
        ready = self.libraries.plans(p, count, compiled=False)
        return self.libraries.plans(p, 3) if isinstance(ready, No) else ready

    def launcher(self, plan: LibraryPlan, case: Case) -> Callable[[], None]:
        import torch

        addresses = {name: value.data_ptr() for name, value in case.operands.items()}
        workspace = self.scratch.data_ptr() if plan.workspace else None
        return lambda: plan.launch(torch.cuda.current_stream().cuda_stream, **addresses, workspace=workspace)

    def error(self, plan: LibraryPlan, case: Case) -> float:
        """Returns the largest error relative to the largest value."""
        import torch

        case.result.fill_(math.nan)
        self.launcher(plan, case)()
        torch.cuda.synchronize()
        expected = case.expected()
        return float(((case.result.double() - expected).abs().max() / expected.abs().max()).item())


def limit(p: Any) -> float:
    if isinstance(p, GemmProblem) and p.dtype.bits == 8:
        return max(LIMIT[p.d.dtype], BYTE_FLOAT_SUMS)
    return LIMIT[p.d.dtype if isinstance(p, GemmProblem) else p.dtype]


CHECKED = [
    *gemms(),
    *odd_gemms(),
    *scaled_gemms(),
    *odd_scaled_gemms(),
    *convolutions(),
    *odd_convolutions(),
    *attentions(),
    *odd_attentions(),
]


@pytest.fixture(scope="module")
def runner() -> Runner:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    return Runner()


@pytest.mark.gpu
@pytest.mark.parametrize("problem", CHECKED, ids=str)
def test_numbers(runner: Runner, problem: Any) -> None:
    plan = runner.libraries.plan(problem)
    assert not isinstance(plan, No), plan.why
    assert runner.error(plan, runner.case(problem)) <= limit(problem)


@pytest.mark.gpu
def test_a_saved_choice_gives_the_same_plan(runner: Runner) -> None:
    for problem in (next(gemms()), next(convolutions()), next(attentions())):
        plan = runner.libraries.plan(problem)
        assert not isinstance(plan, No)
        again = runner.libraries.plan(problem, plan.choice)
        assert again.choice == plan.choice
        assert runner.error(again, runner.case(problem)) <= limit(problem)


def report(runner: Runner, problems: list[Any], tune: int) -> tuple[list[float], int]:
    """Prints one line per problem; returns the ratios to torch and the number of failures."""
    ratios, failed = [], 0
    for p in problems:
        started = time.perf_counter()
        plan = runner.libraries.plan(p)
        made = time.perf_counter() - started
        kind = type(p).__name__[:4].lower()
        if isinstance(plan, No):
            print(f"{kind} {p!s:62} NO {plan.why[:150]}", flush=True)
            failed += 1
            continue
        case = runner.case(p)
        error = runner.error(plan, case)
        good = error <= limit(p)
        failed += not good
        note = plan.name.split()[0]
        first = seconds(runner.launcher(plan, case))
        best = first
        if tune:
            plans = runner.plans(p, tune)
            if not isinstance(plans, No):
                times = [(x, seconds(runner.launcher(x, case))) for x in plans]
                measured = sorted(times, key=lambda pair: pair[1])
                chosen = measured[0][0]
                best = min(first, measured[0][1])
                wrong = runner.error(chosen, case)
                note += f" -> {chosen.name.split()[0]} of {len(measured)}" + (
                    "" if wrong <= limit(p) else f" WRONG {wrong:.1e}"
                )
        peer = seconds(case.eager)
        ratios.append(best / peer)
        rate = f"{p.flops / best / 1e12:6.1f} TF"
        print(
            f"{kind} {p!s:62} plan {made * 1e3:7.1f} ms  err {error:.1e}{'' if good else ' WRONG'}  first {first * 1e6:7.1f}"
            f"  best {best * 1e6:7.1f}  torch {peer * 1e6:7.1f} us  {best / peer:5.2f}  {rate}  {note}",
            flush=True,
        )
    return ratios, failed


def mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tune", type=int, default=0, help="number of plans to time per problem")
    parser.add_argument("--only", default="", help="only problems whose line contains this word")
    parser.add_argument("--check", action="store_true", help="include problems with odd extents")
    options = parser.parse_args()
    import torch

    runner = Runner()
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "cuDNN", torch.backends.cudnn.version())
    failed = 0
    for word, usual, odd in (
        ("gemm", gemms, odd_gemms),
        ("scaled", scaled_gemms, odd_scaled_gemms),
        ("convolution", convolutions, odd_convolutions),
        ("attention", attentions, odd_attentions),
    ):
        problems = [p for p in usual() if options.only in f"{word} {p}"]
        if options.check:
            for p in odd():
                plan = runner.libraries.plan(p)
                error = math.nan if isinstance(plan, No) else runner.error(plan, runner.case(p))
                good = error <= limit(p)
                failed += not good
                print(
                    f"odd {p!s:60} {plan.why[:200] if isinstance(plan, No) else f'err {error:.1e}'} {'' if good else 'WRONG'}"
                )
        ratios, wrong = report(runner, problems, options.tune)
        failed += wrong
        print(
            f"== {word}: {len(ratios)} problems, geometric mean of time over torch eager {mean(ratios):.3f}, failed {wrong}"
        )
    print("failed", failed)
    plan = runner.libraries.plan(next(gemms()))
    assert not isinstance(plan, No)
    case = runner.case(next(gemms()))
    for p in (next(gemms()), next(convolutions()), next(attentions())):
        plan, case = runner.libraries.plan(p), runner.case(p)
        assert not isinstance(plan, No)
        launch = runner.launcher(plan, case)
        launch()
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(200):
            launch()
        print(f"host cost of a launch: {(time.perf_counter() - started) / 200 * 1e6:.1f} us  {plan.name}")
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
