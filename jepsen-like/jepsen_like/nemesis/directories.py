"""What a restart may find in a node's directory: nothing, or other bits than were written."""

import asyncio
import os
import shutil
from typing import Any, Final

from jepsen_like.client import requests
from jepsen_like.client.kafka import ELECT_LEADERS, Definite, Indefinite
from jepsen_like.nemesis.base import Fault, Made, NotNow, Situation
from jepsen_like.nemesis.processes import start, until_whole
from jepsen_like.workloads.base import split_partition

_METADATA_LOG: Final = "__cluster_metadata-0"
_ROTTEN: Final = (".log", ".index", ".timeindex", ".snapshot", ".checkpoint")
_CAUGHT_UP_S: Final = 12.0
_LEADS_S: Final = 2.0


async def wipe(situation: Situation, targets: list[str]) -> Fault:
    """One node comes back with an empty directory. A broker fetches all again. A voter must be
    refused by the others, since it has forgotten whom it voted for; it gets its directory back."""
    name = targets[0]
    cluster = situation.cluster
    node = cluster.nodes[name]
    is_broker = not node.is_controller
    if is_broker and not situation.brokers_are_whole():
        raise NotNow("the other brokers do not have all")
    await asyncio.to_thread(cluster.kill, name)
    kept = node.data_dir + ".kept"
    shutil.rmtree(kept, ignore_errors=True)
    os.rename(node.data_dir, kept)
    node.may_exit = True  # It may refuse to run.
    cluster.start(name)

    async def heal() -> None:
        if is_broker:
            shutil.rmtree(kept, ignore_errors=True)
            await start(situation, [name])
            await until_whole(situation)
            return
        await asyncio.to_thread(cluster.kill, name)
        shutil.rmtree(node.data_dir, ignore_errors=True)
        os.rename(kept, node.data_dir)
        await start(situation, [name])

    return Fault("wipe", {"targets": [name]}, heal)


async def bit_rot(situation: Situation, targets: list[str]) -> Fault:
    """Bits flip in the files of one node that is down. Nobody may ever be given what they make of
    a record; what was acknowledged is on the other nodes."""
    if situation.cluster.nodes[targets[0]].is_controller:
        return await _rotten_controller(situation, targets[0])
    return await _rotten_broker(situation, targets[0])


async def _rotten_controller(situation: Situation, name: str) -> Fault:
    """It must notice, and may refuse to run. Then the bit is put right, and nothing else: a voter
    that went back to an older state would break its word."""
    cluster = situation.cluster
    node = cluster.nodes[name]
    if situation.damaged:
        raise NotNow("another controller's files have rotted")
    await asyncio.to_thread(cluster.kill, name)
    hurt = _flip_bit(situation, _controller_files(node.data_dir), node.data_dir)
    node.may_exit = hurt is not None
    cluster.start(name)
    if hurt is None:
        raise NotNow("there is no file to hurt yet")
    situation.damaged.add(name)

    async def heal() -> None:
        # Bits that nobody has read yet would still be wrong when the audit comes.
        await asyncio.to_thread(cluster.kill, name)
        _flip_back(node.data_dir, hurt)
        situation.damaged.discard(name)
        await start(situation, [name])

    return Fault("bit-rot", {"targets": [name], **hurt}, heal)


async def _rotten_broker(situation: Situation, name: str) -> Fault:
    """It was stopped in order or killed; comes back, catches up, and is made to lead what is
    rotten, if it has not noticed by then. It may refuse to run on rotten metadata, and on nothing
    else. In the end an operator takes the rotten log away."""
    if not situation.brokers_are_whole():
        raise NotNow("the other brokers do not have all")
    cluster, rng = situation.cluster, situation.rng
    node = cluster.nodes[name]
    orderly = rng.random() < 0.5
    await asyncio.to_thread(cluster.stop if orderly else cluster.kill, name)
    hurt = _flip_bit(situation, _broker_files(situation, name), node.data_dir)
    log = "" if hurt is None else hurt["file"].partition(os.sep)[0]
    node.may_exit = log == _METADATA_LOG
    cluster.start(name)
    if hurt is None:
        raise NotNow("there is no file to hurt yet")

    async def heal() -> None:
        if log != _METADATA_LOG:
            await start(situation, [name])
            await until_whole(situation, _CAUGHT_UP_S)
            await _elect(situation, log)
            await asyncio.sleep(_LEADS_S)
        await asyncio.to_thread(cluster.kill, name)
        shutil.rmtree(os.path.join(node.data_dir, log), ignore_errors=True)
        await start(situation, [name])
        await until_whole(situation)

    return Fault("bit-rot", {"targets": [name], "orderly": orderly, **hurt}, heal)


async def _elect(situation: Situation, log: str) -> None:
    """Whoever comes first among its replicas leads, if it is in sync."""
    topic, index = split_partition(log)
    try:
        await situation.admin.ask_any(ELECT_LEADERS, requests.elect_leader(topic, index, 5000))
    except (Definite, Indefinite):
        return  # Then somebody else leads, and nothing is the matter.


def _files(directory: str) -> list[str]:
    found = [
        os.path.join(root, name)
        for root, _, names in sorted(os.walk(directory))
        for name in sorted(names)
    ]
    return [path for path in found if os.path.getsize(path) > 64]


def _controller_files(directory: str) -> list[str]:
    return [
        path
        for path in _files(directory)
        if path.endswith((".log", ".checkpoint"))
        or os.path.basename(path).startswith("quorum-state")
    ]


def _broker_files(situation: Situation, name: str) -> list[str]:
    """Those of the logs that it should lead, if there are any."""
    directory = situation.cluster.nodes[name].data_dir
    files = [path for path in _files(directory) if path.endswith(_ROTTEN)]
    first = {key for key, replicas in situation.seen.replicas.items() if replicas[:1] == (name,)}
    led = [path for path in files if os.path.basename(os.path.dirname(path)) in first]
    return led if led and situation.rng.random() < 0.7 else files


def _flip_bit(situation: Situation, files: list[str], directory: str) -> dict[str, Any] | None:
    rng = situation.rng
    if not files:
        return None
    path = rng.choice(files)
    position = rng.randrange(os.path.getsize(path))
    mask = 1 << rng.randrange(8)
    with open(path, "r+b") as file:
        file.seek(position)
        rotten = file.read(1)[0] ^ mask
        file.seek(position)
        file.write(bytes([rotten]))
    file_name = os.path.relpath(path, directory)
    return {"file": file_name, "position": position, "mask": mask, "rotten": rotten}


def _flip_back(directory: str, hurt: dict[str, Any]) -> None:
    """Unless the node itself has made the file, or that place of it, anew."""
    path = os.path.join(directory, hurt["file"])
    if not os.path.exists(path):
        return
    with open(path, "r+b") as file:
        file.seek(hurt["position"])
        if file.read(1) == bytes([hurt["rotten"]]):
            file.seek(hurt["position"])
            file.write(bytes([hurt["rotten"] ^ hurt["mask"]]))


DIRECTORY_FAULTS = (
    Made("wipe", wipe, ("broker", "controller")),
    Made("bit-rot", bit_rot, ("broker", "controller")),
)
