"""How two voters come to trust each other, and how every frame after that is proven. Pure.

Who connects speaks first; every message after the magic is a frame, four bytes of length before it.

    connector   PEER_MAGIC, then hello: version, both node ids, cluster, its directory, its nonce
    acceptor    challenge: its directory, its nonce
    connector   proof: HMAC-SHA256 under the secret, over its role, the hello and the challenge
    acceptor    the same for the other role

So a proof holds for one cluster, one pair of nodes in one direction, and one pair of nonces. The
connector proves itself first: a stranger that merely connects gets nothing to try secrets on. In
place of any answer the acceptor may send the name of its reason to refuse, for the other's log; a
connector that refuses an acceptor sends it as its first and only frame.

After that each direction has its own key, made of the secret and the same bytes, and each frame
carries a keyed BLAKE2b over its place in the stream and its body: one that was changed, repeated,
left out or moved, or that belongs to another connection, does not fit.

An empty secret proves nothing. Whoever makes a node allows that on loopback only.
"""

import hashlib
import hmac
import struct
from collections.abc import Set
from typing import Final, NamedTuple, Protocol

from kraftpy.errors import WireError
from kraftpy.storage.identity import Identity
from kraftpy.types import Uuid, uuid_text

# A Kafka request begins with its length, at most 100 MiB, and TLS with 0x16: neither with this.
PEER_MAGIC: Final = b"\xf5KRP"
NONCE_BYTES: Final = 32
MAC_BYTES: Final = 16

_VERSION: Final = 1
_HELLO: Final = struct.Struct(f">Bii16s16s{NONCE_BYTES}s")
_CHALLENGE: Final = struct.Struct(f">16s{NONCE_BYTES}s")
_SEQUENCE: Final = struct.Struct(">Q")
_REFUSAL: Final = b"no:"  # No message begins so: they are maps of msgpack.
_ADVICE: Final = {
    "other_directory": "; it knows this voter with another directory. Start it with that one: a "
    "voter without it has forgotten its votes",
    "wrong_secret": "; the secrets of all voters must be equal",
    "wrong_cluster": "; this directory is of another cluster",
}
_CONNECTOR_PROVES: Final = b"kraftpy connector proof\0"
_ACCEPTOR_PROVES: Final = b"kraftpy acceptor proof\0"
_CONNECTOR_FRAMES: Final = b"kraftpy connector frames\0"
_ACCEPTOR_FRAMES: Final = b"kraftpy acceptor frames\0"


class PeerRefused(WireError):
    """A connection that must be closed; `reason` is the name under which it is counted."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason


def is_peer(first: bytes) -> bool | None:
    """Whether a connection that begins with these bytes is a voter's; None: too few to tell."""
    if not PEER_MAGIC.startswith(first[: len(PEER_MAGIC)]):
        return False
    return True if len(first) >= len(PEER_MAGIC) else None


class FrameMac:
    """Proves the frames of one direction, each with its place in the stream."""

    def __init__(self, key: bytes) -> None:
        self._keyed = hashlib.blake2b(key=key, digest_size=MAC_BYTES)
        self._sequence = 0

    def next(self, body: bytes | memoryview) -> bytes:
        """The MAC of the next frame."""
        mac = self._keyed.copy()
        mac.update(_SEQUENCE.pack(self._sequence))
        mac.update(body)
        self._sequence += 1
        return mac.digest()


class Session(NamedTuple):
    """What a finished handshake leaves: who is there, and the MACs of both directions."""

    peer_id: int
    directory_id: Uuid
    sending: FrameMac
    receiving: FrameMac


class Handshake(Protocol):
    """One end of it."""

    session: Session | None

    def begin(self) -> bytes:
        """The first frame to send, or nothing."""
        ...

    def receive(self, frame: bytes) -> bytes:
        """Take a frame; the frame to send in answer, or nothing. PeerRefused ends it."""
        ...


