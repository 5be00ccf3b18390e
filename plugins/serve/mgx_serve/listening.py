"""Opens the HTTP and gRPC ports of a process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import Any, Final

import grpc
import uvicorn
from starlette.types import ASGIApp

from mgx_core import ParameterError

from .connection_balancer import Balancer, Part
from .http_protocol import TimedProtocol
from .settings import Settings

__all__ = ["Listening", "reserved"]

BACKLOG: Final = 2048


class Listening:
    """The HTTP and gRPC servers of one process; once open, `http_port` and `grpc_port` are the actual ports."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.http_port = self.grpc_port = -1
        self._serving: asyncio.Task[None] | None = None
        self._http: uvicorn.Server | None = None
        self._grpc: grpc.aio.Server | None = None
        self._balancer: Balancer | None = None
        self._handed: set[asyncio.Task[Any]] = set()

    async def open(self, app: ASGIApp, handler: grpc.GenericRpcHandler, part: Part | None = None) -> None:
        """Opens the ports; part: this process's share of HTTP connections if other processes listen on the same ports.

        Errors: OSError if a port is taken; ParameterError if the certificate and key files are invalid.
        """
        self._require_certificate()
        if self.settings.http_port >= 0:
            await self._open_http(app, part)
        if self.settings.grpc_port >= 0:
            await self._open_grpc(handler, part is not None)

    def _require_certificate(self) -> None:
        given = self.settings
        if given.certificate is None:
            return
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(given.certificate, given.key, password=b"")  # never prompts for a passphrase
        except (OSError, ValueError) as error:
            raise ParameterError(
                f"a certificate and its key, both in PEM and without a password, are required, got {given.certificate} and "
                f"{given.key}: {error}"
            ) from None

    async def _open_http(self, app: ASGIApp, part: Part | None) -> None:
        given = self.settings
        listening = _server(given.host, given.http_port, reuse_port=part is not None, backlog=BACKLOG)
        # accepted sockets inherit TCP_NODELAY; asyncio sets it only on sockets created with IPPROTO_TCP, and without it a body
        # sent after its headers waits 40 ms for their delayed ACK
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.http_port = listening.getsockname()[1]
        config = uvicorn.Config(
            app,
            http=TimedProtocol,
            log_config=None,
            access_log=False,
            limit_concurrency=given.connections,
            lifespan="off",
            ws="none",
            proxy_headers=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=max(1, round(given.drain)),
            ssl_certfile=given.certificate,
            ssl_keyfile=None if given.key is None else str(given.key),
        )
        self._http = _Uvicorn(config)
        if part is not None:
            self._balancer = Balancer(part)
            listening = self._balancer.listening(listening)
        self._serving = asyncio.create_task(self._http.serve([listening]))
        while not self._http.started:
            await asyncio.sleep(0.005)
        if self._balancer is not None:
            self._balancer.take(self._serve)

    def _serve(self, connected: socket.socket) -> None:
        """Serves a connection that another process accepted."""
        assert self._http is not None
        server, loop = self._http, asyncio.get_running_loop()

        def protocol() -> asyncio.Protocol:
            return TimedProtocol(server.config, server.server_state, server.lifespan.state)

        task = loop.create_task(loop.connect_accepted_socket(protocol, connected, ssl=server.config.ssl))
        self._handed.add(task)
        task.add_done_callback(self._handed.discard)

    async def _open_grpc(self, handler: grpc.GenericRpcHandler, shared: bool) -> None:
        given = self.settings
        options = [
            ("grpc.max_receive_message_length", given.max_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.compression_enabled_algorithms_bitset", 1),  # no compression: prevents decompression bombs
            ("grpc.so_reuseport", int(shared)),
        ]
        self._grpc = server = grpc.aio.server(options=options, maximum_concurrent_rpcs=given.connections)
        server.add_generic_rpc_handlers((handler,))
        host = f"[{given.host}]" if ":" in given.host else given.host
        address = f"{host}:{given.grpc_port}"
        try:
            if given.certificate is None or given.key is None:
                self.grpc_port = server.add_insecure_port(address)
            else:
                pair = (given.key.read_bytes(), given.certificate.read_bytes())
                self.grpc_port = server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        except RuntimeError as error:
            raise OSError(f"gRPC cannot listen on {address}: {error}") from error
        await server.start()

    async def close(self) -> None:
        """Rejects new requests, finishes those in flight and closes the ports."""
        self.hand_on()
        if self._http is not None:
            self._http.should_exit = True
        if self._grpc is not None:
            await self._grpc.stop(self.settings.drain)
        if self._serving is not None:
            await asyncio.gather(self._serving, return_exceptions=True)

    def hand_on(self) -> None:
        """Stops accepting connections handed over by other processes."""
        balancer, self._balancer = self._balancer, None
        if balancer is not None:
            balancer.close()


def reserved(host: str, port: int) -> socket.socket:
    """Returns a socket that reserves a port (0: any free one) for processes that will share it.

    Errors: ParameterError if the host is not an address of this machine; OSError if the port is taken.
    """
    with _server(host, port) as alone:  # fails if any process listens, even with SO_REUSEPORT
        free = int(alone.getsockname()[1])
        made = socket.socket(alone.family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of a previous server may be in TIME_WAIT
    made.bind((host, free))
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    return made


def _server(host: str, port: int, **options: Any) -> socket.socket:
    """Returns a listening socket; on ``::`` for both IPv4 and IPv6.

    Errors: ParameterError if the host is not an address of this machine; OSError if the port is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = host == "::" and socket.has_dualstack_ipv6()
    try:
        socket.getaddrinfo(host, port, family)  # create_server reports an unknown name only as a failed bind
    except socket.gaierror as error:
        raise ParameterError(
            f"--host must be a name or an address of this machine, IPv6 without brackets (::1), got {host!r}: {error.strerror}"
        ) from None
    return socket.create_server((host, port), family=family, dualstack_ipv6=both, **options)


class _Uvicorn(uvicorn.Server):
    """A uvicorn server that installs no signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield
