"""Processes that take a server's requests in its stead, and ask the engine's process for what they cannot answer.

One Python process does one thing at a time.  With front ends, that of the engine is left with queues and runs: connections,
encryption, JSON and protobuf are other processes' work.  All of them listen on the same ports (``SO_REUSEPORT``).  The kernel
chooses one for each connection, and one that has more than another over HTTP hands it on.  Each has a socket of its own to the
engine, for messages, and two pieces of shared memory, one a direction, for tensors.  All of them share the memory of the next
batches, which they copy inputs to and read outputs from.
"""

from .pool import FrontEnds

__all__ = ["FrontEnds"]
