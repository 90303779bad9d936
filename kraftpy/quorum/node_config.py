"""What a controller is started with, made of the settings, or refused with one line."""

import ipaddress
import os
import re
from dataclasses import dataclass, replace
from typing import Final

from kraftpy.config import Settings, metadata_directory
from kraftpy.errors import ConfigError
from kraftpy.metadata_log.metadata_log import MetadataLogConfig
from kraftpy.metadata_log.snapshotter import SnapshotPolicy
from kraftpy.quorum.control.settings import ControllerSettings
from kraftpy.quorum.raft.engine import RaftTiming
from kraftpy.quorum.raft.peer_tls import PeerTls
from kraftpy.quorum.voters import Voter, default_cluster_id, parse_voters
from kraftpy.types import ZERO_UUID, BrokerId, Uuid, parse_uuid

DEFAULT_PORT: Final = 9093
_LISTENER: Final = re.compile(r"(?:CONTROLLER://)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]*):(\d{1,5})")
_HEARTBEATS_PER_TIMEOUT: Final = 3.75
_CHECK_QUORUM_TIMEOUTS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Everything that a QuorumNode needs to know."""

    node_id: int
    voters: tuple[Voter, ...]
    host: str
    port: int
    data_dir: str
    metadata_dir: str
    cluster_id: Uuid | None  # None: whichever the directory has, or the voters' own.
    secret: bytes
    tls: PeerTls | None
    timing: RaftTiming
    log: MetadataLogConfig
    snapshots: SnapshotPolicy
    control: ControllerSettings  # Of a cluster whose id the directory decides.
    dialed_voters: tuple[Voter, ...] = ()  # Where it connects to them, if elsewhere.

    @property
    def new_cluster_id(self) -> Uuid:
        """The cluster that an empty directory will belong to."""
        return self.cluster_id or default_cluster_id(self.voters)

    @staticmethod
    def of(settings: Settings) -> "NodeConfig":
        """ConfigError names what is missing or does not fit together."""
        if settings.node_id is None:
            raise ConfigError("node.id is not set: give --node-id N")
        voters = _voters(settings, settings.node_id)
        own = next((voter for voter in voters if voter.node_id == settings.node_id), None)
        if own is None:
            names = ", ".join(map(str, voters))
            raise ConfigError(f"node {settings.node_id} is not among the voters {names}")
        host, port = _listener(settings.listeners) or (own.host, own.port)
        secret = _secret(settings)
        if not secret and not is_loopback(host):
            raise ConfigError(
                f"quorum.auth.secret is needed to listen at {host}, beyond loopback: set it, or "
                "quorum.auth.secret-file"
            )
        data_dir = _absolute(settings.data_dir or f"kraftpy-data/node-{settings.node_id}")
        timeout_ms = settings.controller_quorum_election_timeout_ms
        return NodeConfig(
            node_id=settings.node_id,
            voters=voters,
            host=host,
            port=port,
            data_dir=data_dir,
            metadata_dir=_absolute(metadata_directory(replace(settings, data_dir=data_dir))),
            cluster_id=_cluster_id(settings.cluster_id),
            secret=secret,
            tls=_tls(settings),
            timing=RaftTiming(
                election_timeout_ms=timeout_ms,
                heartbeat_ms=int(timeout_ms / _HEARTBEATS_PER_TIMEOUT),
                check_quorum_ms=timeout_ms * _CHECK_QUORUM_TIMEOUTS,
            ),
            log=MetadataLogConfig.of(settings),
            snapshots=SnapshotPolicy.of(settings),
            control=_control(settings, voters),
        )

    @property
    def own_voter(self) -> Voter:
        """This node as the others know it."""
        return next(voter for voter in self.voters if voter.node_id == self.node_id)


def _control(settings: Settings, voters: tuple[Voter, ...]) -> ControllerSettings:
    return ControllerSettings(
        cluster_id=ZERO_UUID,
        voter_ids=tuple(BrokerId(voter.node_id) for voter in voters),
        num_partitions=settings.num_partitions,
        default_replication_factor=settings.default_replication_factor,
        min_insync_replicas=settings.min_insync_replicas,
        unclean_leader_election_enable=settings.unclean_leader_election_enable,
        unclean_leader_election_interval_ms=settings.unclean_leader_election_interval_ms,
        broker_session_timeout_ms=settings.broker_session_timeout_ms,
        metadata_max_idle_interval_ms=settings.metadata_max_idle_interval_ms,
        auto_leader_rebalance_enable=settings.auto_leader_rebalance_enable,
        leader_imbalance_check_interval_ms=1000 * settings.leader_imbalance_check_interval_seconds,
        leader_imbalance_per_broker_percentage=settings.leader_imbalance_per_broker_percentage,
    )


def _voters(settings: Settings, node_id: int) -> tuple[Voter, ...]:
    if settings.controller_quorum_voters:
        return parse_voters(settings.controller_quorum_voters)
    host, port = _listener(settings.listeners) or ("127.0.0.1", DEFAULT_PORT)
    return (Voter(node_id, host, port),)


def _listener(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    match = _LISTENER.fullmatch(text)
    if match is None or int(match[2]) > 65535:
        raise ConfigError(f"listeners: expected CONTROLLER://HOST:PORT, not {text!r}")
    return match[1].strip("[]") or "0.0.0.0", int(match[2])


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to a host's address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _cluster_id(text: str) -> Uuid | None:
    try:
        return parse_uuid(text) if text else None
    except ValueError as error:
        raise ConfigError(f"cluster.id: {error}") from None


def _secret(settings: Settings) -> bytes:
    if settings.quorum_auth_secret and settings.quorum_auth_secret_file:
        raise ConfigError("quorum.auth.secret and quorum.auth.secret-file are both set; remove one")
    if not settings.quorum_auth_secret_file:
        return settings.quorum_auth_secret.encode()
    path = _absolute(settings.quorum_auth_secret_file)
    try:
        with open(path, "rb") as file:
            secret = file.readline(4096).strip()
    except OSError as error:
        raise ConfigError(
            f"quorum.auth.secret-file: cannot read {path}: {error.strerror}"
        ) from None
    if not secret:
        raise ConfigError(f"quorum.auth.secret-file: the first line of {path} is empty")
    return secret


def _tls(settings: Settings) -> PeerTls | None:
    files = settings.quorum_ssl_ca, settings.quorum_ssl_cert, settings.quorum_ssl_key
    if not any(files):
        return None
    if not all(files):
        raise ConfigError("quorum.ssl.ca, quorum.ssl.cert and quorum.ssl.key belong together")
    ca_file, certificate_file, key_file = map(_absolute, files)
    return PeerTls.load(ca_file=ca_file, certificate_file=certificate_file, key_file=key_file)


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))
