"""Three steps as one graph of Ray Serve: a tokenizer in Python, an encoder and a head that mgx runs.

    pip install 'mgx-serve[ray]' mgx-ref && python examples/ensemble/ensemble.py

Each step is a separate deployment with its own replicas: the encoder batches the texts that arrive at the same time.  The
weights are random; the example demonstrates the graph.
"""

from __future__ import annotations

import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
from ray import serve

import mgx_core as mgx
from mgx_serve import ModelSettings
from mgx_serve.on_ray import application

WORDS, LENGTH, WIDTH, CLASSES = 1000, 16, 32, 3


def weights() -> dict[str, np.ndarray]:
    drawn = np.random.default_rng(0)
    shapes = {"words": (WORDS, WIDTH), "dense": (WIDTH, WIDTH), "classes": (WIDTH, CLASSES)}
    return {name: drawn.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def write_models(folder: Path) -> tuple[Path, Path]:
    """Writes the encoder, int64 [batch, 16] -> float32 [batch, 32], and the head, -> [batch, 3]; returns their paths."""
    given = weights()
    batch = mgx.dim.symbol("batch", 1, 64)
    encoder = mgx.Program()
    m = encoder.get_main_module()
    tokens = m.add_parameter("tokens", mgx.Shape("int64", [batch, LENGTH]))
    rows = m.add(mgx.op("gather", axis=0), m.add_literal(given["words"]), tokens)
    mean = m.add(mgx.op("squeeze", axes=[1]), m.add(mgx.op("reduce_mean", axes=[1]), rows))
    m.add_return([m.add(mgx.op("tanh"), m.add(mgx.op("dot"), mean, m.add_literal(given["dense"])))])
    head = mgx.Program()
    m = head.get_main_module()
    features = m.add_parameter("features", mgx.Shape("float32", [batch, WIDTH]))
    m.add_return([m.add(mgx.op("softmax", axis=1), m.add(mgx.op("dot"), features, m.add_literal(given["classes"])))])
    paths = folder / "encoder.mxr", folder / "head.mxr"
    for program, path in zip((encoder, head), paths, strict=True):
        program.save(path)
    return paths


class Tokenizer:
    """Maps words to numbers by their checksum; pads with 0."""

    def __call__(self, text: str) -> np.ndarray:
        numbers = [1 + zlib.crc32(word.encode()) % (WORDS - 1) for word in text.lower().split()[:LENGTH]]
        return np.array([numbers + [0] * (LENGTH - len(numbers))], np.int64)


class Classifier:
    """The graph: text -> tokens -> features -> probabilities."""

    def __init__(self, tokenizer, encoder, head) -> None:
        self.tokenizer, self.encoder, self.head = tokenizer, encoder, head

    async def __call__(self, text: str) -> list[float]:
        tokens = await self.tokenizer.remote(text)
        (features,) = (await self.encoder.infer.remote({"tokens": tokens})).values()
        (probabilities,) = (await self.head.infer.remote({"features": features})).values()
        return probabilities[0].tolist()


def graph(folder: Path, target: str = ""):
    """Returns the application, which any client of Ray Serve may call."""
    encoder, head = write_models(folder)
    batched = ModelSettings(target=target, max_batch=16, cpus=0.25)
    one = {"num_cpus": 0.25}
    tokenizer = serve.deployment(Tokenizer, ray_actor_options=one).bind()
    classifier = serve.deployment(Classifier, ray_actor_options=one)
    return classifier.bind(tokenizer, application(encoder, batched), application(head, batched))


def main(target: str = "") -> None:
    import ray

    ray.init(log_to_driver=False, include_dashboard=False, namespace="mgx")
    serve.start(http_options={"location": "NoServer"})
    with tempfile.TemporaryDirectory() as folder:
        handle = serve.run(graph(Path(folder), target), name="classifier", route_prefix=None)
        for text in ("a graph of three steps", "each step has replicas of its own"):
            print(f"{text!r}: {np.round(handle.remote(text).result(), 3)}")
    serve.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
