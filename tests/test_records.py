import copy
import dataclasses
import inspect
import subprocess
import sys
import typing
from dataclasses import FrozenInstanceError, InitVar, field
from typing import Any, ClassVar

import pytest

from mgx_core.records import dataclass


def written(make: Any) -> dict[str, Any]:
    """Classes defined with either decorator behave the same."""

    @make(frozen=True)
    class Point:
        """A point."""

        kind: ClassVar[str] = "point"
        x: int
        y: int = 2
        note: str = field(default="", compare=False, repr=False)
        seen: list[int] = field(default_factory=list, hash=False)

    @make(frozen=True)
    class Named(Point):
        """A point with a keyword-only name."""

        name: str = field(default="n", kw_only=True)

    @make
    class Counted:
        """A mutable class with a counter."""

        of: Any
        count: int = field(init=False, default=0)
        parts: list[int] = field(init=False, default_factory=list)

        def __post_init__(self) -> None:
            self.count += 1

    @make(eq=False)
    class Kept:
        """Compares by identity."""

        x: int = 0

    @make(frozen=True)
    class Own:
        """Defines the methods that a dataclass would generate."""

        x: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "own"

    @make(frozen=True, kw_only=True)
    class Options:
        """Keyword-only fields."""

        first: int = 1
        second: str

    @make(frozen=True)
    class Scaled:
        """Has an init-only argument."""

        x: int
        by: InitVar[int] = 3
        parts: list[int] = field(default_factory=list)

        def __post_init__(self, by: int) -> None:
            object.__setattr__(self, "x", self.x * by)

    @make(frozen=True)
    class Read:
        """Has its own __init__."""

        x: int

        def __init__(self, text: str) -> None:
            object.__setattr__(self, "x", int(text))

    @make(frozen=True)
    class Mixed:
        x: int
        named: str = field(default="n", kw_only=True)
        put: int = 5

    @make
    class Owned:
        self: int
        parts: int = 2

    @make
    class Grown:
        self: int
        parts: list[int] = field(default_factory=list)

    return {c.__name__: c for c in (Point, Named, Counted, Kept, Own, Options, Scaled, Read, Mixed, Owned, Grown)}


OURS, THEIRS = written(dataclass), written(dataclasses.dataclass)


def outcome(classes: dict[str, Any], text: str) -> tuple[str, str]:
    try:
        return "", repr(
            eval(text, {**classes, "copy": copy, "dataclasses": dataclasses, "inspect": inspect, "typing": typing})
        )
    except Exception as error:
        return type(error).__name__, ""


@pytest.mark.parametrize(
    "text",
    [
        "Point(1)", "Point(1, 3, 'n', [4])", "Point(y=5, x=1)", "Point(1, seen=[1]).seen", "Point(1).seen is Point(1).seen",
        "Point()", "Point(1, x=2)", "Point(1, z=2)", "Point(1, 2, '', [], 5)", "Point(1) == Point(1, 2, 'other')",
        "Point(1) == Point(2)", "Point(1) == Named(1)", "Point(1) != 1", "hash(Point(1)) == hash(Point(1, 2, 'a', [3]))",
        "hash(Point(1)) == hash((1, 2))", "Named(1, 2, '', [], 'x')", "Named(1, name='x')", "Named(1, name='x').kind",
        "Counted(3)", "Counted(3).count", "Counted(1, 2)", "hash(Counted(1))", "Counted([1]) == Counted([1])",
        "Kept(1) == Kept(1)", "Kept(1).__hash__() > 0", "Own(1) == Own(2)", "hash(Own(1))", "Own(1)", "Options(second='a')",
        "Options('a')", "Options()", "setattr(Point(1), 'x', 2)", "delattr(Point(1), 'x')", "setattr(Point(1), 'other', 2)",
        "setattr(Counted(1), 'of', 2)", "dataclasses.replace(Named(1, name='x'), y=7)", "dataclasses.replace(Counted(1), count=3)",
        "dataclasses.asdict(Named(1))", "dataclasses.astuple(Point(1))", "copy.copy(Point(1, 5))", "copy.deepcopy(Named(1))",
        "Scaled(2)", "Scaled(2, 5)", "Scaled(2, by=4, parts=[1])", "Scaled(2).by", "dataclasses.replace(Scaled(2), by=1)",
        "Scaled.__match_args__", "Read('12')", "Read('1') == Read('01')", "Read(x=1)",
        "Point.__match_args__", "Named.__match_args__", "Options.__match_args__", "[f.name for f in dataclasses.fields(Counted)]",
        "Mixed(1, 2, named='a')", "vars(Mixed(1))", "Mixed(1, 2, 'a')", "Mixed.__doc__", "Owned(self=1)", "Owned(1, self=2)",
        "dataclasses.replace(Owned(1), parts=3)", "Owned.__doc__", "Grown(self=1)", "inspect.signature(Mixed.__init__)",
        "typing.get_type_hints(Mixed.__init__)", "Mixed.__init__.__module__", "Owned.__init__.__kwdefaults__",
        "Mixed.__init__.__kwdefaults__", "Options.__init__.__defaults__",
    ],
)  # fmt: skip
def test_a_record_behaves_like_a_standard_dataclass(text: str) -> None:
    assert outcome(OURS, text) == outcome(THEIRS, text)


