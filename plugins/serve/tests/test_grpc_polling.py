"""The thread in which gRPC reads sockets: set in the environment during the import of gRPC only."""

from __future__ import annotations

import os
import subprocess
import sys

SEEN = """
import os, sys
def seen():
    return os.environ.get("GRPC_EXPERIMENTS", "none")
{code}
from mgx_serve.grpc_polling import direct_polling
with direct_polling():
    print(seen(), "grpc" in sys.modules)
    import grpc
print(seen())
"""


def seen(code: str = "", **environment: str) -> list[str]:
    """Returns gRPC's environment inside and after the block, in a separate process."""
    given = {k: v for k, v in os.environ.items() if k != "GRPC_EXPERIMENTS"} | environment
    command = [sys.executable, "-c", SEEN.format(code=code)]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=given).stdout.split()


def test_the_command_chooses_before_grpc_is_imported() -> None:
    given = seen("from mgx_serve.command import main")
    assert given == ["-event_engine_listener", "False", "none"]


def test_a_choice_of_the_users_stays() -> None:
    assert seen(GRPC_EXPERIMENTS="event_engine_fork") == ["event_engine_fork", "False", "event_engine_fork"]


def test_nothing_is_set_where_grpc_has_read_it_already() -> None:
    assert seen("import grpc") == ["none", "True", "none"]
