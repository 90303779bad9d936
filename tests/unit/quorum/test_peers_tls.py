"""Voters that ask each other for certificates: whose is signed by the CA may try the secret."""

import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kraftpy.errors import ConfigError
from kraftpy.quorum.raft.handshake import PEER_MAGIC, Connector
from kraftpy.quorum.raft.peer_tls import PeerTls
from kraftpy.quorum.voters import Voter
from tests.unit.quorum.raw_peer import VOTE, Address, Alone, RawPeer, frame, identity
from tests.unit.quorum.tcp_cluster import SECRET, TcpCluster, listening

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="certificates are made with the openssl command"
)


def openssl(directory: Path, command: str) -> None:
    subprocess.run(
        ["openssl", *command.split()], cwd=directory, check=True, capture_output=True, timeout=60
    )


def authority(directory: Path, name: str) -> None:
    """A CA and a certificate that it has signed, for every node."""
    key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    openssl(
        directory,
        f"req -x509 {key} -keyout {name}-ca.key -out {name}-ca.pem -subj /CN={name} -days 2",
    )
    openssl(directory, f"req {key} -keyout {name}.key -out {name}.csr -subj /CN=node")
    openssl(
        directory,
        f"x509 -req -in {name}.csr -CA {name}-ca.pem -CAkey {name}-ca.key -CAcreateserial "
        f"-out {name}.pem -days 2",
    )


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    authority(directory, "ours")
    authority(directory, "theirs")
    return directory


def load(directory: Path, ca: str = "ours", own: str = "ours") -> PeerTls:
    return PeerTls.load(
        ca_file=str(directory / f"{ca}-ca.pem"),
        certificate_file=str(directory / f"{own}.pem"),
        key_file=str(directory / f"{own}.key"),
    )


def test_a_quorum_over_tls_elects_commits_and_survives_broken_connections(
    tmp_path: Path, certificates: Path
) -> None:
    with TcpCluster(tmp_path, tls=load(certificates)) as cluster:
        cluster.commit(5)
        cluster.break_connections(2)
        end = cluster.commit(5)
        cluster.wait_for_high_watermark(end)
        assert len({cluster.log_bytes(node_id, end) for node_id in cluster.nodes}) == 1


def test_nothing_is_readable_on_the_wire(certificates: Path) -> None:
    with listening() as proxy, Alone(1, tls=load(certificates)) as low:
        voters = [Voter(1, *proxy.getsockname()), Voter(2, "127.0.0.1", 1)]
        with Alone(2, voters, tls=load(certificates)) as high:
            high.poll(5)
            sock, _ = proxy.accept()
            first = sock.recv(65536)
            assert first.startswith(PEER_MAGIC)
            assert bytes(identity(2).cluster_id) not in first
            low.world.adopt(sock, first)  # With the whole of TLS's hello in memory already.

            def both() -> bool:
                low.poll()
                return low.told == [("connected", 2)] and high.told == [("connected", 1)]

            high.poll_until(both)
            high.world.put(1, VOTE)
            high.world.push()
            low.poll_until(lambda: (2, VOTE) in low.told)


def client(directory: Path, own: str | None, ca: str = "ours") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(str(directory / f"{ca}-ca.pem"))
    if own is not None:
        context.load_cert_chain(str(directory / f"{own}.pem"), str(directory / f"{own}.key"))
    return context


def say_hello(context: ssl.SSLContext, address: Address) -> bytes:
    """The challenge that a voter answers with; OSError if it does not."""
    with socket.create_connection(address, timeout=10) as raw:
        raw.sendall(PEER_MAGIC)
        with context.wrap_socket(raw) as sock:
            # TLS 1.3 lets a client believe that it is in until it hears otherwise.
            sock.sendall(frame(Connector(identity(3), SECRET, 1, b"n" * 32).begin()))
            if not (challenge := sock.recv(100)):
                raise ConnectionResetError
            return challenge


@pytest.mark.parametrize("own", [None, "theirs"], ids=["no certificate", "another CA's"])
def test_a_peer_without_our_certificate_is_refused_even_with_the_secret(
    certificates: Path, own: str | None, tmp_path: Path
) -> None:
    context = client(certificates, own)
    with TcpCluster(tmp_path, running=(1, 2), tls=load(certificates)) as cluster:
        cluster.commit()
        world = cluster.nodes[1].world
        with capture_logs() as logged:
            for _ in range(3):
                with pytest.raises(OSError):
                    say_hello(context, cluster.address(1))
            cluster.commit()
        assert world.counts["tls_failed"] == 3
        found = [each["reason"] for each in logged if each["event"] == "peer_refused"]
        assert found == ["tls_failed"]
        assert 3 not in world._live


def test_a_peer_with_a_certificate_still_needs_the_secret(certificates: Path) -> None:
    with Alone(1, tls=load(certificates)) as low:
        voters = [Voter(1, *low.address), Voter(2, "127.0.0.1", 1)]
        with Alone(2, voters, tls=load(certificates), secret=b"guessed") as high:

            def refused() -> bool:
                low.poll()
                return high.world.counts["refused_by_peer"] > 0

            high.poll_until(refused)
            assert low.world.counts["wrong_secret"] >= 1
            assert low.told == high.told == []


def test_a_connector_refuses_an_acceptor_without_our_certificate(certificates: Path) -> None:
    theirs = load(certificates, ca="ours", own="theirs")
    with Alone(1, tls=theirs) as low:
        voters = [Voter(1, *low.address), Voter(2, "127.0.0.1", 1)]
        with Alone(2, voters, tls=load(certificates)) as high:

            def refused() -> bool:
                low.poll()
                return high.world.counts["tls_failed"] > 0

            high.poll_until(refused)
            assert low.told == high.told == []


def test_plain_bytes_are_refused_where_tls_is_asked_for(certificates: Path) -> None:
    with Alone(1, tls=load(certificates)) as alone, RawPeer(alone.address, alone.poll) as peer:
        peer.send(PEER_MAGIC + frame(Connector(identity(3), SECRET, 1, b"n" * 32).begin()))
        alone.poll_until_counted("tls_failed")
        assert peer.is_closed()
        assert alone.told == []


def test_tls_is_refused_where_nobody_asked_for_it(certificates: Path) -> None:
    with Alone(1) as low:
        voters = [Voter(1, *low.address), Voter(2, "127.0.0.1", 1)]
        with Alone(2, voters, tls=load(certificates)) as high:

            def refused() -> bool:
                low.poll()
                return low.world.counts["bad_hello"] > 0

            high.poll_until(refused)
            assert low.told == high.told == []


def test_files_that_cannot_be_used_are_named(tmp_path: Path, certificates: Path) -> None:
    (tmp_path / "ours-ca.pem").write_text("nonsense")
    for directory in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ConfigError, match=r"ours-ca\.pem"):
            load(directory)
    with pytest.raises(ConfigError, match=r"theirs\.key"):
        PeerTls.load(
            ca_file=str(certificates / "ours-ca.pem"),
            certificate_file=str(certificates / "ours.pem"),
            key_file=str(certificates / "theirs.key"),
        )


def test_a_planted_bug_that_asks_for_no_certificate_is_caught(
    certificates: Path, tmp_path: Path
) -> None:
    tls = load(certificates)
    tls.accepting.verify_mode = ssl.CERT_NONE
    with TcpCluster(tmp_path, running=(1, 2), tls=tls) as cluster:
        # No OSError: the test above would fail.
        assert say_hello(client(certificates, None), cluster.address(1))
