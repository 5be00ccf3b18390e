"""The frontend as mgx sees it: ``.pt2`` files in, programs out."""

from __future__ import annotations

from typing import Any

from mgx_core import Frontend, ParameterError, Program

__all__ = ["TorchFrontend"]


class TorchFrontend(Frontend):
    """Reads what ``torch.export.save`` wrote; no code of a file is run, and nothing in it is unpickled."""

    def parse_buffer(self, data: bytes, **options: Any) -> Program:
        """Errors: ParseError for a damaged file or one that asks for code to be run; UnsupportedError for its operators."""
        if options:
            raise ParameterError(f"the frontend 'pt2' takes no options, got {', '.join(options)}")
        from .archive import read
        from .exported import from_exported

        return from_exported(read(data))

    def operators(self) -> list[str]:
        """Returns names of the operators that are converted, with the overload where only that one is."""
        from .decompositions import all_converters

        return sorted({f"{domain.split()[-1]}::{name}" for domain, name in all_converters().names()})
