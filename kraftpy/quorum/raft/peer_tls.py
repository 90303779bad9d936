"""Mutual TLS between voters, on bytes instead of a socket.

The magic and whatever else the listener has read already are in memory, not in the socket, so TLS
runs on memory too: bytes of the wire in, bytes of the peer out, and the other way round.

A certificate must be signed by the CA; its names are not looked at, since the handshake inside
proves the node's id. TLS is about who may talk to us at all, and about who can read it.
"""

import ssl
from dataclasses import dataclass
from typing import Final

from kraftpy.errors import ConfigError
from kraftpy.quorum.raft.handshake import PeerRefused

_READ_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class PeerTls:
    """The two contexts of a node: for those it connects to, and for those that connect to it."""

    connecting: ssl.SSLContext
    accepting: ssl.SSLContext

    @staticmethod
    def load(*, ca_file: str, certificate_file: str, key_file: str) -> "PeerTls":
        """ConfigError if a file cannot be used."""
        contexts = []
        for purpose in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER):
            context = ssl.SSLContext(purpose)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.check_hostname = False
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_verify_locations(cafile=ca_file)
                context.load_cert_chain(certificate_file, key_file)
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError.
                files = f"{ca_file}, {certificate_file}, {key_file}"
                raise ConfigError(f"cannot use the TLS files {files}: {error}") from None
            contexts.append(context)
        contexts[1].num_tickets = 0  # Nobody resumes a session here.
        return PeerTls(*contexts)


class TlsTunnel:
    """One connection's TLS. What it wants to send is in `outgoing` after every call."""

    def __init__(self, context: ssl.SSLContext, *, server_side: bool) -> None:
        self._incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self.outgoing, server_side=server_side)
        self._is_open = False
        self._early = bytearray()  # What was to be sent before the tunnel was open.

    def begin(self) -> None:
        """Say hello, on the side that connects."""
        self._go_on()

    def encrypt(self, data: bytes | bytearray) -> None:
        if not self._is_open:
            self._early += data
            return
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]

    def decrypt(self, data: bytes) -> bytes:
        """What the peer has said, as far as it is whole. PeerRefused if this is not our TLS."""
        self._incoming.write(data)
        if not self._is_open and not self._go_on():
            return b""
        pieces = []
        try:
            while piece := self._tls.read(_READ_BYTES):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise _refused(error) from None
        return b"".join(pieces)

    def _go_on(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise _refused(error) from None
        self._is_open = True
        early, self._early = self._early, bytearray()
        self.encrypt(early)
        return True


def _refused(error: ssl.SSLError) -> PeerRefused:
    return PeerRefused("tls_failed", f"TLS: {error.reason or error}")
