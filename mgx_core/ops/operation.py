"""Operations: what an op is, how one is declared, and sets of them.

An op's class holds its attributes, its shape rule and its reference compute; everything else (kernels, frontends' mappings,
costs) is a table keyed by the class, owned by its user.  Any object with the members of `Operation` is an operation.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, TypeVar, dataclass_transform

from ..errors import (
    DeviceError,
    MgxError,
    ParameterError,
    PluginError,
    ShapeError,
    UnsupportedError,
)
from ..types import dtype as dt
from ..types.argument import Array, Value
from ..types.dim import Dim, Sym, substitute
from ..types.dtype import DType
from ..types.shape import AnyShape, OptionalShape, SequenceShape, Shape, TupleShape, symbols_in
from .attributes import MISSING, Field, show
from .scalar import Expr, convert, evaluate, rounds
from .traits import TRAITS, Traits

__all__ = ["Input", "OpSet", "Operation", "Pointwise", "Run", "op", "same_dims"]

Run = Callable[
    [Any, Sequence[Value]], "list[Value]"
]  # evaluates a sub-module on values; what control flow ops are given
NAME: Final = re.compile(r"@?[A-Za-z0-9_./:\-]+")  # as the text form reads it
ANY_SHAPE: Final = (Shape, TupleShape, SequenceShape, OptionalShape)
FOREIGN: Final = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class Input(NamedTuple):
    """One input of an op, as its shape rule's signature declares it."""

    name: str
    optional: bool
    variadic: bool


# the class -------------------------------------------------------------------------------------------------------------


