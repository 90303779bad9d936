"""A whole cluster as processes: controllers and brokers, started as users start them."""

import os
import socket
import sys

from bench.quorum_processes import ServerProcesses, free_ports

PROGRAM = "from kraftpy.cli.main import main; main()"
FIRST_BROKER = 101


class ClusterProcesses(ServerProcesses):
    """Controllers 1 to n, brokers 101 and on."""

    def __init__(self, directory: str, controllers: int, brokers: int, *more: str) -> None:
        self.controllers = range(1, controllers + 1)
        self.brokers = range(FIRST_BROKER, FIRST_BROKER + brokers)
        super().__init__(directory, range(0))
        self.node_ids = [*self.controllers, *self.brokers]  # type: ignore[assignment]
        self.ports = dict(zip(self.node_ids, free_ports(controllers + brokers), strict=True))
        self._more = more

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.ports[each]}" for each in self.brokers)

    def data_dir(self, node_id: int) -> str:
        return os.path.join(self.directory, f"node-{node_id}")

    def command(self, node_id: int) -> list[str]:
        common = (
            *("--node-id", str(node_id), "--data-dir", self.data_dir(node_id)),
            *("--log-format", "text", *self._more),
        )
        if node_id in self.controllers:
            voters = ",".join(f"{n}@127.0.0.1:{self.ports[n]}" for n in self.controllers)
            return [sys.executable, "-c", PROGRAM, "quorum", "--voters", voters, *common]
        controllers = ",".join(f"127.0.0.1:{self.ports[n]}" for n in self.controllers)
        listen = f"127.0.0.1:{self.ports[node_id]}"
        place = ("--controllers", controllers, "--listen", listen)
        return [sys.executable, "-c", PROGRAM, "broker", *place, *common]

    def is_listening(self, node_id: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.ports[node_id])) == 0

    def stop_in_order(self) -> dict[int, int]:
        """Brokers first: they ask the controllers to move what they lead."""
        return {**self.stop(*self.brokers), **self.stop(*self.controllers)}
