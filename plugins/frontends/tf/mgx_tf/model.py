"""Reads frozen graphs and SavedModels: graph, functions, signatures and variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError

from mgx_core import ParameterError, ParseError, UnsupportedError
from mgx_core.errors import suggestion
from mgx_core.records import dataclass
from mgx_core.sources import mistaken, unreadable

from .graph import Functions, Graph
from .wire.messages import message

__all__ = ["Model", "Signature", "read_bytes", "read_model"]

SAVED: Final = "saved_model.pb"
CHUNKED: Final = "saved_model.cpb"


@dataclass(frozen=True)
class Signature:
    """An entry point of a model: tensors of the main graph by input and output name, in order."""

    name: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]


@dataclass
class Model:
    """A model: its main graph, its functions and, for SavedModels, its signatures, folder and assets.

    restore: the node that restores variables; initial: the node that initializes tables; objects: the serialized object graph,
    which is parsed only if needed.
    """

    graph: Graph
    functions: Functions
    signatures: dict[str, Signature] = field(default_factory=dict)
    folder: Path | None = None
    restore: str = ""
    initial: str = ""
    assets: dict[str, str] = field(default_factory=dict)
    objects: bytes = b""

    def signature(self, name: str = "") -> Signature:
        """Returns a signature by name; by default ``serving_default``, else the only one, else the first.

        Errors: ParameterError for an unknown name.
        """
        if name:
            if name not in self.signatures:
                raise ParameterError(f"there is no signature {name!r}; {suggestion(name, self.signatures)}")
            return self.signatures[name]
        if not self.signatures:
            raise UnsupportedError(
                "the SavedModel has no signature: save it with signatures=..., or export it from Keras"
            )
        return self.signatures.get("serving_default") or self.signatures[sorted(self.signatures)[0]]


def read_model(path: str | os.PathLike[str], tags: str = "serve") -> Model:
    """Reads a frozen graph (binary or text) or a SavedModel folder.

    Errors: ParseError if it is missing, truncated or not a model; UnsupportedError for Keras files.
    """
    where = Path(path)
    try:
        if where.is_dir():
            return _read_folder(where, tags)
        if where.name in (SAVED, CHUNKED):
            return _read_folder(where.parent, tags)
        _refuse_keras(where)
        data = where.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
    return read_bytes(data, text=where.suffix in (".pbtxt", ".prototxt"))


def _refuse_keras(where: Path) -> None:
    if where.suffix in (".keras", ".h5", ".hdf5"):
        raise UnsupportedError(
            f"{where.name!r} is a Keras model, which contains layers instead of a graph; export it first, with Keras:\n"
            f"  model = keras.saving.load_model({where.name!r})\n"
            f"  model.export({where.stem!r})\n"
            f"and parse the folder {where.stem!r}"
        )


def _read_folder(folder: Path, tags: str) -> Model:
    file = folder / SAVED
    if not file.is_file():
        if (folder / CHUNKED).is_file():
            raise UnsupportedError(
                f"chunked SavedModels ({CHUNKED}) are not supported; save it without "
                f"tf.saved_model.SaveOptions(experimental_image_format=True)"
            )
        text = folder / "saved_model.pbtxt"
        if not text.is_file():
            raise ParseError(f"{str(folder)!r} is not a SavedModel: it lacks {SAVED}")
        saved = _from_text(text.read_bytes(), "SavedModel")
    else:
        saved = _from_wire(file.read_bytes(), "SavedModel")
    wanted = {t for t in tags.split(",") if t}
    fitting = [m for m in saved.meta_graphs if wanted <= set(m.meta_info_def.tags)]
    if not fitting:
        have = "; ".join(",".join(m.meta_info_def.tags) or "(none)" for m in saved.meta_graphs) or "no graph"
        raise ParameterError(f"the SavedModel has no graph tagged {tags!r}; known are {have} (option tags)")
    meta = fitting[0]
    model = _model(meta.graph_def, meta.meta_info_def.stripped_op_list.op)
    model.folder = folder
    for name, signature in sorted(meta.signature_def.items()):
        if not name.startswith("__"):
            inputs = {k: signature.inputs[k] for k in sorted(signature.inputs)}
            model.signatures[name] = Signature(
                name, inputs, {k: signature.outputs[k] for k in sorted(signature.outputs)}
            )
    model.objects = meta.object_graph_def
    model.restore = meta.saver_def.restore_op_name
    if "__saved_model_init_op" in meta.signature_def:
        for info in meta.signature_def["__saved_model_init_op"].outputs.values():
            model.initial = info.name.partition(":")[0]
    elif "legacy_init_op" in model.graph.nodes:
        model.initial = "legacy_init_op"
    for asset in meta.asset_file_def:
        model.assets[asset.tensor_info.name.partition(":")[0]] = asset.filename
    return model


def read_bytes(data: bytes, text: bool = False) -> Model:
    """Reads a serialized frozen graph, binary or text.  Errors: ParseError if it is not one."""
    if text:
        return _model(_from_text(data, "GraphDef"), ())
    try:
        graph = _from_wire(data, "GraphDef")
    except ParseError:
        if data[:256].isascii() and b"node" in data[:4096] and b"{" in data[:4096]:
            return _model(_from_text(data, "GraphDef"), ())
        raise
    if not graph.node:
        saved = _try_saved(data)
        # all SavedModels so far have schema version 1
        if saved and data[:1] == b"\x08" and data[1:2] != b"\x01":
            raise ParseError("not a TensorFlow graph; it looks like an ONNX model: parse it with the frontend 'onnx'")
        if saved:
            raise ParseError(f"this is the graph file of a SavedModel: parse the folder that contains {SAVED}")
        raise ParseError("not a TensorFlow graph: it has no nodes")
    return _model(graph, ())


def _try_saved(data: bytes) -> bool:
    try:
        return bool(_from_wire(data, "SavedModel").meta_graphs)
    except ParseError:
        return False


def _from_wire(data: bytes, name: str) -> Any:
    made = message(name)()
    try:
        made.ParseFromString(bytes(data))
    except (DecodeError, RecursionError, ValueError) as error:
        raise ParseError(f"not a TensorFlow {name}{mistaken(data) or f' (damaged or truncated): {error}'}") from None
    return made


def _from_text(data: bytes, name: str) -> Any:
    from google.protobuf import text_format  # imported lazily: few files are in text form

    try:
        return text_format.Parse(data.decode(), message(name)(), allow_unknown_field=True)
    except (text_format.ParseError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ParseError(f"not a TensorFlow {name} in text form: {str(error)[:300]}") from None


def _model(graph: Any, definitions: Any) -> Model:
    functions = Functions(graph.library.function, definitions)
    return Model(Graph(list(graph.node), functions.signatures), functions)
