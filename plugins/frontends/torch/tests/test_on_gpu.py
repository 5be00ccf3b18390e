"""Tensors on a GPU: results are new tensors, on the caller's stream and within torch's graph capture."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.gpu


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).cuda().eval()


def test_results_are_not_overwritten() -> None:
    model = network()
    compiled = torch.compile(lambda x: (model(x), x.sum(1)), backend="mgx", dynamic=False)
    xs = [torch.randn(8, 64, device="cuda") for _ in range(4)]
    with torch.no_grad():
        found = [compiled(xs[i % 2]) for i in range(4)]
        for i, (out, total) in enumerate(found):
            torch.testing.assert_close(out, model(xs[i % 2]), rtol=1e-3, atol=1e-3)
            torch.testing.assert_close(total, xs[i % 2].sum(1), rtol=1e-4, atol=1e-4)
        out = compiled(xs[0])[0]
        out.zero_()
        torch.testing.assert_close(compiled(xs[0])[0], model(xs[0]), rtol=1e-3, atol=1e-3)


def test_loops_have_fresh_results() -> None:
    model = network()
    compiled = torch.compile(lambda x: (model(x), x.sum(1), x * 2), backend="mgx", dynamic=False)
    xs = [torch.randn(8, 64, device="cuda") for _ in range(12)]
    with torch.no_grad():
        want = [(model(x), x.sum(1), x * 2) for x in xs]
        for kept in (1, 2, 6):  # results that the caller holds at the next call
            held: list[tuple[int, tuple[torch.Tensor, ...]]] = []
            for i in range(60):
                for place, found in held:
                    torch.testing.assert_close(found, want[place], rtol=1e-3, atol=1e-3)
                place = i % 12 if i >= 40 else i % 2
                held = [*held, (place, compiled(xs[place]))][-kept:]
                torch.testing.assert_close(held[-1][1], want[place], rtol=1e-3, atol=1e-3)


def test_results_in_loops_are_not_copied() -> None:
    model = network()
    compiled = torch.compile(lambda x: (model(x), x.sum(1), x * 2), backend="mgx", dynamic=False)
    x = torch.randn(8, 64, device="cuda")

    def copies() -> int:
        with torch.profiler.profile() as seen:
            compiled(x)
        return sum(e.count for e in seen.key_averages() if "aten::_foreach_copy_" in e.key)

    with torch.no_grad():
        compiled(x)
        assert copies() == 1
        for _ in range(8):
            compiled(x)
        assert copies() == 0
        torch.testing.assert_close(compiled(x)[0], model(x), rtol=1e-3, atol=1e-3)


def test_threads_and_streams_have_results_of_their_own() -> None:
    model = network()
    compiled = torch.compile(model, backend="mgx", dynamic=False)
    inputs = [torch.randn(8, 64, device="cuda") for _ in range(3)]
    wrong: list[int] = []
    with torch.no_grad():
        want = [model(x) for x in inputs]
        for x in inputs:
            compiled(x)
    torch.cuda.synchronize()

    def work(i: int) -> None:
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(200):
                out = compiled(inputs[i])
                if not torch.allclose(out, want[i], rtol=1e-3, atol=1e-3):
                    wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_writes_to_weights_are_seen() -> None:
    torch.manual_seed(0)
    filters = nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()
    model = nn.Sequential(*filters, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)).cuda().eval()
    compiled = torch.compile(model, backend="mgx", dynamic=False)
    x = torch.randn(4, 3, 32, 32, device="cuda")

    def check() -> None:
        for _ in range(3):
            torch.testing.assert_close(compiled(x), model(x), rtol=2e-3, atol=1e-3)

    with torch.no_grad():
        check()
        model[0].weight.data.mul_(1.5)  # not counted by torch's version counter
        check()
        model[5].weight.add_(0.1)
        check()
        model[1].running_var.data.fill_(2.0)
        check()
        model[5].bias.data = torch.ones(10, device="cuda")
        check()


def test_a_capture_after_writes_to_weights() -> None:
    model = network()
    compiled = torch.compile(model, backend="mgx", dynamic=False)
    x = torch.randn(8, 64, device="cuda")
    with torch.no_grad():
        compiled(x)
        model[0].weight.data.mul_(2)
        compiled(x)  # finds them
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = compiled(x)
        for factor in (1.0, 3.0):
            model[2].weight.data.mul_(factor)
            graph.replay()
            torch.testing.assert_close(result, model(x), rtol=2e-3, atol=2e-3)
        torch.testing.assert_close(compiled(x), model(x), rtol=2e-3, atol=2e-3)


def test_graph_capture_of_torch() -> None:
    model = network()
    compiled = torch.compile(model, backend="mgx", dynamic=False)
    x = torch.randn(8, 64, device="cuda")
    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                compiled(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = compiled(x)
        x.copy_(torch.randn(8, 64, device="cuda"))
        graph.replay()
        torch.testing.assert_close(out, model(x), rtol=1e-3, atol=1e-3)


def test_results_computed_on_the_host_are_copied_to_the_device() -> None:
    def places(x: torch.Tensor) -> torch.Tensor:
        return torch.nonzero(x > 0).sum(0)

    x = torch.randn(6, 5, device="cuda")
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), torch.no_grad():
        out = torch.compile(places, backend="mgx", dynamic=False)(x)
    assert out.device == x.device
    assert torch.equal(out, places(x))


def test_inputs_may_be_stored_in_any_order() -> None:
    x = torch.randn(6, 5, device="cuda").T
    for given in (x, x[:, ::2]):
        with torch.no_grad():
            found = torch.compile(lambda y: y.relu() + 1, backend="mgx", options={"strict": True})(given)
        torch.testing.assert_close(found, given.relu() + 1)