class Operation(Traits):
    """Base of ops declared with `@op`: immutable attributes, a shape rule, a reference compute.

    A subclass gives `infer(self, x, y=None, *rest)` from input shapes to the result's shape (several results: a TupleShape)
    and `compute` with the same signature on arrays.  The signature of `infer` is the input schema.  Ops that take sub-modules
    give both a keyword `modules`, and `compute` also a keyword `run` that evaluates one of them.
    """

    __slots__ = ("_hash",)

    name: ClassVar[str] = ""
    """The key in files, text and op sets; given to `@define_op`."""

    fields: ClassVar[tuple[Field, ...]] = ()
    """The attributes, from the class's annotations."""

    inputs: ClassVar[tuple[Input, ...]] = ()
    """The inputs, from the signature of `infer`."""

    takes_modules: ClassVar[bool] = False
    """True if `infer` has a keyword `modules`: the op runs sub-modules."""

    tag: str = ""
    """The kind of a group: ``dot``, ``convolution``, ``attention``; empty for everything else."""

    infer: ClassVar[Callable[..., AnyShape]]
    """The shape rule: from input shapes (None for an absent optional input) to the result's, a TupleShape for several results."""

    compute: ClassVar[Callable[..., Value] | None] = None
    """The reference compute on arrays, with the signature of `infer`.  Default: None, only a target's kernel can run the op."""

    decompose: ClassVar[Callable[..., Any] | None] = None
    """``decompose(self, builder, *inputs)``: the same in terms of other ops, for targets without a kernel.

    Returns the instruction that replaces the op, or None where these inputs do not allow it.
    Default: None, the op is not decomposed."""

    view: ClassVar[Callable[..., tuple[int, Shape] | None] | None] = None
    """``view(self, *shapes)``: for ops that only look at the first input's memory in another way.

    Returns the offset in elements and the shape with strides, or None where these shapes need a copy.
    Default: None, the op is not a view."""

    normal: ClassVar[Callable[..., Operation] | None] = None
    """``normal(self, *shapes)``: the same op with its attributes in normal form.

    Default: None, only axes are made non-negative."""

    _hash: int  # once asked for
    _floats: ClassVar[tuple[str, ...]] = ()  # the attributes that hold floats
    _arity: ClassVar[tuple[int, int | None]] = (0, 0)  # least and most inputs (None: any number)

    def __init__(self, **attributes: Any) -> None:
        if "name" not in type(self).__dict__:
            raise ParameterError(f"{undeclared(type(self))}; put @define_op('...') above it")
        put = object.__setattr__
        for field in self.fields:
            value = attributes.pop(field.name, MISSING)
            if value is MISSING:
                value = field.default
                if value is MISSING:
                    raise ParameterError(f"{self.name} needs attribute {field.name!r} ({field.annotation})")
            else:
                try:
                    value = field.check(value)
                except (TypeError, ValueError) as error:
                    wanted = error if field.choices else field.annotation
                    raise ParameterError(
                        f"{self.name}: attribute {field.name!r} must be {wanted}, got {value!r}"
                    ) from None
            put(self, field.name, value)
        if attributes:
            word = next(iter(attributes))
            import difflib

            close = difflib.get_close_matches(word, [f.name for f in self.fields], 1)
            hint = (
                f"; did you mean {close[0]!r}?"
                if close
                else f"; it has {', '.join(f.name for f in self.fields) or 'none'}"
            )
            raise ParameterError(f"{self.name} has no attribute {word!r}{hint}")
        self.check()

    def check(self) -> None:
        """Refuse attribute values that no input could make right (override; raise ParameterError)."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{self.name} is immutable; make another with replace({name}=...)")

    __delattr__ = __setattr__  # type: ignore[assignment]

    def replace(self, **changes: Any) -> Operation:
        """The same op with some attributes changed."""
        return type(self)(**{**self.attributes(), **changes})

    def attributes(self) -> dict[str, Any]:
        """Attribute values by name, in order of declaration."""
        return {f.name: getattr(self, f.name) for f in self.fields}

    def values(self) -> dict[str, Any]:
        """The same, by MIGraphX's name."""
        return self.attributes()

    def _key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, f.name) for f in self.fields)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or self._key() != other._key():
            return False
        # 0.0 == -0.0, yet an op need not give the same for both
        return all(repr(getattr(self, name)) == repr(getattr(other, name)) for name in self._floats)

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            found = hash((self.name, self._key()))
            object.__setattr__(self, "_hash", found)
            return found

    def __reduce__(self) -> Any:
        raise TypeError("operations are stored by name and attributes, never pickled")

    def __copy__(self) -> Operation:
        return self

    def __deepcopy__(self, memo: Any) -> Operation:
        return self

    def __repr__(self) -> str:
        shown = {f.name: getattr(self, f.name) for f in self.fields}
        inside = ", ".join(f"{k}={show(v)}" for k, v in shown.items())
        return f"{self.name}[{inside}]" if inside else self.name

    # what the engine asks

    def substitute(self, values: Mapping[str, Dim]) -> Operation:
        """The same op with symbols in its attributes replaced by name."""
        changed = {}
        for field in self.fields:
            if "Dim" in field.annotation or "Shape" in field.annotation:
                old = getattr(self, field.name)
                new = _substituted(old, values)
                if new != old:
                    changed[field.name] = new
        return self.replace(**changed) if changed else self

    def symbols(self) -> set[str]:
        """The names of the symbols in its attributes."""
        return symbols_in(self._key())

    def result(self, inputs: Sequence[AnyShape | None], modules: Sequence[Any] = ()) -> AnyShape:
        """The shape rule applied, after a check of the number of inputs; errors name the op.

        Errors: ShapeError with the op's text, what was required and what was got.
        """
        self.check_arity(len(inputs))
        try:
            given: Any = self.infer(*inputs, modules=modules) if self.takes_modules else self.infer(*inputs)
            if isinstance(given, ANY_SHAPE):
                result: AnyShape = given
                return result
            found: MgxError = PluginError(f"{self._rule()} must give a Shape, got {given!r}")
        except MgxError as error:
            found = error
        except FOREIGN as error:  # a rule takes its operands to be tensors, of a rank that the attributes fit
            found = ShapeError(
                f"{self._rule()} failed: {type(error).__name__}: {error} "
                "(wrong number, type or rank of operands, or a mistake in the rule)"
            )
            found.__cause__ = error
        raise found.located(f"{self!r}({', '.join('-' if s is None else str(s) for s in inputs)})")

    def bounded(self, inputs: Sequence[AnyShape | None], values: Sequence[Array | None]) -> AnyShape:
        """The result's type, its extents that depend on data bounded by what is known.

        inputs: operands with static extents; values: of those that are constants, None for the others.
        Default: by the shape rule, which knows no values.
        """
        return self.result(inputs)

    def _rule(self) -> str:
        return f"the shape rule of {self.name} ({type(self).__module__})"

    def check_arity(self, count: int) -> None:
        """Errors: ShapeError if no call of the op has that many inputs."""
        least, most = self._arity
        if count < least or (most is not None and count > most):
            span = f"{least}" if most == least else f"{least} or more" if most is None else f"{least} to {most}"
            names = ", ".join(("*" if i.variadic else "") + i.name + ("?" if i.optional else "") for i in self.inputs)
            raise ShapeError(f"{self.name} takes {span} inputs ({names}), got {count}")

    def evaluate(self, args: Sequence[Value], modules: Sequence[Any] = (), run: Run | None = None) -> Value:
        """The reference compute applied to values (None for an absent input)."""
        if self.compute is None:
            raise UnsupportedError(f"{self.name} has no reference compute")
        try:
            if self.takes_modules:
                return self.compute(*args, modules=modules, run=run)
            return self.compute(*args)
        except MgxError:
            raise
        except MemoryError as error:
            raise DeviceError(f"{self.name}: not enough memory for the result: {error}") from None
        except FOREIGN as error:  # what numpy says of values that no rule foresaw
            raise ShapeError(
                f"{self!r} ({type(self).__module__}) cannot be computed from these values: {type(error).__name__}: {error}"
            ) from error