class Connector:
    """The end that connected, to a peer whose id it knows."""

    def __init__(self, identity: Identity, secret: bytes, peer_id: int, nonce: bytes) -> None:
        self.session: Session | None = None
        self._secret = secret
        self._peer_id = peer_id
        self._directory_id: Uuid | None = None
        place = identity.node_id, peer_id, identity.cluster_id, identity.directory_id
        self._transcript = _HELLO.pack(_VERSION, *place, nonce)

    def begin(self) -> bytes:
        return self._transcript

    def receive(self, frame: bytes) -> bytes:
        check_refusal(self._peer_id, frame)
        if self._directory_id is None:
            if len(frame) != _CHALLENGE.size:
                raise PeerRefused("bad_hello", f"a challenge of {len(frame)} bytes")
            self._directory_id = Uuid(_CHALLENGE.unpack(frame)[0])
            self._transcript += frame
            return _keyed(self._secret, _CONNECTOR_PROVES, self._transcript)
        if not hmac.compare_digest(frame, _keyed(self._secret, _ACCEPTOR_PROVES, self._transcript)):
            raise PeerRefused("wrong_secret", f"node {self._peer_id} has another secret")
        self.session = Session(
            self._peer_id,
            self._directory_id,
            sending=FrameMac(_keyed(self._secret, _CONNECTOR_FRAMES, self._transcript)),
            receiving=FrameMac(_keyed(self._secret, _ACCEPTOR_FRAMES, self._transcript)),
        )
        return b""


class Acceptor:
    """The end that was connected to; `connectors` are the voters that may do so."""

    def __init__(
        self, identity: Identity, secret: bytes, connectors: Set[int], nonce: bytes
    ) -> None:
        self.session: Session | None = None
        self._identity = identity
        self._secret = secret
        self._connectors = connectors
        self._challenge = _CHALLENGE.pack(identity.directory_id, nonce)
        self._transcript = b""
        self._claimed: tuple[int, Uuid] | None = None

    def begin(self) -> bytes:
        return b""

    def receive(self, frame: bytes) -> bytes:
        if self._claimed is None:
            self._claimed = self._check_hello(frame)
            self._transcript = frame + self._challenge
            return self._challenge
        peer_id, directory_id = self._claimed
        if not hmac.compare_digest(
            frame, _keyed(self._secret, _CONNECTOR_PROVES, self._transcript)
        ):
            raise PeerRefused("wrong_secret", f"who claims to be node {peer_id} has another secret")
        self.session = Session(
            peer_id,
            directory_id,
            sending=FrameMac(_keyed(self._secret, _ACCEPTOR_FRAMES, self._transcript)),
            receiving=FrameMac(_keyed(self._secret, _CONNECTOR_FRAMES, self._transcript)),
        )
        return _keyed(self._secret, _ACCEPTOR_PROVES, self._transcript)

    def _check_hello(self, frame: bytes) -> tuple[int, Uuid]:
        """Who it claims to come from. Nothing is proven yet, but mistakes get their names."""
        if len(frame) != _HELLO.size:
            raise PeerRefused("bad_hello", f"a hello of {len(frame)} bytes")
        version, connector_id, acceptor_id, cluster_id, directory_id, _ = _HELLO.unpack(frame)
        own = self._identity
        if version != _VERSION:
            raise PeerRefused("bad_hello", f"version {version} of the peer protocol")
        if cluster_id != own.cluster_id:
            why = f"node {connector_id} is of cluster {uuid_text(cluster_id)}"
            raise PeerRefused("wrong_cluster", f"{why}, this is {uuid_text(own.cluster_id)}")
        if acceptor_id != own.node_id:
            why = f"node {connector_id} looked for node {acceptor_id}, this is {own.node_id}"
            raise PeerRefused("wrong_node", why)
        if connector_id not in self._connectors:
            raise PeerRefused("unknown_peer", f"node {connector_id} has no reason to connect here")
        return connector_id, Uuid(directory_id)


def refusal(reason: str) -> bytes:
    """The frame that tells a peer why it is not let in."""
    return _REFUSAL + reason.encode()[: NONCE_BYTES - len(_REFUSAL) - 1]


def check_refusal(peer_id: int | None, frame: bytes | memoryview) -> None:
    """PeerRefused if this frame says that the peer will not talk to us."""
    if len(frame) >= NONCE_BYTES or bytes(frame[: len(_REFUSAL)]) != _REFUSAL:
        return
    said = bytes(frame[len(_REFUSAL) :]).decode(errors="replace")
    advice = _ADVICE.get(said, "")
    raise PeerRefused("refused_by_peer", f"node {peer_id} refuses us: {said!a}{advice}")


def _keyed(secret: bytes, role: bytes, transcript: bytes) -> bytes:
    return hmac.digest(secret, role + transcript, "sha256")
