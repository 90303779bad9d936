"""Voters on real sockets: they find each other, and go on when connections do not."""

from pathlib import Path

from tests.unit.quorum.tcp_cluster import TcpCluster


def test_three_voters_elect_and_commit_over_tcp(tmp_path: Path) -> None:
    with TcpCluster(tmp_path) as cluster:
        end = cluster.commit(20)
        cluster.wait_for_high_watermark(end)
        logs = {cluster.log_bytes(node_id, end) for node_id in cluster.nodes}
        assert len(logs) == 1
