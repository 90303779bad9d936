"""A controller, as its admin listener sees it."""

from collections.abc import Mapping, Sequence
from typing import Any

from kraftpy.metadata_log.image import ClusterImage
from kraftpy.network.places import Place
from kraftpy.quorum.node import QuorumNode
from kraftpy.types import uuid_text


class ControllerSource:
    """A controller."""

    role = "controller"

    def __init__(self, node: QuorumNode) -> None:
        self._node = node
        self.node_id = node.config.node_id
        self.cluster_id = uuid_text(node.identity.cluster_id)
        self.metadata_dir = node.config.metadata_dir
        own = node.config.own_voter
        others = [voter for voter in node.config.voters if voter.node_id != own.node_id]
        self.controllers: Sequence[Place] = [
            Place(node.config.host, node.server.port),
            *(Place(voter.host, voter.port) for voter in others),
        ]

    @property
    def image(self) -> ClusterImage:
        return self._node.image

    def state(self) -> str:
        state = self._node.consensus.state()
        if state.leader_id == self.node_id:
            return "active"
        return "standby" if self.is_ready() else "electing"

    def is_ready(self) -> bool:
        """Whether the quorum has a leader that this node hears of."""
        state = self._node.consensus.state()
        return state.leader_id is not None and state.hears_leader

    def numbers(self) -> Mapping[str, float]:
        state = self._node.consensus.state()
        return {
            "kafka_controller_kafkacontroller_activecontrollercount": float(
                state.leader_id == self.node_id
            ),
            "kafka_server_raft_metrics_current_epoch": state.epoch,
            "kafka_server_raft_metrics_high_watermark": state.high_watermark,
            "kafka_server_raft_metrics_log_end_offset": state.log_end_offset,
            "kafka_server_raft_metrics_current_leader": (
                -1 if state.leader_id is None else state.leader_id
            ),
            "kraftpy_metadata_log_start_offset": state.log_start_offset,
        }

    def requests(self) -> Mapping[str, int]:
        return {}

    def details(self) -> Mapping[str, Any]:
        state = self._node.consensus.state()
        return {
            "leader_id": state.leader_id,
            "epoch": state.epoch,
            "high_watermark": state.high_watermark,
            "log_start_offset": state.log_start_offset,
            "log_end_offset": state.log_end_offset,
        }
