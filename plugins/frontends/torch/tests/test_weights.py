"""Weight fingerprints and the program cache: every write is detected, and different contents are never mistaken for equal."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from mgx_core.plugins.manager import manager
from mgx_torch import compiled
from mgx_torch.compiled import CompiledGraph
from mgx_torch.decompositions import all_converters
from mgx_torch.options import TorchOptions
from mgx_torch.stored import Stored
from mgx_torch.weights import Fingerprint, SharedWeights

TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int8)


def negated(values: np.ndarray) -> None:
    values[:, -1] ^= 0x80  # the signs of floating-point elements


def two_negated(values: np.ndarray) -> None:
    values[[7, 8], -1] ^= 0x80


def turned(values: np.ndarray) -> None:
    values[:] = values[::-1].copy()


def rolled(values: np.ndarray) -> None:
    values[:] = np.roll(values, 1, 0)


def one_changed(values: np.ndarray) -> None:
    values[len(values) // 3, -1] ^= 1


def swapped(words: int) -> Callable[[np.ndarray], None]:
    def write(values: np.ndarray) -> None:
        apart = 8 * words // values.shape[1]
        values[[5, 5 + apart]] = values[[5 + apart, 5]]

    return write


WRITES = {
    "negated": negated,
    "two negated": two_negated,
    "turned": turned,
    "rolled": rolled,
    "one changed": one_changed,
    **{f"words swapped {apart} apart": swapped(apart) for apart in (1, 32, 509, 509 * 7, 2048, 4096, 2048 * 32)},
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("dtype", TYPES)
def test_every_write_is_seen(write: Callable[[np.ndarray], None], dtype: torch.dtype) -> None:
    width = torch.empty(0, dtype=dtype).element_size()
    contents = np.random.default_rng(1).integers(0, 256, (256 * 509 * 8 // width, width), np.uint8)
    weight = torch.from_numpy(contents.copy()).view(dtype)
    values = weight.view(torch.uint8).numpy()  # the same memory, without torch's count
    fingerprint = Fingerprint(weight)
    assert fingerprint.holds(weight)
    write(values)
    assert weight._version == fingerprint.version
    assert not fingerprint.holds(weight)
    values[:] = contents
    assert fingerprint.holds(weight)


@pytest.mark.parametrize("size", [2049, 2 * 2048, 32 * 2048, 33 * 2048 + 1])
def test_every_position_is_visited(size: int) -> None:
    weight = torch.zeros(size, dtype=torch.float64)
    values = weight.numpy()
    fingerprint = Fingerprint(weight)
    for place in {*range(0, size, 977), 2047, 2048, size - 2, size - 1}:
        values[place] = -0.0  # the highest bit only
        assert not fingerprint.holds(weight)
        values[place] = 0.0
    assert fingerprint.holds(weight)


def test_threads_that_run_a_new_program_store_it_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path))
    both, looked, kept, failed = threading.Barrier(2), set(), [], []

    def look(variant: compiled.Variant) -> Stored | None:
        found: Stored | None = variant.__dict__["there"]
        if threading.get_ident() in looked or threading.current_thread() is threading.main_thread():
            return found
        looked.add(threading.get_ident())
        both.wait(20)  # both have found that the program is not cached yet
        return found

    def put(variant: compiled.Variant, value: Stored | None) -> None:
        variant.__dict__["there"] = value

    monkeypatch.setattr(compiled.Variant, "unstored", property(look, put), raising=False)
    monkeypatch.setattr(Stored, "load", lambda self: None)
    monkeypatch.setattr(Stored, "keep", lambda self, program: kept.append(program))
    x = torch.randn(3, 4)
    gm = make_fx(lambda a: torch.relu(a) + 1)(x)
    graph = CompiledGraph(gm, all_converters(), TorchOptions(target="cpu", cache=True))
    variant = compiled.Variant(graph, (x,))

    def run() -> None:
        try:
            torch.testing.assert_close(variant.run((x,))[0], torch.relu(x) + 1)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(kept) == 1


def test_programs_of_other_versions_of_plugins_are_not_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path))
    x = torch.randn(3, 4)
    options = TorchOptions(target="cpu", cache=True)
    gm = make_fx(lambda a: torch.relu(a) + 1)(x)

    def stored() -> bool:
        """Runs like a new process; returns True if its program comes from the cache."""
        variant = compiled.Variant(CompiledGraph(gm, all_converters(), options), (x,))
        found = variant.unstored is None
        variant.run((x,))
        return found

    assert not stored()
    assert stored()
    (record,) = (r for r in manager().records if r.name == "torch")
    monkeypatch.setattr(record, "version", record.version + ".1")
    assert not stored()
    assert stored()


COMPLEX = [torch.randn(5, dtype=torch.complex128), torch.tensor(1 + 2j), torch.randn(3000, dtype=torch.complex64)]


@pytest.mark.parametrize("weight", [*COMPLEX, torch.randn(4, dtype=torch.complex64).conj()])
def test_complex_weights_are_followed(weight: torch.Tensor) -> None:
    class Turned(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("turn", weight)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.view_as_real(x * self.turn)

    model, x = Turned(), torch.randn(weight.shape, dtype=torch.float64)
    compiled_model = torch.compile(model, backend="mgx")
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled_model(x), model(x), rtol=1e-5, atol=1e-5)
            weight.data.mul_(2)  # not counted by torch's version counter


def test_write_to_a_negated_weight_is_seen() -> None:
    memory = torch.randn(8, dtype=torch.complex64)
    weight = memory.conj().imag
    assert weight.is_neg()
    fingerprint = Fingerprint(weight)
    assert fingerprint.holds(weight)
    memory.numpy()[3] = 7j
    assert not fingerprint.holds(weight)


def test_a_write_to_a_weight_that_begins_with_a_smaller_one_is_seen() -> None:
    memory, shared = torch.zeros(64, 128), SharedWeights()
    row, whole = (shared.array(weight, "w") for weight in (memory[0], memory))
    assert np.shares_memory(shared.array(memory, "w"), whole) and np.shares_memory(row, whole)
    memory.data[1:] += 1
    assert not np.shares_memory(shared.array(memory, "w"), whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_write_to_a_weight_is_seen_while_any_program_uses_it(dtype: torch.dtype) -> None:
    """Also by a view, after the program that shared it first is gone."""
    weight, shared = torch.zeros(64, 128, dtype=dtype), SharedWeights()
    first = shared.array(weight, "w")
    second = shared.array(weight, "w")[:, None]
    del first
    weight += 1
    assert not np.shares_memory(shared.array(weight, "w"), second)


def test_arrays_on_passed_weights_are_made_once_for_each_address(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    before = compiled.host_array

    def counted(tensor: torch.Tensor) -> np.ndarray:
        made.append(tuple(tensor.shape))
        return before(tensor)

    monkeypatch.setattr(compiled, "host_array", counted)
    layer = torch.nn.Linear(128, 64, bias=False)
    found = torch.compile(layer, backend="mgx", dynamic=True)
    with torch.no_grad():
        for rows in (2, 3, 5):
            x = torch.randn(rows, 128)
            torch.testing.assert_close(found(x), layer(x))
        assert made.count((64, 128)) + made.count((128, 64)) == 1
        layer.weight.mul_(2)  # in the same memory
        torch.testing.assert_close(found(x), layer(x))
        assert len(made) == 5
        layer.weight.data = torch.randn(64, 128)
        torch.testing.assert_close(found(x), layer(x))
    assert len(made) == 7
