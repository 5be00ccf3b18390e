"""Signatures of programs: shapes of parameters and of results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..errors import ParameterError
from ..named_tuples import NamedTuple
from .shape import AnyShape

__all__ = ["ParameterShapes", "Signature", "names_of_results"]


class ParameterShapes(Mapping[str, AnyShape]):
    """Shapes of a program's parameters by name or by position (``[0]``)."""

    def __init__(self, shapes: Mapping[str, AnyShape]) -> None:
        self._shapes = dict(shapes)

    def __getitem__(self, key: str | int) -> AnyShape:
        if isinstance(key, int):
            return list(self._shapes.values())[key]
        return self._shapes[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{k!r}: {v}' for k, v in self._shapes.items())}}}"


class Signature(NamedTuple):
    """Shapes of the parameters by name, and shapes and names of the results."""

    parameters: dict[str, AnyShape]
    results: list[AnyShape]
    output_names: list[str]


def names_of_results(stated: Sequence[str], count: int) -> list[str]:
    """Returns the names of results: the declared ones, or ``output_0`` and so on.

    Errors: ParameterError if the number of results differs from the number of declared names.
    """
    if stated and count and len(stated) != count:
        names = ", ".join(map(repr, stated))
        raise ParameterError(
            f"a name for each result is required, got {len(stated)} output names ({names}) for {count} results"
        )
    return list(stated) or [f"output_{n}" for n in range(count)]
