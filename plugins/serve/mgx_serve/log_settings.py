"""Log settings that clients may query and change while the server runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from .errors import BadRequest, Unsupported

__all__ = ["LogSettings", "Value"]

Value = bool | int | str
SWITCHES: Final = {"log_info": logging.INFO, "log_warning": logging.WARNING, "log_error": logging.ERROR}
FIXED: Final = ("log_file", "log_format")  # set when the server is started
MOST: Final = (1 << 32) - 1


class LogSettings(logging.Filter):
    """The settings of one logger under Triton's names; nothing is filtered until they are changed."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__()
        level = logger.getEffectiveLevel()
        self._logger, self._own = logger, logger.level
        self.values: Mapping[str, Value] = {
            "log_file": "",
            **{name: level <= least for name, least in SWITCHES.items()},
            "log_verbose_level": int(level <= logging.DEBUG),
            "log_format": "default",
        }

    def change(self, given: Mapping[str, Any]) -> None:
        """Errors: BadRequest for an unknown setting or invalid value; Unsupported for one that cannot be changed."""
        for name, value in given.items():
            if name not in self.values:
                raise BadRequest(f"there is no setting {name!r} of the log; known are {', '.join(self.values)}")
            kind = type(self.values[name])
            if type(value) is not kind:
                raise BadRequest(f"{name} must be of type {kind.__name__}, got {value!r}")
            if name in FIXED and value != self.values[name]:
                raise Unsupported(
                    f"{name} cannot be changed by requests; the destination of the log is set when the server is started"
                )
        if not 0 <= given.get("log_verbose_level", 0) <= MOST:
            raise BadRequest(f"log_verbose_level must lie between 0 and {MOST}, got {given['log_verbose_level']}")
        self.values = {**self.values, **given}
        taken = [level for name, level in SWITCHES.items() if self.values[name]]
        self._logger.setLevel(
            logging.DEBUG if self.values["log_verbose_level"] else min(taken, default=logging.CRITICAL)
        )
        self._logger.addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.INFO:
            return bool(self.values["log_verbose_level"])
        level = max(level for level in SWITCHES.values() if level <= record.levelno)
        return any(self.values[name] for name, least in SWITCHES.items() if least == level)

    def close(self) -> None:
        """Restores the logger."""
        self._logger.removeFilter(self)
        self._logger.setLevel(self._own)
