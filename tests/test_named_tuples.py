from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
import types
import typing
from typing import Any

import pytest

from mgx_core.named_tuples import NamedTuple

BASES = (NamedTuple, typing.NamedTuple)


def written(base: Any) -> dict[str, Any]:
    """Classes that derive from either base behave the same."""

    class Point(base):  # type: ignore[misc]
        """A point."""

        x: int
        y: int = 2

        @property
        def sum(self) -> int:
            return int(self.x + self.y)

    class Bare(base):  # type: ignore[misc]
        only: str

    class Empty(base):  # type: ignore[misc]
        pass

    class Shown(base):  # type: ignore[misc]
        x: int = 1

        def __repr__(self) -> str:
            return "own"

    class Derived(Point):
        def __repr__(self) -> str:
            return f"derived {super().__repr__()}"

    return {c.__name__: c for c in (Point, Bare, Empty, Shown, Derived)}


OURS, THEIRS = (written(base) for base in BASES)


class Kept(NamedTuple):
    """At the top of a module, as pickle requires."""

    x: int
    y: str = "y"


def outcome(classes: dict[str, Any], text: str) -> tuple[str, str]:
    try:
        return "", repr(eval(text, {**classes, "copy": copy, "inspect": inspect}))
    except Exception as error:
        return type(error).__name__, str(error).replace("'", "")


@pytest.mark.parametrize(
    "text",
    [
        "Point(1)", "Point(1, 3)", "Point(y=5, x=1)", "Point(1).y", "Point(1).sum", "Point(x=1) == (1, 2)", "hash(Point(1)) == hash((1, 2))",
        "Point()", "Point(1, x=2)", "Point(1, z=2)", "Point(1, 2, 3)", "setattr(Point(1), 'x', 2)", "setattr(Point(1), 'z', 2)",
        "Point._make([1, 2])", "Point._make([1])", "Point(1)._replace(y=5)", "Point(1)._replace(z=5)", "Point(1)._asdict()",
        "Point._fields", "Point._field_defaults", "Point.__match_args__", "Point.__doc__", "Bare.__doc__", "Point.x.__doc__",
        "Point.__mro__[1:]", "Point.__annotations__.keys()", "Point.__slots__", "Point.__new__.__doc__", "Point.__qualname__[-5:]",
        "inspect.signature(Bare).parameters.keys()", "inspect.signature(Point).parameters['y'].default",
        "copy.copy(Point(1))", "copy.deepcopy(Point(1, [2]))", "Bare('a')", "Bare(1)[0]", "Empty()", "Empty(1)", "Shown()",
        "Derived(1)", "Derived(1)._replace(x=2)", "Derived._make([3, 4])", "tuple(Derived(1))", "Derived(1, 2) == Point(1, 2)",
    ],
)  # fmt: skip
def test_a_named_tuple_behaves_like_the_standard_librarys(text: str) -> None:
    assert outcome(OURS, text) == outcome(THEIRS, text)


def test_annotations_can_be_resolved() -> None:
    assert typing.get_type_hints(Kept) == {"x": int, "y": str}


def test_a_tuple_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Kept(3))) == Kept(3)
    assert type(pickle.loads(pickle.dumps(Kept(3)))) is Kept


@pytest.mark.parametrize("base", BASES)
def test_reserved_members_cannot_be_defined(base: Any) -> None:
    with pytest.raises(AttributeError, match="Cannot overwrite NamedTuple attribute _make"):

        class Made(base):  # type: ignore[misc]
            x: int

            def _make(self) -> None:
                pass


@pytest.mark.parametrize("base", BASES)
def test_fields_do_not_start_with_an_underscore(base: Any) -> None:
    with pytest.raises(ValueError, match="cannot start with an underscore: '_x'"):

        class Private(base):  # type: ignore[misc]
            _x: int


@pytest.mark.parametrize("base", BASES)
def test_a_field_without_a_default_after_one_with_a_default_is_rejected(base: Any) -> None:
    with pytest.raises(TypeError, match="field y cannot follow default field"):

        class Swapped(base):  # type: ignore[misc]
            x: int = 1
            y: int


@pytest.mark.parametrize("base", BASES)
def test_a_named_tuple_has_no_other_base(base: Any) -> None:
    with pytest.raises(TypeError):

        class Both(base, dict):  # type: ignore[misc,type-arg]
            x: int


def test_a_generic_named_tuple_is_the_standard_librarys() -> None:
    with pytest.raises(
        TypeError, match=r"Both derives from NamedTuple and Generic: .* typing\.NamedTuple for a generic"
    ):

        class Both(NamedTuple, typing.Generic[typing.TypeVar("T")]):  # type: ignore[misc]
            x: int


@pytest.mark.parametrize("member", ["__annotate__", "__annotate_func__"])
def test_annotations_that_are_evaluated_lazily_are_rejected(member: str) -> None:
    """Those of a module without the import from `__future__`, from Python 3.14 on: there seem to be no fields."""
    with pytest.raises(TypeError, match="its module must import annotations from __future__"):
        types.new_class("Made", (NamedTuple,), exec_body=lambda namespace: namespace.update({member: None}))


def test_classes_with_as_many_fields_share_the_generated_code() -> None:
    source = (
        "from __future__ import annotations\n"
        "from mgx_core.named_tuples import NamedTuple\n"
        "import builtins, collections\n"
        "class A(NamedTuple):\n    x: int\n    y: int = 2\n"
        "def refused(*args): raise AssertionError('generated code')\n"
        "builtins.eval = builtins.compile = builtins.exec = collections.namedtuple = refused\n"
        "class B(NamedTuple):\n    other: list[int]\n    names: str = ''\n"
        "print(A(1), B([2]), B(names='n', other=[]))\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert done.stdout == "A(x=1, y=2) B(other=[2], names='') B(other=[], names='n')\n", done.stderr
