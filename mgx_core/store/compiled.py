"""The compiled part of a program file: target, options, the passes' records, and the kernels of each instance."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgpack

from ..errors import MgxError, No, StoreError, UnsupportedError
from ..hashing import blake2b
from ..log import log
from ..options import CompileOptions
from ..plugins.manager import manager
from ..run.executable import Executable
from ..targets.placement import Placement
from ..targets.saved import SavedInstance
from ..types.argument import Array
from ..types.signature import names_of_results
from .codec import Decoder, Encoder
from .container import pack
from .contents import Contents
from .literals import LiteralReader, LiteralWriter
from .seal import seal, sealed

if TYPE_CHECKING:
    from ..compile.pipeline import PassRecord
    from ..targets.target import Target

__all__ = ["plain_executable", "restore", "with_seal"]


def plain_executable(executable: Executable, values: Encoder, literals: LiteralWriter) -> dict[str, Any]:
    """Encodes an executable as plain data; compiled code is packed into separate bytes.  `with_seal` adds the seal."""
    instances, unsaved = [], []
    if not executable.restore_saved():  # those that have not run since the program was loaded
        unsaved.append("kernels of shapes that did not run are not in the file: raise the option instances to keep all")
    for instance in executable.instances():
        code = instance.runner.saved(literals)
        if isinstance(code, No):
            unsaved.append(f"kernels are not in the file and are recompiled: {code.why}")
        elif code is not None:
            shapes = {name: values.shape(shape) for name, shape in instance.shapes.items()}
            placements = [list(dataclasses.astuple(p)) for p in instance.placements]
            instances.append({"shapes": shapes, "code": code, "placements": placements})
    packed = msgpack.packb(instances, use_bin_type=True, unicode_errors="surrogatepass") if instances else b""
    return {
        "target": executable.target.name,
        "options": _plain(executable.options),
        "optimised": True,  # the name of the first files
        "machine": executable.target.machine(executable.context),
        "passes": [list(dataclasses.astuple(r)) for r in executable.records],
        "results": list(executable.output_names),
        "parameters": {name: values.shape(shape) for name, shape in executable.parameters.items()},
        "instances": packed,
        "notes": list(dict.fromkeys(unsaved)),
        "seal": b"",
    }


def with_seal(metadata: dict[str, Any]) -> dict[str, Any]:
    """Returns a file's metadata with the user's seal if they contain compiled code."""
    compiled = metadata["compiled"]
    if compiled is None or not compiled["instances"]:
        return metadata
    return {**metadata, "compiled": {**compiled, "seal": seal(_sealed_part(metadata))}}


def _sealed_part(metadata: dict[str, Any]) -> bytes:
    """Returns the bytes that a seal authenticates: a digest of all metadata, since code is not checked against them."""
    return blake2b(pack({**metadata, "compiled": {**metadata["compiled"], "seal": b""}}), 32)


def _plain(options: CompileOptions) -> dict[str, Any]:
    given = {f.name: getattr(options, f.name) for f in dataclasses.fields(options)}
    return {k: dict(v) if hasattr(v, "items") else list(v) if isinstance(v, tuple) else v for k, v in given.items()}


def restore(
    contents: Contents,
    metadata: Any,
    values: Decoder,
    literals: LiteralReader,
    trust: bool | None,
    on: tuple[Target, Any] | None = None,
) -> None:
    """Restores the saved executable if its target is installed; logs what has to be recompiled.

    on: the target and the context to restore it for (None: new ones of the target's name).

    If every kernel comes from the file, the IR is decoded lazily. Trusted code is assumed to match the IR; it is not
    re-checked.
    """
    plain = metadata["compiled"]
    name = str(plain["target"])
    try:
        if on is None and name not in manager().names("targets"):
            raise UnsupportedError(f"target {name!r} is not installed")
        target: Target = manager().target(name) if on is None else on[0]
        if not plain["optimised"]:
            contents.again = target, plain["options"]
            return
        options = CompileOptions.of(plain["options"])
        context = target.get_context() if on is None else on[1]
        saved, note = _saved(metadata, target.machine(context), values, literals, trust)
        parameters = {str(n): values.shape(s) for n, s in plain["parameters"].items()} if saved else None
        contents.executable = Executable(
            (lambda: contents.graph().main) if saved else contents.graph().main,
            target,
            context,
            options,
            plain.get("results") or contents.output_names or names_of_results((), len(contents.graph().main.outputs)),
            functools.partial(_records, plain["passes"]),
            saved,
            parameters,
        )
        for text in (note, *plain.get("notes", ())):
            if text:
                contents.executable.note(str(text))
    except StoreError:
        raise
    except MgxError as error:
        left_uncompiled(name, error)


def left_uncompiled(target: str, error: MgxError) -> None:
    """Logs why a compiled program was loaded uncompiled."""
    log.warning("the program was compiled for target %r and is left uncompiled: %s", target, error)


def _records(plain: Any) -> list[PassRecord]:
    from ..compile.pipeline import PassRecord

    try:
        return [PassRecord(*r) for r in plain]
    except TypeError as error:
        raise StoreError(f"the file's records of passes are damaged: {error}") from error


def _saved(
    metadata: Any, machine: str, values: Decoder, literals: LiteralReader, trust: bool | None
) -> tuple[list[SavedInstance], str]:
    """Returns the instances that are usable on this machine, or the reason why not."""
    plain = metadata["compiled"]
    packed: bytes = plain["instances"]
    if not packed:
        return [], ""
    again = "its kernels are recompiled"
    if plain["machine"] != machine:
        return [], f"the program was compiled for {plain['machine']}, this is {machine}: {again}"
    if trust is False:
        return [], f"the file's compiled code is not trusted: {again}"
    if trust is None and not sealed(_sealed_part(metadata), plain["seal"]):
        return (
            [],
            f"the file's compiled code has no valid seal of this user (load(..., trust=True) accepts it): {again}",
        )
    try:
        found = msgpack.unpackb(packed, raw=False, unicode_errors="surrogatepass", strict_map_key=False)
        fetch: Callable[[int], Array] = literals.array
        made: dict[Any, Any] = {}
        return [
            SavedInstance(
                {str(n): values.shape(s) for n, s in one["shapes"].items()},
                one["code"],
                fetch,
                tuple(Placement(op, tuple(sources), place, kernel, tuple(refused))
                      for op, sources, place, kernel, refused in one["placements"]),
                made,
            )
            for one in found
        ], ""  # fmt: skip
    except (msgpack.UnpackException, LookupError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"the file's compiled kernels are damaged: {type(error).__name__}: {error}") from error
