"""The model optimizer: compiles a model and saves it, ``optimize_model model.onnx``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import migraphx

__all__ = ["main", "saved_at"]

FOLDER = Path("saved_models")


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses, compiles and saves the model named on the command line; an error ends the process with its message."""
    given = _parser().parse_args(arguments)
    from mgx_core import MgxError

    try:
        print(f"saved to {_optimized(given)}")
    except (MgxError, OSError) as error:
        raise SystemExit(f"optimize_model: {error}") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Compile and serialize model offline for future deployment.",
        add_help=False,
    )
    parser.add_argument("model", help="Path to ONNX or TF Protobuf file")
    options = parser.add_argument_group("optional arguments")
    flag = options.add_argument
    flag("-h", "--help", action="help", help="show this help message and exit")
    flag("--nchw", action="store_true", help="Treat Tensorflow format as nchw. (Default is nhwc)")
    flag("-t", "--target", choices=["gpu", "cpu", "ref"], default="gpu", help="Compilation target")
    flag("-d", "--disable_fast_math", action="store_true", help="Disable optimized math functions")
    flag("-o", "--offload_copy_off", action="store_true", help="Disable implicit offload copying")
    flag("-f", "--fp16", action="store_true", help="Quantize model in FP16 precision")
    flag("-i", "--int8", action="store_true", help="Quantize model in INT8 precision")
    flag("-j", "--json", action="store_true", help="Save program in JSON format. (Default is MsgPack format)")
    flag(
        "-p",
        "--output_path",
        help="Specify file name and/or path for model to be saved. (Default is ./saved_models/<model_name>.<format>",
    )
    return parser


def _optimized(given: argparse.Namespace) -> Path:
    path = Path(given.model)
    if path.suffix == ".pb":
        model = migraphx.parse_tf(given.model, is_nhwc=not given.nchw)
    else:
        model = migraphx.parse_onnx(given.model)
    target = migraphx.get_target(given.target)
    if given.fp16:
        migraphx.quantize_fp16(model)
    if given.int8:
        migraphx.quantize_int8(model, target)
    model.compile(target, offload_copy=not given.offload_copy_off, fast_math=not given.disable_fast_math)
    format = "json" if given.json else "msgpack"
    place = saved_at(given.output_path, path.stem, format)
    place.parent.mkdir(parents=True, exist_ok=True)
    migraphx.save(model, place, format)
    return place


def saved_at(said: str | None, name: str, format: str) -> Path:
    """Returns the output path: as given, the default name in a given folder, or a given name in the default folder."""
    usual = f"{name}.{format}"
    if not said:
        return FOLDER / usual
    path = Path(said)
    if said.endswith(("/", os.sep)) or path.is_dir():
        return path / usual
    return path if path.parent != Path() or path.is_absolute() or said.startswith("./") else FOLDER / path


if __name__ == "__main__":
    main()
