"""Whether a request of a broker comes from its current incarnation. Pure."""

from kio.schema.errors import ErrorCode

from kraftpy.metadata_log.image import Broker, ClusterImage
from kraftpy.quorum.control.decision import Refused
from kraftpy.types import BrokerId


def registered_broker(image: ClusterImage, broker_id: BrokerId) -> Broker:
    """The registration of that id, or Refused."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise Refused(ErrorCode.broker_id_not_registered, f"broker {broker_id} is not registered")
    return broker


def current_broker(image: ClusterImage, broker_id: BrokerId, broker_epoch: int) -> Broker:
    """The registration of that id if the epoch is its own, or Refused."""
    broker = registered_broker(image, broker_id)
    if broker.broker_epoch != broker_epoch:
        raise Refused(
            ErrorCode.stale_broker_epoch,
            f"broker {broker_id} has epoch {broker.broker_epoch}, the request says {broker_epoch}",
        )
    return broker
