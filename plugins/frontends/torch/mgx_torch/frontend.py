"""The frontend's entry point: parses ``.pt2`` files into programs."""

from __future__ import annotations

from typing import Any

from mgx_core import Frontend, ParameterError, Program

__all__ = ["TorchFrontend"]


class TorchFrontend(Frontend):
    """Parses files of ``torch.export.save`` without executing or unpickling anything in them."""

    def parse_buffer(self, data: bytes, **options: Any) -> Program:
        """Errors: ParseError for a corrupt file or references to code; UnsupportedError for unsupported operators."""
        if options:
            raise ParameterError(f"the frontend 'pt2' has no options, got {', '.join(options)}")
        from .archive import read
        from .exported import from_exported

        return from_exported(read(data))

    def operators(self) -> list[str]:
        """Returns the names of all operators with a converter, with the overload if only that one is converted."""
        from .decompositions import all_converters

        return sorted({f"{domain.split()[-1]}::{name}" for domain, name in all_converters().names()})
