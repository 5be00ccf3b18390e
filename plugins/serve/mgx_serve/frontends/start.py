"""Serializes the settings of a front-end process."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..connection_balancer import Part
from ..settings import Settings

__all__ = ["LOG_FORMAT", "arguments", "settings_of"]

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(message)s"
FILES: Final = ("certificate", "key")


def arguments(settings: Settings, level: int, part: Part, trays: Sequence[int]) -> Mapping[str, Any]:
    """Returns the settings as a JSON-serializable value.

    level: of the log; part: share of the connections; trays: arguments of `TrayWriter`, if any.
    """
    given = {f.name: getattr(settings, f.name) for f in dataclasses.fields(settings) if f.name != "model"}
    files = {name: None if given[name] is None else str(given[name]) for name in FILES}
    return {"level": level, "settings": given | files, "part": dataclasses.asdict(part), "trays": trays}


def settings_of(given: Mapping[str, Any]) -> tuple[Settings, int, Part, Sequence[int]]:
    """Returns the settings (without those of models), the log level, the share of the connections, and the trays."""
    read = dict(given["settings"])
    for name in FILES:
        read[name] = None if read[name] is None else Path(read[name])
    read["tokens"] = {token: tuple(models) for token, models in read["tokens"].items()}
    return Settings(**read), given["level"], Part(**given["part"]), given["trays"]
