"""Attention of a new token with its rotation and the copies of its caches in one step, on the emulated device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from built_program import BuiltProgram

from mgx_core.errors import DeviceError
from mgx_core.targets.schedule import Step
from mgx_gpu_hip.codegen.source import KernelSource
from mgx_gpu_hip.compile.compilers import compiler_for
from mgx_gpu_hip.steps import KernelStep
from mgx_gpu_hip.target import GpuTarget

Array = Any
BOTH = pytest.mark.parametrize(
    "device", [0, 1, pytest.param(None, marks=pytest.mark.gpu)], ids=["wave64", "wave32", "gpu"]
)


class Decoder(BuiltProgram):
    """The attention of one layer for one new token, and the results of numpy."""

    def __init__(
        self, batch: int, heads: int, sharing: int, known: int, d: int = 64, *, kind: str = "float16", turned: bool = True,
        masked: bool = False, computed: bool = False, crossed: bool = False,
        partly: bool = False, of_values: str = "",
    ) -> None:  # fmt: skip
        super().__init__(seed=5)
        self.kind, self.wide = kind, np.promote_types(kind, np.float32)
        (q, qs) = self.argument(batch, heads * sharing, 1, d, kind=kind)
        kinds = kind, of_values or kind
        (k, ks), (v, vs) = (self.argument(batch, heads, 1, d, kind=of) for of in kinds)
        (keys, old_keys), (values, old_values) = (self.argument(batch, heads, known, d, kind=of) for of in kinds)
        if computed:
            keys, values = self.add("relu", keys), self.add("relu", values)
            old_keys, old_values = np.maximum(old_keys, 0), np.maximum(old_values, 0)
        if turned:
            angles = self.rng.standard_normal((batch, 1, d // 4 if partly else d // 2)).astype(self.wide)
            cos, sin = np.cos(angles).astype(kind), np.sin(angles).astype(kind)
            given = self.main.add_literal(cos), self.main.add_literal(sin)
            q, k = (self.add("rotary_embedding", x, *given) for x in (q, k))
            qs, ks = (self.turn(x, cos, sin).astype(kind) for x in (qs, ks))
        if crossed:  # as many queries of a batch as batches
            q, qs = self.add("transpose", q, permutation=[1, 0, 2, 3]), qs.swapaxes(0, 1)
        self.keys, self.values = self.add("concat", keys, k, axis=2), self.add("concat", values, v, axis=2)
        wide = [batch, heads, sharing, known + 1]
        given_keys, given_values = (
            self.add("multibroadcast", self.add("unsqueeze", x, axes=[2]), out_lens=[*wide, d])
            for x in (self.keys, self.values)
        )
        grouped = self.add("reshape", q, dims=[batch, heads, sharing, 1, d])
        scores = self.add("dot", grouped, self.add("transpose", given_keys, permutation=[0, 1, 2, 4, 3]))
        lens = [*wide[:3], 1, known + 1]
        factor = self.main.add_literal(np.asarray(0.125, kind))
        scores = self.add("mul", scores, self.add("multibroadcast", factor, out_lens=lens))
        bias = np.zeros(known + 1, kind)
        if masked:
            bias[::3] = -np.inf
            term, _ = self.argument(known + 1, kind=kind)
            self.feed[f"x{len(self.feed) - 1}"] = bias
            scores = self.add("add", scores, self.add("multibroadcast", term, out_lens=lens))
        weights = self.add("softmax", scores, axis=4)
        if of_values:
            weights = self.add("convert", weights, target_type=of_values)
        self.out = self.add("reshape", self.add("dot", weights, given_values), dims=[batch, heads * sharing, 1, d])
        new_keys, new_values = np.concatenate([old_keys, ks], 2), np.concatenate([old_values, vs], 2)
        logits = (
            np.einsum("bhgd,bhtd->bhgt", qs.reshape(batch, heads, sharing, d), new_keys, dtype=self.wide) / 8 + bias
        )
        power = np.exp(logits - logits.max(-1, keepdims=True))
        power /= power.sum(-1, keepdims=True)
        out = np.einsum("bhgt,bhtd->bhgd", power, new_values.astype(self.wide))
        self.wanted = out.reshape(batch, heads * sharing, 1, d), new_keys, new_values

    def turn(self, x: Array, cos: Array, sin: Array) -> Array:
        half = cos.shape[-1]
        a, b, rest = np.split(x.astype(self.wide), [half, 2 * half], -1)
        c, s = (v[:, None].astype(self.wide) for v in (cos, sin))
        return np.concatenate([a * c - b * s, b * c + a * s, rest], -1)

    def compile(self, on: GpuTarget, *outputs: Any, **options: Any) -> Sequence[Step]:
        """Compiles the program, and returns its steps."""
        self.main.add_return(list(outputs or (self.out, self.keys, self.values)))
        self.program.compile(on, validate=True, **options)
        (instance,) = self.program.executable.instances()
        return list(instance.runner.schedule.steps)

    def kernel(self, arch: str) -> KernelSource:
        """Compiles the program for an architecture, and returns its only kernel."""
        (step,) = self.compile(GpuTarget(), target=arch)
        assert isinstance(step, KernelStep)
        return step.source

    def steps(self, device: int | None, *outputs: Any, **options: Any) -> list[str]:
        """Compiles and runs the program, compares its results, and returns the names of the steps' kernels.

        A library may run the products on a device: its steps have the name of their class.
        """
        target = GpuTarget() if device is None else GpuTarget("host", device)
        steps = self.compile(target, *outputs, **options)
        got = [r.to_numpy() for r in self.program.run(self.feed)]
        atol = {"float16": 4e-3, "float32": 2e-5, "float64": 1e-12}[self.kind]
        for result, wanted in zip(got, self.wanted, strict=False):
            np.testing.assert_allclose(result, wanted, atol=atol, rtol=atol)
        return [s.source.name.rpartition("_")[0] if isinstance(s, KernelStep) else type(s).__name__ for s in steps]


@BOTH
@pytest.mark.parametrize(
    ("batch", "heads", "sharing", "known"),
    [(1, 4, 8, 33), (1, 2, 1, 700), (2, 3, 6, 130), (1, 1, 7, 1), (3, 2, 2, 64)],
    ids=["grouped", "split", "batch", "one known", "even"],
)
def test_a_token_takes_one_step(batch: int, heads: int, sharing: int, known: int, device: int | None) -> None:
    assert Decoder(batch, heads, sharing, known).steps(device) == ["cached_attention"]


@BOTH
@pytest.mark.parametrize("case", ["not turned", "masked", "wide", "widest", "float32", "no reuse"])
def test_other_forms(case: str, device: int | None) -> None:
    made = Decoder(
        2, 2, 4 if case == "widest" else 2, 90, {"wide": 128, "widest": 256}.get(case, 64), kind="float32" if case == "float32" else "float16",
        turned=case != "not turned", masked=case == "masked",
    )  # fmt: skip
    assert made.steps(device, memory_reuse=case != "no reuse") == ["cached_attention"]


@BOTH
def test_caches_that_another_step_computes(device: int | None) -> None:
    assert Decoder(1, 2, 4, 300, computed=True).steps(device)[-1] == "cached_attention"


@BOTH
def test_a_cache_that_is_not_a_result(device: int | None) -> None:
    made = Decoder(1, 2, 4, 40)
    assert "cached_attention" not in made.steps(device, made.out, made.keys)


@BOTH
def test_a_rotated_key_that_is_a_result(device: int | None) -> None:
    made = Decoder(1, 2, 4, 40)
    assert "cached_attention" not in made.steps(device, made.out, made.keys, made.values, made.keys.inputs[1])


@BOTH
@pytest.mark.parametrize("more", [{"d": 48}, {"of_values": "float32"}], ids=["odd size", "two types"])
def test_other_heads_are_rotated_and_appended_side_by_side(more: dict[str, Any], device: int | None) -> None:
    steps = Decoder(1, 2, 4, 40, **more).steps(device)
    assert steps[:2] == ["rotary_embedding", "concat_2"] and "cached_attention" not in steps


@BOTH
def test_heads_of_which_a_part_is_rotated(device: int | None) -> None:
    assert Decoder(1, 2, 4, 40, partly=True).steps(device) == ["rotary_embedding", "cached_attention"]


@BOTH
@pytest.mark.parametrize("case", ["empty", "crossed", "float64"])
def test_members_run_separately_if_the_kernel_declines(case: str, device: int | None) -> None:
    """Crossed: the batch of a head of the cache is not that in which its queries are rotated."""
    made = {
        "empty": lambda: Decoder(0, 2, 4, 40),
        "crossed": lambda: Decoder(4, 2, 2, 40, crossed=True),
        "float64": lambda: Decoder(1, 2, 4, 40, kind="float64"),
    }[case]()
    steps = made.steps(device)
    assert len(steps) > 1 and "cached_attention" not in steps


@pytest.mark.parametrize(
    ("arch", "grids"),
    [("sm_90", [(8, 16, 1)]), ("sm_80", [(8, 16, 1), (32, 1, 1)]), ("gfx90a", [(8, 16, 1), (32, 1, 1)])],
)
def test_blocks_that_share_many_keys_form_clusters(arch: str, grids: list[tuple[int, int, int]]) -> None:
    try:
        compiler_for(arch)
    except DeviceError as why:
        pytest.skip(str(why))
    source = Decoder(1, 4, 8, 1024).kernel(arch)
    assert [la.grid for la in source.launches] == grids
    assert ("CLUSTER(8)" in source.text) == (len(grids) == 1)


def test_sums_of_wide_heads_fit_into_shared_memory() -> None:
    try:
        compiler_for("sm_90")
    except DeviceError as why:
        pytest.skip(str(why))
    source = Decoder(16, 4, 4, 1024, 256).kernel("sm_90")
    assert source.launches[0].grid == (8, 128, 1)


@pytest.mark.gpu
@pytest.mark.parametrize("known", [1024, 5000])
def test_clusters(known: int) -> None:
    assert Decoder(2, 4, 8, known).steps(None) == ["cached_attention"]