def undeclared(cls: type) -> str:
    """Returns the message for a class that is derived from Operation and not declared."""
    return f"class {cls.__module__}.{cls.__qualname__} is not a declared operation"


def _substituted(value: Any, values: Mapping[str, Dim]) -> Any:
    if isinstance(value, Sym):
        return substitute(value, values)
    if isinstance(value, tuple):
        return tuple(_substituted(v, values) for v in value)
    if hasattr(value, "substitute") and not isinstance(value, Operation):
        return value.substitute(values)
    return value


O = TypeVar("O", bound=type)  # noqa: E741


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=True)
def op(name: str, **traits: bool | str | tuple[int, ...]) -> Callable[[O], O]:
    """Declare an op: attributes come from the class's annotations, inputs from the signature of its `infer`.

    traits: what the op states of itself, by the names of `Traits`: ``@op("concat", exact=True)``.
    The result is like a frozen, keyword-only, slotted dataclass, made without generated code so that importing a few hundred
    ops costs a few milliseconds.
    """

    for word in traits:
        if word not in TRAITS:
            raise ParameterError(f"op {name!r}: {word} is not a trait; there are {', '.join(sorted(TRAITS))}")

    def declare(cls: O) -> O:
        _check_declaration(name, cls)
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
        namespace["_floats"] = tuple(f.name for f in namespace["fields"] if "float" in str(f.annotation))
        infer = next((vars(c)["infer"] for c in cls.__mro__ if "infer" in vars(c)), None)
        if infer is not None:
            found, namespace["takes_modules"] = _schema(infer, namespace, cls)
            least = sum(1 for i in found if not i.optional and not i.variadic)
            namespace["inputs"], namespace["_arity"] = (
                found,
                (least, None if any(i.variadic for i in found) else len(found)),
            )
        made: Any = type(cls)(cls.__name__, cls.__bases__, namespace)
        made.__qualname__ = cls.__qualname__
        return made  # type: ignore[no-any-return]

    return declare


def _check_declaration(name: str, cls: type) -> None:
    """Errors: ParameterError for a class that cannot be an operation, with what to mend."""
    if not issubclass(cls, Operation):
        raise ParameterError(f"op {name!r}: class {cls.__qualname__} must derive from mgx_core.Operation")
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


def _schema(infer: Any, namespace: Mapping[str, Any], cls: type) -> tuple[tuple[Input, ...], bool]:
    arity = namespace.get("arity", getattr(cls, "arity", None))
    code = infer.__code__
    if arity is not None and issubclass(cls, Pointwise):
        return tuple(Input(f"x{i}", False, False) for i in range(arity)), False
    names = code.co_varnames[1 : code.co_argcount]
    required = len(names) - len(infer.__defaults__ or ())
    inputs = [Input(n, i >= required, False) for i, n in enumerate(names)]
    keywords = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    if code.co_flags & 0x04:
        inputs.append(Input(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], False, True))
    return tuple(inputs), "modules" in keywords


