"""Sockets that speak Kafka's protocol: a server and a client, for controllers and brokers alike."""

from kraftpy.network.client import WireClient
from kraftpy.network.limits import ServerLimits
from kraftpy.network.loop import run
from kraftpy.network.server import WireServer

__all__ = ["ServerLimits", "WireClient", "WireServer", "run"]
