"""``mgx-driver tf``: the TensorFlow operators that the installed frontend reads."""

from __future__ import annotations

from .operators import operators_command

__all__ = ["command"]


def names() -> list[str]:
    from ..api import get_tf_operators

    return get_tf_operators()


command = operators_command("tf", "TensorFlow", "Conv2D", names)