@pytest.mark.parametrize("name", [*OURS])
def test_signatures_are_shown(name: str) -> None:
    ours = str(inspect.signature(OURS[name])).replace("<class 'list'>", "<factory>")
    assert ours == str(inspect.signature(THEIRS[name])).replace("field(default_factory=list)", "<factory>")


def test_a_subclass_with_arguments_of_its_own_shows_those() -> None:
    class Other(OURS["Point"]):
        def __init__(self, both: int) -> None:
            super().__init__(both, both)

    assert list(inspect.signature(Other).parameters) == ["both"]
    assert Other(3).y == 3


def test_a_plain_subclass_shows_the_arguments_that_it_accepts() -> None:
    class Other(OURS["Point"]):
        pass

    assert list(inspect.signature(Other).parameters) == ["x", "y", "note", "seen"]


@pytest.mark.parametrize("inner", [dataclass, dataclasses.dataclass])
@pytest.mark.parametrize("outer", [dataclass, dataclasses.dataclass])
def test_frozen_classes_derive_from_frozen_ones_of_either_kind(inner: Any, outer: Any) -> None:
    @inner(frozen=True)
    class Base:
        x: int = 1

    @outer(frozen=True)
    class Derived(Base):
        y: int = 2

    made = Derived(3)
    assert (made.x, made.y, hash(made)) == (3, 2, hash((3, 2)))
    assert dataclasses.replace(made, y=5) == Derived(3, 5) != made
    assert str(inspect.signature(Derived)) == "(x: int = 1, y: int = 2) -> None"
    for name in "xy":
        with pytest.raises(FrozenInstanceError, match=name):
            setattr(made, name, 0)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("inner", [dataclass, dataclasses.dataclass])
@pytest.mark.parametrize("outer", [dataclass, dataclasses.dataclass])
def test_frozen_and_other_classes_do_not_derive_from_each_other(inner: Any, outer: Any, frozen: bool) -> None:
    @inner(frozen=frozen)
    class Base:
        x: int = 1

    class Derived(Base):
        y: int = 2

    with pytest.raises(TypeError, match="frozen dataclass from a"):
        outer(frozen=not frozen)(Derived)


def test_fields_that_the_standard_library_rejects_are_rejected_in_the_same_words() -> None:
    class Mutable:
        x: list[int] = []

    class Untyped:
        x = field(default=1)

    for each in (Mutable, Untyped):
        said = []
        for make in (dataclass, dataclasses.dataclass):
            with pytest.raises((TypeError, ValueError)) as caught:
                make(type(each.__name__, (), dict(vars(each))))
            said.append((caught.type, str(caught.value)))
        assert said[0] == said[1]


def test_a_default_in_the_class_is_that_of_the_field() -> None:
    assert (OURS["Point"].note, OURS["Named"].name, hasattr(OURS["Point"], "seen")) == ("", "n", False)


def test_an_argument_without_a_default_after_one_with_a_default_is_rejected() -> None:
    class Swapped:
        x: int = 1
        y: int

    with pytest.raises(TypeError, match="argument 'y' without a default follows 'x'"):
        dataclass(Swapped)


def test_a_value_that_holds_itself_can_be_shown() -> None:
    one = OURS["Counted"](None)
    one.of = one
    assert repr(one).endswith("Counted(of=..., count=1, parts=[])")


def test_fields_of_frozen_records_cannot_be_assigned() -> None:
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        OURS["Named"](1).x = 2


def test_classes_with_as_many_fields_share_the_generated_code() -> None:
    source = (
        "import builtins, dataclasses, mgx_core.records\n"
        "class A:\n    'doc'\n    x: int = 1\n"
        "dataclass = mgx_core.records.dataclass(frozen=True)\n"
        "dataclass(A)\n"
        "class Pair:\n    'doc'\n    x: int\n    y: int\n"
        "dataclass(Pair)\n"
        "def refused(*args): raise AssertionError('generated code')\n"
        "dataclasses.exec = builtins.exec = builtins.compile = builtins.eval = refused\n"
        "class B:\n    'doc'\n    other: str\n"
        "class C(A):\n    'doc'\n    y: int = 2\n"
        "print(A(), dataclass(B)('b'), B(other='c'), dataclass(C)())\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert done.stdout == "A(x=1) B(other='b') B(other='c') C(x=1, y=2)\n", done.stderr
