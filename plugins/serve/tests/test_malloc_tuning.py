"""Memory of a message is reused for the next one."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
from mgx_serve.malloc_tuning import keep_freed_memory
{call}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def message():
    return [bytearray(b"x") * 1_000_000 for _ in range(4)]
message()
before = faults()
for _ in range(50):
    message()
print((faults() - before) // 50)
"""


def faults(call: str) -> int:
    """Returns page faults for each of 50 messages in four consecutive buffers of 1 MB, in a separate process."""
    command = [sys.executable, "-c", FAULTS.format(call=call)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt")
def test_freed_memory_is_used_again() -> None:
    assert faults("assert keep_freed_memory()") < 10
    assert faults("") > 500  # as without it: otherwise this test could not fail
