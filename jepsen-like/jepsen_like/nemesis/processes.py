"""Kill, pause, and what a restart may find: no power; disks that fail and clocks that are wrong."""

import asyncio
import signal
from typing import Any

from jepsen_like.nemesis.base import Fault, Made, NotNow, Situation, nothing

_RUNNING_S = 60.0
# The session of the earlier life must end before an ISR without it can be seen.
_SESSION_S = 6.0


async def start(situation: Situation, targets: list[str]) -> None:
    for name in targets:
        situation.cluster.nodes[name].may_exit = False
        situation.cluster.start(name)


async def kill(situation: Situation, targets: list[str]) -> Fault:
    killed = [await asyncio.to_thread(situation.cluster.kill, name) for name in targets]
    if not any(killed):
        raise NotNow("none of them runs")

    async def heal() -> None:
        await start(situation, targets)

    return Fault("kill", {"targets": targets}, heal)


async def pause(situation: Situation, targets: list[str]) -> Fault:
    stopped = [name for name in targets if situation.cluster.signal(name, signal.SIGSTOP)]
    if not stopped:
        raise NotNow("none of them runs")

    async def heal() -> None:
        for name in stopped:
            situation.cluster.signal(name, signal.SIGCONT)

    return Fault("pause", {"targets": stopped}, heal)


# -- power ---------------------------------------------------------------------------------------


def power_targets(situation: Situation) -> list[str]:
    """Any number of controllers, since they sync what they acknowledge; or one broker, and only
    while all others have all: Kafka promises replication, not fsync."""
    rng = situation.rng
    if rng.random() < 0.5 and situation.brokers_are_whole():
        return [rng.choice(situation.brokers)]
    count = rng.randint(1, len(situation.controllers))
    return rng.sample(situation.controllers, count)


class LosePower:
    """Take back what was not synced, then restart."""

    def __init__(self, name: str, losses: tuple[str, ...], *, quorum: bool = False) -> None:
        """With `quorum` all controllers are hit, at once."""
        self.name = name
        self._losses = losses
        self._quorum = quorum

    async def begin(self, situation: Situation) -> Fault:
        _need_test_nodes(situation)
        targets = situation.controllers if self._quorum else power_targets(situation)
        loss = situation.rng.choice(self._losses)
        seed = situation.rng.getrandbits(32)
        lose = situation.cluster.lose_power
        done = await asyncio.gather(
            *(asyncio.to_thread(lose, name, loss, seed) for name in targets)
        )
        lost = [name for name, was_lost in zip(targets, done, strict=True) if was_lost]

        async def heal() -> None:
            await start(situation, targets)
            if targets[0] in situation.brokers:
                await until_whole(situation)

        if not lost:
            await heal()
            raise NotNow("no test node answered")
        return Fault(self.name, {"targets": lost, "loss": loss, "seed": seed}, heal)


async def until_whole(situation: Situation, timeout_s: float = _RUNNING_S) -> bool:
    """Wait until every partition has all its replicas in sync again."""
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.sleep(_SESSION_S)
            while not situation.brokers_are_whole():
                await asyncio.sleep(0.3)
    except TimeoutError:
        return False
    return True


def _need_test_nodes(situation: Situation) -> None:
    if not situation.cluster.has_faulty_nodes:
        raise NotNow("only test nodes have a disk and a clock that can be put wrong")


# -- disks and clocks ----------------------------------------------------------------------------


class Disk:
    """A disk is full, fails or is slow for a while. A node that stops because of it may do so."""

    def __init__(self, name: str, faults: dict[str, Any], may_exit: bool) -> None:
        self.name = name
        self._faults = faults
        self._may_exit = may_exit

    async def begin(self, situation: Situation) -> Fault:
        _need_test_nodes(situation)
        cluster = situation.cluster
        is_broker = situation.rng.random() < 0.5 and situation.brokers_are_whole()
        name = situation.rng.choice(situation.brokers if is_broker else situation.controllers)
        node = cluster.nodes[name]
        node.may_exit = self._may_exit
        try:
            await asyncio.to_thread(cluster.ask_faults, name, do="disk", **self._faults)
        except OSError as error:
            node.may_exit = False
            raise NotNow(f"{name}: {error}") from None

        async def heal() -> None:
            if node.is_running:
                try:
                    await asyncio.to_thread(cluster.ask_faults, name, do="disk")
                except OSError:
                    await asyncio.sleep(0.5)  # It is about to end, or has.
            cluster.look()
            # A directory that has failed stays offline in its process: only a restart heals it.
            if self._may_exit:
                await asyncio.to_thread(cluster.kill, name)
            await start(situation, [name])
            if is_broker and self._may_exit:
                await until_whole(situation)

        return Fault(self.name, {"targets": [name], **self._faults}, heal)


class ClockNemesis:
    """Clocks jump by up to minutes, or run up to a twentieth too fast or slow."""

    def __init__(self, name: str, *, drift: bool) -> None:
        self.name = name
        self._drift = drift

    async def begin(self, situation: Situation) -> Fault:
        _need_test_nodes(situation)
        rng = situation.rng
        targets = rng.sample(situation.all_nodes, rng.randint(1, len(situation.all_nodes)))
        skews = {}
        for name in targets:
            offset_ms = int(rng.choice((-1, 1)) * 10 ** rng.uniform(2, 5.5))
            rate = rng.uniform(0.95, 1.05)
            skews[name] = (0, rate) if self._drift else (offset_ms, 1.0)
            situation.cluster.skew(name, *skews[name])

        async def heal() -> None:
            for name in targets:
                situation.cluster.skew(name, 0, 1.0)

        return Fault(self.name, {"targets": targets, "skews": skews}, heal)


ANY_ONE = ("one", "one", "active-controller", "partition-leader")
ANY = (*ANY_ONE, "minority", "majority")

PROCESS_FAULTS = (
    Made("kill", kill, ANY),
    Made("kill-all", kill, ("all",)),
    Made("pause", pause, ANY),
    LosePower("lost-fsync", ("lost",)),
    LosePower("torn-fsync", ("prefix", "torn")),
    LosePower("power-off", ("lost", "prefix", "torn"), quorum=True),
    Disk("disk-full", {"full": True}, may_exit=True),
    Disk("disk-error", {"io_error": True}, may_exit=True),
    Disk("fsync-error", {"syncs_to_fail": 1}, may_exit=True),
    Disk("slow-disk", {"sync_delay_ms": 150}, may_exit=False),
    ClockNemesis("clock", drift=False),
    ClockNemesis("drift", drift=True),
)
__all__ = ["PROCESS_FAULTS", "kill", "nothing", "pause"]
