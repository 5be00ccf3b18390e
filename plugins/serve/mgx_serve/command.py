"""``mgx-serve MODEL_OR_REPOSITORY``: the command line."""

from __future__ import annotations

import asyncio
import logging
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mgx_core import MgxError, ParameterError

from .grpc_polling import direct_polling
from .malloc_tuning import keep_freed_memory

if TYPE_CHECKING:
    from .settings import Settings

__all__ = ["main"]

# options that are settings of models, by the same name
OF_MODELS: Final = ("target", "instances", "max_batch", "queue_size", "timeout", "warm", "cpus", "gpus")


@click.command()
@click.argument("models", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; 0.0.0.0 for every network, :: with IPv6 too.",
)
@click.option("--http-port", default=8000, show_default=True, help="0: any free port; -1: no HTTP.")
@click.option("--grpc-port", default=8001, show_default=True, help="0: any free port; -1: no gRPC.")
@click.option("--target", default="", help="Target to compile for [default: the best one here].")
@click.option("--precision", type=click.Choice(["fp16", "bf16"]), default=None, help="Compute in a narrower type.")
@click.option("--instances", default=1, show_default=True, help="Runs of a model at a time.")
@click.option(
    "--max-batch",
    default=0,
    help="Join requests to runs of at most so many rows; for models whose rows do not depend on each other [default: no].",
)
@click.option("--queue-delay", default=0.0, show_default=True, help="Milliseconds that a request may wait for others.")
@click.option("--queue-size", default=256, show_default=True, help="Requests that may wait for a model.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds after which a request is given up.")
@click.option(
    "--warm/--no-warm", default=True, show_default=True, help="Compile for all batch sizes when a model is loaded."
)
@click.option("--max-bytes", default=256 << 20, show_default=True, help="Of one request.")
@click.option("--memory", default=2 << 30, show_default=True, help="Bytes that all requests in flight may take.")
@click.option("--shared-memory", is_flag=True, help="Let clients hand over tensors in this host's shared memory.")
@click.option("--traces", is_flag=True, help="Send traces to where OTEL_EXPORTER_OTLP_ENDPOINT says.")
@click.option(
    "--frontends",
    default=0,
    show_default=True,
    help="Processes that take requests in the engine's stead; for many clients.",
)
@click.option("--ray", is_flag=True, help="Run models in processes of Ray, on one machine or many.")
@click.option("--ray-address", default="", help="Of a cluster that runs; auto for this machine's [default: start one].")
@click.option("--replicas", default="1", show_default=True, help="On Ray: processes of a model, N or LEAST:MOST.")
@click.option("--cpus", default=1.0, show_default=True, help="On Ray: processor cores of a replica.")
@click.option("--gpus", default=0.0, show_default=True, help="On Ray: GPUs of a replica, or a part of one.")
@click.option(
    "--tokens", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="TOML file: token = [models]."
)
@click.option("--certificate", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="For TLS.")
@click.option("--key", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The certificate's.")
@click.option("--verbose", "-v", is_flag=True, help="Log what happens.")
def main(models: Path, verbose: bool, **given: Any) -> None:
    """Serve MODELS by the Open Inference Protocol: a model's file, or a folder of NAME/VERSION/model.* with an optional
    NAME/config.toml.

    \b
    Examples:
      mgx-serve resnet50.onnx
      mgx-serve models/ --max-batch 64 --queue-delay 2
      mgx-serve models/ --ray --replicas 1:8 --gpus 0.5
      curl localhost:8000/v2/models/resnet50
    """
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(message)s"
    )
    keep_freed_memory()
    with direct_polling():
        from .server import Server
    try:
        asyncio.run(Server(models, _settings(given)).run())
    except (MgxError, OSError, tomllib.TOMLDecodeError) as error:
        click.echo(f"mgx-serve: {error}", err=True)
        sys.exit(1)


def _settings(given: dict[str, Any]) -> Settings:
    """Returns the options as settings.  Errors: ParameterError; OSError and tomllib.TOMLDecodeError for the file of tokens."""
    from .settings import ModelSettings, Settings

    tokens, precision = given.pop("tokens"), given.pop("precision")
    least, most = _replicas(given.pop("replicas"))
    delay, on_ray, address = given.pop("queue_delay"), given.pop("ray"), given.pop("ray_address")
    model = ModelSettings(
        **{n: given.pop(n) for n in OF_MODELS},
        precision=precision or "",
        queue_delay=delay / 1e3,
        replicas=least,
        max_replicas=most,
    )
    allowed = {} if tokens is None else {k: tuple(v) for k, v in tomllib.loads(tokens.read_text()).items()}
    return Settings(**given, tokens=allowed, ray=address if on_ray or address else None, model=model)


def _replicas(text: str) -> tuple[int, int]:
    """Errors: ParameterError."""
    least, _, most = text.partition(":")
    if not least.isdecimal() or (most and not most.isdecimal()):
        raise ParameterError(f"--replicas must be a number, or two with a colon between them, got {text!r}")
    return int(least), int(most or 0)
