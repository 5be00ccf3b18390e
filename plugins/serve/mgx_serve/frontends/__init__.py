"""Processes that take a server's requests in its stead, and ask the engine's process for what they cannot answer.

One Python process does one thing at a time.  With front ends, that of the engine is left with queues and runs: connections,
encryption, JSON and protobuf are other processes' work.  All of them listen on the same ports (``SO_REUSEPORT``), so that the
kernel shares connections out.  Each has a socket of its own to the engine, for messages, and two pieces of shared memory, one a
direction, for tensors.
"""

from .pool import FrontEnds

__all__ = ["FrontEnds"]
