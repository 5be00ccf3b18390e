"""Copies pytree specs of arguments and results without torch's warning about its own class."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

from torch.utils._pytree import TreeSpec, tree_flatten

__all__ = ["leaves_are_copied", "parts_of", "tree_of"]

try:
    children_of = TreeSpec.children
except AttributeError:  # older versions of torch
    children_of = attrgetter("children_specs")

# warning filters are process-wide: threads would restore each other's
LOCK = threading.RLock()


@contextmanager
def leaves_are_copied() -> Iterator[None]:
    """Context manager in which torch's leaf specs are copied without a warning.

    torch itself copies and unpickles objects of the class `LeafSpec`, and warns about that class (2.13).
    """
    with LOCK, warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`", FutureWarning)
        yield


def parts_of(tree: TreeSpec) -> tuple[Any, ...]:
    """Returns a pytree spec as type, context and its children's parts, which are copied without a warning; a leaf is ()."""
    return () if tree.is_leaf() else (tree.type, tree.context, [parts_of(child) for child in children_of(tree)])


def tree_of(parts: tuple[Any, ...]) -> TreeSpec:
    """Returns the pytree spec of parts."""
    if not parts:
        return tree_flatten(0)[1]
    kind, context, children = parts
    return TreeSpec(kind, context, [tree_of(child) for child in children])