class Pointwise(Operation):
    """An op computed element by element from one scalar expression; its inputs share dims and dtype.

    Subclasses give `scalar` and, unless unary, `arity`; `result_dtype` where the result's dtype is not the inputs'.
    """

    __slots__ = ()

    scalar: ClassVar[Expr]
    arity: ClassVar[int] = 1
    accepts: ClassVar[str] = "biufc"  # kinds of dtypes

    def infer(self, *xs: Shape) -> Shape:
        first = xs[0]
        for i, x in enumerate(xs):
            if not isinstance(x, Shape):
                raise ShapeError(f"input {i} must be a tensor, got {x}")
            if x.dtype.kind not in self.accepts:
                raise ShapeError(f"input {i} must not be of type {x.dtype}")
        self.check_dtypes(xs)
        dims = first.dims
        for i, x in enumerate(xs[1:], 1):
            if x.dims != dims and not same_dims(x.dims, dims):
                raise ShapeError(f"inputs must have equal dims, got {list(dims)} and {list(x.dims)} (input {i})")
        return Shape.of(self.result_dtype(xs), dims)

    def check_dtypes(self, xs: Sequence[Shape]) -> None:
        """Errors: ShapeError unless all inputs share one dtype (ops with mixed operands override)."""
        for x in xs[1:]:
            if x.dtype is not xs[0].dtype:
                raise ShapeError(f"inputs must share one type, got {xs[0].dtype} and {x.dtype}")

    def result_dtype(self, xs: Sequence[Shape]) -> DType:
        return xs[0].dtype

    @property
    def exact(self) -> bool:
        return not rounds(self.scalar)

    def compute(self, *xs: Array) -> Array:
        out = evaluate(type(self).scalar, xs, self)
        dtype = self.result_dtype([Shape.of(dt.of(x.dtype), ()) for x in xs])
        return out if out.dtype == dtype.numpy else convert(out, dtype)


def same_dims(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """True if two lists of extents have equal lengths and no pair is known to differ before running."""
    from ..types.dim import may_equal

    return len(a) == len(b) and all(x == y or may_equal(x, y) for x, y in zip(a, b, strict=True))


class OpSet:
    """Ops by name; a value, joined with ``|``.  Two different ops of one name are an error that names both."""

    __slots__ = ("_by_name", "_contested", "_lacking", "_plain")

    def __init__(self, ops: Iterable[type[Operation]] = ()) -> None:
        self._lacking = ""
        self._contested: dict[str, str] = {}
        self._by_name: dict[str, type[Operation]] = {}
        self._plain: dict[str, Operation] = {}  # ops made without attributes: values, shared by all who ask
        for cls in ops:
            if not (isinstance(cls, type) and issubclass(cls, Operation)):
                raise ParameterError(f"an OpSet holds classes of operations, got {cls!r}")
            if "name" not in vars(cls) or not cls.name:
                raise ParameterError(f"{undeclared(cls)}; put @define_op('...') above it")
            known = self._by_name.setdefault(cls.name, cls)
            if known is not cls:
                raise ParameterError(
                    f"two ops are called {cls.name!r}: {known.__module__}.{known.__qualname__} and "
                    f"{cls.__module__}.{cls.__qualname__}"
                )

    @classmethod
    def of(cls, *ops: type[Operation]) -> OpSet:
        return cls(ops)

    @classmethod
    def in_module(cls, *modules: Any) -> OpSet:
        """All ops declared in some Python modules."""
        return cls(
            value
            for module in modules
            for value in vars(module).values()
            if isinstance(value, type)
            and issubclass(value, Operation)
            and value.name
            and value.__module__ == module.__name__
        )

    def make(self, name: str, /, **attributes: Any) -> Operation:
        """An op by name.

        Errors: UnsupportedError for unknown names, PluginError for contested ones, ParameterError for bad attributes.
        """
        if not attributes and name in self._plain:
            return self._plain[name]
        found = self.get(name)
        if found is None:
            import difflib

            close = difflib.get_close_matches(name, self._by_name, 1)
            raise UnsupportedError(
                f"no operation is called {name!r}" + (f"; did you mean {close[0]!r}?" if close else "")
                + f"; a package adds its own through the plugin hook `operations`{self._lacking}"
            )  # fmt: skip
        made = found(**attributes)
        if not attributes:
            self._plain[name] = made
        return made

    def get(self, name: str) -> type[Operation] | None:
        """Returns the op's class, or None.  Errors: PluginError for a contested name."""
        if name in self._contested:
            raise PluginError(self._contested[name])
        return self._by_name.get(name)

    def contesting(self, name: str, why: str) -> OpSet:
        """Returns the set without the op of a name, for which it raises PluginError(why) from now on."""
        out = OpSet(op for op in self if op.name != name)
        out._contested = {**self._contested, name: why}
        out._lacking = self._lacking
        return out

    def lacking(self, why: str) -> OpSet:
        """Returns the same set; messages on unknown names end with why others are lacking."""
        out = self | OpSet()
        out._lacking = why
        return out

    def __or__(self, other: OpSet) -> OpSet:
        contested = {**self._contested, **other._contested}
        out = OpSet(op for side in (self, other) for op in side if op.name not in contested)
        out._contested = contested
        out._lacking = self._lacking or other._lacking
        return out

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[type[Operation]]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def names(self) -> list[str]:
        return sorted(self._by_name)
