"""Front ends: processes that handle HTTP and gRPC for the engine process, which runs the models.

Because of the GIL, one Python process uses one core.  With front ends, the engine process only queues and runs batches;
connections, TLS, JSON and protobuf are handled by the front ends.  All of them listen on the same ports (``SO_REUSEPORT``): the
kernel assigns each connection, and a front end with more HTTP connections than another hands new ones over.  Each has a channel
to the engine: a socket for messages and one shared-memory arena per direction for tensors.  All share the trays: the buffers of
the next batches, to which they write inputs and from which they read outputs.
"""

from .pool import FrontEnds

__all__ = ["FrontEnds"]
