"""``mgx-serve MODEL_OR_REPOSITORY``: the command line."""

from __future__ import annotations

import asyncio
import logging
import re
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
    help="Address to listen on; 0.0.0.0: all IPv4 interfaces; '::': IPv6 as well.",
)
@click.option("--http-port", default=8000, show_default=True, help="HTTP port; 0: any free port, -1: no HTTP.")
@click.option("--grpc-port", default=8001, show_default=True, help="gRPC port; 0: any free port, -1: no gRPC.")
@click.option("--target", default="", help="Target to compile for [default: the best installed one].")
@click.option("--precision", type=click.Choice(["fp16", "bf16"]), default=None, help="Quantize models to this type.")
@click.option("--instances", default=1, show_default=True, help="Concurrent runs per model.")
@click.option(
    "--max-batch",
    default=0,
    help="Maximum rows of a batch; only for models whose rows are independent [default: no batching].",
)
@click.option(
    "--queue-delay",
    default=0.0,
    show_default=True,
    help="Milliseconds to wait for a batch to fill.",
)
@click.option("--queue-size", default=256, show_default=True, help="Maximum number of queued requests per model.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds that a request may be queued.")
@click.option(
    "--warm/--no-warm",
    default=True,
    show_default=True,
    help="Compile all batch sizes when a model is loaded, or on first use.",
)
@click.option("--max-bytes", default=256 << 20, show_default=True, help="Maximum size of a request in bytes.")
@click.option("--memory", default=2 << 30, show_default=True, help="Maximum memory of all requests in flight in bytes.")
@click.option("--shared-memory", is_flag=True, help="Accept tensors in shared memory of this host.")
@click.option("--traces", is_flag=True, help="Export traces to OTEL_EXPORTER_OTLP_ENDPOINT.")
@click.option(
    "--frontends",
    default=0,
    show_default=True,
    help="Number of front-end processes, for many clients.",
)
@click.option("--ray", is_flag=True, help="Run models on Ray, on one machine or several.")
@click.option(
    "--ray-address", default="", help="Address of a running Ray cluster; auto: this machine's [default: start one]."
)
@click.option("--replicas", default="1", show_default=True, help="On Ray: replicas per model, N or MIN:MAX.")
@click.option("--cpus", default=1.0, show_default=True, help="On Ray: CPU cores per replica.")
@click.option("--gpus", default=0.0, show_default=True, help="On Ray: GPUs per replica; may be fractional.")
@click.option(
    "--tokens",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file of tokens: token = [models].",
)
@click.option("--certificate", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="TLS certificate.")
@click.option(
    "--key", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Private key of the certificate."
)
@click.option("--verbose", "-v", is_flag=True, help="Log at level INFO instead of WARNING.")
def main(models: Path, verbose: bool, **given: Any) -> None:
    """Serve MODELS over the Open Inference Protocol: a model file, or a folder of NAME/VERSION/model.* with an optional
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
    except (MgxError, OSError) as error:
        click.echo(f"mgx-serve: {error}", err=True)
        sys.exit(1)


def _settings(given: dict[str, Any]) -> Settings:
    """Returns the options as settings.  Errors: ParameterError; OSError for the file of tokens."""
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
    allowed = {} if tokens is None else _tokens(tokens)
    return Settings(**given, tokens=allowed, ray=address if on_ray or address else None, model=model)


def _tokens(path: Path) -> dict[str, tuple[str, ...]]:
    """Returns the models of each token.  Errors: ParameterError, which shows no token; OSError.

    A file without tokens is refused: without tokens, the server is open to everyone.
    """
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        place = re.search(r" \(at [^()]*\)$", str(error))  # the text before it may quote a token
        raise ParameterError(
            f"{path}: this is not a TOML file of tokens{place[0] if place else ''}: "
            f'lines of the form token = ["model"] in UTF-8 are required, with each token once'
        ) from None
    if not given or "" in given:
        raise ParameterError(f'{path}: at least one line of the form token = ["model"] is required, and no empty token')
    for number, models in enumerate(given.values(), 1):
        if not isinstance(models, list) or not all(isinstance(name, str) for name in models):
            raise ParameterError(
                f"{path}: a list of names of models is required for each token, number {number} has another value "
                f"({type(models).__name__}); a token that contains dots must be in quotes"
            )
    return {token: tuple(models) for token, models in given.items()}


def _replicas(text: str) -> tuple[int, int]:
    """Errors: ParameterError."""
    least, _, most = text.partition(":")
    if not least.isdecimal() or (most and not most.isdecimal()):
        raise ParameterError(f"--replicas must be a number, or two with a colon between them, got {text!r}")
    return int(least), int(most or 0)
