"""The decorator that declares an op: attributes from the annotations of a class, inputs from the signature of `infer`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection
from operator import attrgetter
from types import FunctionType
from typing import Any, Final, TypeVar, dataclass_transform

from ..errors import ParameterError
from .attributes import MISSING, Field
from .elementwise import Pointwise
from .expression import Expr, operands
from .operation import Input, Operation
from .traits import TRAITS

__all__ = ["op"]

NAME: Final = re.compile(r"@?[A-Za-z0-9_./:\-]+")  # as the text form parses it
O = TypeVar("O", bound=type)  # noqa: E741


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=True)
def op(name: str, **traits: bool | str | tuple[int, ...] | Expr) -> Callable[[O], O]:
    """Declares an op: attributes come from the class's annotations, inputs from the signature of its `infer`.

    traits: the op's traits, by the names of `Traits`: ``@op("concat", exact=True)``; of a `Pointwise` op, also its scalar
    expression and the kinds of element types that it accepts: ``@op("erf", scalar=call("erf", x0), accepts="f")``.
    The result is like a frozen, keyword-only, slotted dataclass, but created without code generation, so that importing a
    few hundred ops costs a few milliseconds.
    """

    def declare(cls: O) -> O:
        _check_declaration(name, cls, traits)
        inherited: tuple[Field, ...] = cls.fields  # type: ignore[attr-defined]
        namespace = dict(cls.__dict__)
        annotations = _annotations(cls)
        own = [
            Field(name, key, word, namespace.pop(key, MISSING))
            for key, word in annotations.items()
            if not str(word).startswith(("ClassVar", "typing.ClassVar"))
        ]
        for f in own:
            if f.name in TRAITS:
                raise ParameterError(f"op {name!r}: attribute {f.name!r} has the name of a trait; give it another")
        for member in ("__dict__", "__weakref__", *(f.name for f in own)):
            namespace.pop(member, None)
        namespace["__slots__"] = tuple(f.name for f in own if f.name not in {g.name for g in inherited})
        namespace.update(traits, name=name)
        namespace["fields"] = tuple(f for f in inherited if f.name not in {g.name for g in own}) + tuple(own)
        if namespace["fields"]:
            namespace["_values"] = attrgetter(*(f.name for f in namespace["fields"]))
        namespace["_floats"] = tuple(f.name for f in namespace["fields"] if "float" in str(f.annotation))
        infer = next((vars(c)["infer"] for c in cls.__mro__ if "infer" in vars(c)), None)
        if infer is not None:
            found, namespace["takes_modules"] = _schema(infer, namespace, cls)
            least = sum(1 for i in found if not i.optional and not i.variadic)
            namespace["inputs"] = found
            namespace["_arity"] = least, None if any(i.variadic for i in found) else len(found)
        made: Any = type(cls)(cls.__name__, cls.__bases__, namespace)
        made.__qualname__ = cls.__qualname__
        for member in namespace.values():
            _rebind(member, cls, made)
        return made  # type: ignore[no-any-return]

    return declare


def _rebind(member: Any, old: type, new: type) -> None:
    """Rebinds `super()` in members of the undecorated class to the declared one."""
    function = (
        member.fget if isinstance(member, property) else member.__func__ if isinstance(member, classmethod) else member
    )
    if isinstance(function, FunctionType):
        for cell in function.__closure__ or ():
            if cell.cell_contents is old:
                cell.cell_contents = new


def _check_declaration(name: str, cls: type, traits: Collection[str]) -> None:
    """Errors: ParameterError for a class that is not a valid operation, with the fix."""
    if not issubclass(cls, Operation):
        raise ParameterError(f"op {name!r}: class {cls.__qualname__} must derive from mgx_core.Operation")
    for word in traits:
        if word == "accepts" and not hasattr(cls, "accepts"):
            raise ParameterError(
                f"op {name!r}: accepts is for ops derived from Pointwise; infer refuses other element types"
            )
        if word == "scalar" and not issubclass(cls, Pointwise):
            raise ParameterError(f"op {name!r}: scalar is for ops derived from Pointwise; compute defines others")
        if word not in (*TRAITS, "accepts", "scalar"):
            raise ParameterError(f"op {name!r}: {word} is not a trait; known are {', '.join(sorted(TRAITS))}")
    if name and not NAME.fullmatch(name):
        raise ParameterError(f"op {name!r}: a name consists of letters, digits, '_', '.', '/', ':' and '-'")
    if name and not any("infer" in vars(c) for c in cls.__mro__):
        raise ParameterError(f"op {name!r}: class {cls.__qualname__} must define infer(self, x, ...), its shape rule")
    annotated = _annotations(cls)
    for key, value in vars(cls).items():
        plain = not (callable(value) or isinstance(value, (property, classmethod, staticmethod)) or key.startswith("_"))
        if (
            plain
            and key not in annotated
            and not any(key in vars(c) or key in _annotations(c) for c in cls.__mro__[1:])
        ):
            raise ParameterError(
                f"op {name!r}: attribute {key!r} has no annotation; write `{key}: {type(value).__name__} = {value!r}`, "
                "or ClassVar if it is none"
            )


def _annotations(cls: type) -> dict[str, Any]:
    if sys.version_info >= (3, 14):  # which evaluates annotations lazily
        import annotationlib

        return dict(annotationlib.get_annotations(cls, format=annotationlib.Format.STRING))
    return dict(cls.__dict__.get("__annotations__", {}))  # noqa: RUF063


def _schema(infer: Any, namespace: dict[str, Any], cls: type[Operation]) -> tuple[tuple[Input, ...], bool]:
    code = infer.__code__
    if "arity" not in namespace and "scalar" in namespace:
        namespace["arity"] = operands(namespace["scalar"])
    arity = namespace.get("arity", cls.arity)
    if arity is not None:
        return tuple(Input(f"x{i}", False, False) for i in range(arity)), False
    names = code.co_varnames[1 : code.co_argcount]
    required = len(names) - len(infer.__defaults__ or ())
    inputs = [Input(n, i >= required, False) for i, n in enumerate(names)]
    keywords = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    if code.co_flags & 0x04:
        inputs.append(Input(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], False, True))
    return tuple(inputs), "modules" in keywords
