"""The interface of operations.

An op's class defines its attributes, its shape inference and its reference implementation; everything else (kernels, frontends'
mappings, costs) is in tables keyed by the class, owned by the code that uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Self

import numpy as np

from ..errors import DeviceError, MgxError, ParameterError, PluginError, ShapeError, UnsupportedError, takes
from ..named_tuples import NamedTuple
from ..types.argument import Array, Value
from ..types.dim import Dim, Sym, substitute
from ..types.shape import AnyShape, OptionalShape, SequenceShape, Shape, TupleShape, open_extents, symbols_in
from .attributes import MISSING, Field, show
from .traits import Traits

__all__ = ["Input", "Operation", "Run", "place_of", "undeclared"]

# evaluates a sub-module on values; passed to the compute of control flow ops
Run = Callable[[Any, Sequence[Value]], "list[Value]"]
ANY_SHAPE: Final = (Shape, TupleShape, SequenceShape, OptionalShape)
FOREIGN: Final = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class Input(NamedTuple):
    """One input of an op, as declared by the signature of `infer`."""

    name: str
    optional: bool
    variadic: bool


class Operation(Traits):
    """Base of ops declared with `@op`: immutable attributes, shape inference, and a reference implementation.

    A subclass defines `infer(self, x, y=None, *rest)` from input shapes to the result's shape (several results: a TupleShape)
    and `compute` with the same signature on arrays.  The signature of `infer` is the input schema.  Ops that take sub-modules
    declare a keyword `modules` in both, and a keyword `run`, which evaluates a sub-module, in `compute`.
    """

    __slots__ = ("_hash",)

    name: ClassVar[str] = ""
    """The key in files, text and op sets; given to `@define_op`."""

    fields: ClassVar[tuple[Field, ...]] = ()
    """The attributes, from the class's annotations."""

    inputs: ClassVar[tuple[Input, ...]] = ()
    """The inputs, from the signature of `infer`."""

    arity: ClassVar[int | None] = None
    """The number of inputs of an op whose `infer` is variadic.  Default: None, from the signature."""

    takes_modules: ClassVar[bool] = False
    """True if `infer` has a keyword `modules`: the op runs sub-modules."""

    tag: str = ""
    """The kind of a group: ``dot``, ``convolution``, ``attention``; empty for everything else."""

    infer: ClassVar[Callable[..., AnyShape]]
    """Shape inference: from input shapes (None for an absent optional input) to the result's (several results: a TupleShape)."""

    compute: ClassVar[Callable[..., Value] | None] = None
    """The reference implementation on arrays, with the signature of `infer`.  Default: None, the op needs a kernel."""

    decompose: ClassVar[Callable[..., Any] | None] = None
    """``decompose(self, builder, *inputs)``: decomposes the op, for targets without a kernel.

    Returns the instruction that replaces the op, a tuple of them for several results, or None if it cannot for these inputs.
    Default: None, the op is not decomposed."""

    view: ClassVar[Callable[..., tuple[int, Shape] | None] | None] = None
    """``view(self, *shapes)``: for ops whose result may be a view of the first input.

    Returns the offset in elements and the shape with strides, or None if these shapes require a copy.
    Default: None, the op is not a view."""

    module_for: ClassVar[Callable[..., Any] | None] = None
    """``module_for(self, shapes, values)``: for ops that infer their results once the ranks of the operands are known.

    shapes: of the operands (None for an absent one), all of known rank; values: of those that are constants, else None.
    Returns a module with the same results and the positions of the operands that its parameters stand for, or None where more
    must be known.  Default: None, the op never waits."""

    normal: ClassVar[Callable[..., Operation] | None] = None
    """``normal(self, *shapes)``: the same op with its attributes in normal form.

    Default: None, only axes are made non-negative."""

    _hash: int  # computed on first use
    _values: ClassVar[Any] = staticmethod(lambda op: ())  # an `attrgetter` of all attributes
    _floats: ClassVar[tuple[str, ...]] = ()  # the attributes that hold floats
    _arity: ClassVar[tuple[int, int | None]] = (0, 0)  # minimum and maximum number of inputs (None: unlimited)

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
        """Validates attribute values independently of inputs (override; raise ParameterError)."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{self.name} is immutable; make another with replace({name}=...)")

    __delattr__ = __setattr__  # type: ignore[assignment]

    def replace(self, **changes: Any) -> Self:
        """Returns a copy with some attributes changed."""
        return type(self)(**{**self.attributes(), **changes})

    def attributes(self) -> dict[str, Any]:
        """Returns attribute values by name, in order of declaration."""
        return {f.name: getattr(self, f.name) for f in self.fields}

    def values(self) -> dict[str, Any]:
        """MIGraphX's name of `attributes`."""
        return self.attributes()

    def _key(self) -> Any:
        """Returns the attributes' values: a tuple, or the value of the only attribute."""
        return type(self)._values(self)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or self._key() != other._key():
            return False
        # 0.0 == -0.0, but results may differ for the two
        return not self._floats or all(repr(getattr(self, name)) == repr(getattr(other, name)) for name in self._floats)

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            found = hash((self.name, self._key()))
            object.__setattr__(self, "_hash", found)
            return found

    def __reduce__(self) -> Any:
        raise TypeError("operations are not pickled; `mgx_core.save` and `save_buffer` store a program")

    def __copy__(self) -> Operation:
        return self

    def __deepcopy__(self, memo: Any) -> Operation:
        return self

    def __repr__(self) -> str:
        shown = {f.name: getattr(self, f.name) for f in self.fields}
        inside = ", ".join(f"{k}={show(v)}" for k, v in shown.items())
        return f"{self.name}[{inside}]" if inside else self.name

    # used by the compiler

    def substitute(self, values: Mapping[str, Dim]) -> Operation:
        """Returns a copy with symbols in its attributes replaced by name."""
        changed = {}
        for field in self.fields:
            if "Dim" in field.annotation or "Shape" in field.annotation:
                old = getattr(self, field.name)
                new = _substituted(old, values)
                if new != old:
                    changed[field.name] = new
        return self.replace(**changed) if changed else self

    def symbols(self) -> set[str]:
        """Returns the names of the symbols in its attributes."""
        return symbols_in(self._key())

    def extents(self) -> Iterator[Sym]:
        """Yields the symbolic extents in its attributes."""
        return open_extents(self._key())

    def result(self, inputs: Sequence[AnyShape | None], modules: Sequence[Any] = ()) -> AnyShape:
        """Checks the number of inputs and returns the inferred shape; errors name the op.

        Errors: ShapeError with the op's text, what was required and what was found.
        """
        self.check_arity(len(inputs))
        try:
            given: Any = self.infer(*inputs, modules=modules) if self.takes_modules else self.infer(*inputs)
            if isinstance(given, ANY_SHAPE):
                result: AnyShape = given
                return result
            found: MgxError = PluginError(f"{self._rule()} must return a Shape, got {given!r}")
        except MgxError as error:
            found = error
        except FOREIGN as error:  # `infer` may assume tensors of a rank that fits the attributes
            found = ShapeError(
                f"{self._rule()} failed: {type(error).__name__}: {error} "
                "(wrong number, type or rank of operands, or a mistake in the rule)"
            )
            found.__cause__ = error
        raise found.located(f"{self!r}({', '.join('-' if s is None else str(s) for s in inputs)})")

    def bounded(self, inputs: Sequence[AnyShape | None], values: Sequence[Array | None]) -> AnyShape:
        """Returns the result's type, with bounds of data-dependent extents from known values.

        inputs: operands with static extents; values: the values of constant ones, None for the others.
        Default: the inferred shape, which does not use values.
        """
        return self.result(inputs)

    def _rule(self) -> str:
        return f"the shape rule of {self.name} ({type(self).__module__})"

    def check_arity(self, count: int) -> None:
        """Errors: ShapeError if the op does not accept that many inputs."""
        least, most = self._arity
        if count < least or (most is not None and count > most):
            names = (("*" if i.variadic else "") + i.name + ("?" if i.optional else "") for i in self.inputs)
            raise ShapeError(f"{self.name} {takes(least, most, names, count)}")

    def evaluate(self, args: Sequence[Value], modules: Sequence[Any] = (), run: Run | None = None) -> Value:
        """Runs the reference implementation on values (None for an absent input).

        Infinities and NaN are results like others: numpy does not warn about them, nor about those that some processors' matrix
        products meet in unused lanes.
        """
        if self.compute is None:
            raise UnsupportedError(
                f"{self.name} has no reference compute ({type(self).__module__} defines none): it needs a kernel or decomposition"
            )
        try:
            with np.errstate(all="ignore"):
                if self.takes_modules:
                    return self.compute(*args, modules=modules, run=run)
                return self.compute(*args)
        except MgxError:
            raise
        except MemoryError as error:
            raise DeviceError(f"{self.name}: not enough memory for the result: {error}") from None
        except FOREIGN as error:  # numpy's errors for values that `compute` does not check
            raise ShapeError(
                f"{self!r} ({type(self).__module__}) cannot be computed from these values: {type(error).__name__}: {error}"
            ) from error


def place_of(cls: type) -> str:
    """Returns a class as ``module:name``, by which tables refer to ops that they do not import."""
    return f"{cls.__module__}:{cls.__qualname__}"


def undeclared(cls: type) -> str:
    """Returns the error message for a class that derives from Operation but is not declared."""
    return f"class {cls.__module__}.{cls.__qualname__} is not a declared operation"


def _substituted(value: Any, values: Mapping[str, Dim]) -> Any:
    if isinstance(value, Sym):
        return substitute(value, values)
    if isinstance(value, tuple):
        return tuple(_substituted(v, values) for v in value)
    if hasattr(value, "substitute") and not isinstance(value, Operation):
        return value.substitute(values)
    return value
