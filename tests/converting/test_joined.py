"""A frontend's converters combined with those of plugins: a conflict affects one operator only, is named, and can be resolved."""

from __future__ import annotations

from typing import Any

import pytest

from mgx_core.converting.converters import Converters
from mgx_core.converting.joined import Joined
from mgx_core.errors import PluginError
from mgx_core.plugins.record import PluginRecord


def record(name: str) -> PluginRecord:
    return PluginRecord(name, f"{name}.plugin", f"dist-{name}", "1", "ok")


def table(*entries: tuple[str, int, bool], says: str) -> Converters:
    """Returns a table whose converters return their owner and first version."""
    made = Converters()
    for name, since, replaces in entries:
        made.converts(name, since=since, replaces=replaces)(lambda node, since=since: (says, since))
    return made


def asked(joined: Converters, name: str, version: int) -> Any:
    found = joined.find("", name, version)
    return None if found is None else found(None)


def test_the_frontends_own_converter_stays_and_the_plugin_is_reported():
    a = record("a")
    joined = Joined(
        table(("Relu", 1, False), says="own"), [(a, table(("Relu", 1, False), ("Odd", 1, False), says="a"))], "toy"
    )
    assert asked(joined, "Odd", 5) == ("a", 1) and a.failures == []
    assert asked(joined, "Relu", 5) == ("own", 1)
    (failure,) = a.failures
    assert failure.hook == "converters"
    assert f"the frontend 'toy' has a converter for Relu, which stays: {__name__}.table.<locals>" in failure.message
    assert "replaces=True" in failure.message


def test_one_that_replaces_holds_from_its_version_on():
    own = table(("Relu", 1, False), ("Relu", 13, False), ("Relu", 16, False), says="own")
    a = record("a")
    joined = Joined(own, [(a, table(("Relu", 14, True), says="a"))], "toy")
    got = [asked(joined, "Relu", version) for version in (0, 1, 13, 14, 20)]
    assert got == [None, ("own", 1), ("own", 13), ("a", 14), ("a", 14)]
    assert a.state == "ok"


def test_two_plugins_are_rejected_on_lookup_of_the_operator():
    a, b = record("a"), record("b")
    given = [(a, table(("Odd", 2, False), ("One", 1, False), says="a")), (b, table(("Odd", 1, False), says="b"))]
    joined = Joined(Converters(), given, "toy")
    assert asked(joined, "One", 1) == ("a", 1)
    with pytest.raises(
        PluginError, match=r"2 plugins convert Odd for the frontend 'toy': .* of plugin 'a' of dist-a and .* 'b'"
    ):
        asked(joined, "Odd", 1)
    assert "MGX_PLUGINS=-b" in a.error and a.error == b.error


def test_of_two_plugins_the_replacing_one_is_used():
    a, b, c = record("a"), record("b"), record("c")
    given = [(a, table(("Odd", 1, False), says="a")), (b, table(("Odd", 3, True), says="b"))]
    joined = Joined(Converters(), given, "toy")
    assert (asked(joined, "Odd", 2), asked(joined, "Odd", 3)) == (("a", 1), ("b", 3))
    joined = Joined(Converters(), [*given, (c, table(("Odd", 5, True), says="c"))], "toy")
    assert asked(joined, "Odd", 2) == ("a", 1)
    with pytest.raises(PluginError, match="2 plugins convert Odd"):
        asked(joined, "Odd", 3)


def test_tables_that_add_on_lookup_convert_operators_missing_in_the_frontend():
    called: list[int] = []

    def add() -> None:
        called.append(1)
        later.converts("Relu", "Flex")(lambda node: ("later", 1))

    later = Converters([add])
    joined = Joined(table(("Relu", 1, False), says="own"), [(record("a"), later)], "toy")
    assert asked(joined, "Relu", 1) == ("own", 1) and called == []
    assert asked(joined, "Flex", 1) == ("later", 1) and called == [1]


def test_lazy_imports_of_the_frontend_are_detected():
    own, a = Converters(), record("a")
    joined = Joined(own, [(a, table(("Odd", 1, False), says="a"))], "toy")
    assert asked(joined, "Odd", 1) == ("a", 1)
    own.converts("Odd")(lambda node: ("own", 1))
    assert asked(joined, "Odd", 1) == ("own", 1) and a.failures


def test_all_names_are_there_and_all_conflicts_are_found():
    a = record("a")
    joined = Joined(
        table(("Relu", 1, False), says="own"), [(a, table(("Relu", 1, False), ("Odd", 1, False), says="a"))], "toy"
    )
    assert joined.names() == [("", "Odd"), ("", "Relu")]
    assert "Relu" in a.error
    assert (joined + Converters()).names() == joined.names()
