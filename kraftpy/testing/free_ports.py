"""What the nodes of a test cluster are given before they start: ports that nobody uses, an id."""

import os
import random
import socket
from typing import Final

from kraftpy.testing.nursery import ClusterFailed
from kraftpy.types import random_uuid, uuid_text

_HOST: Final = "127.0.0.1"
# Below those that systems give to outgoing connections, so that a killed node's port stays free.
_PORTS: Final = range(20_000, 32_000)
_PORT_ATTEMPTS: Final = 1000


def free_ports(count: int) -> list[int]:
    found: list[int] = []
    rng = random.Random()
    for _ in range(_PORT_ATTEMPTS):
        if len(found) == count:
            return found
        port = rng.choice(_PORTS)
        if port not in found and is_free(port):
            found.append(port)
    raise ClusterFailed(f"no free ports among {_PORTS.start} to {_PORTS.stop}")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
        return True


def cluster_id(directory: str) -> str:
    """The same for as long as the directory is."""
    path = os.path.join(directory, "cluster.id")
    try:
        with open(path) as file:
            return file.read()
    except FileNotFoundError:
        made = uuid_text(random_uuid(random.Random()))
    with open(path, "w") as file:
        file.write(made)
    return made
