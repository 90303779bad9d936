"""Every nemesis by name, and those that choose among several."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from jepsen_like.nemesis.admin import ADMIN_FAULTS
from jepsen_like.nemesis.base import Fault, Made, Nemesis, NotNow, Situation
from jepsen_like.nemesis.directories import DIRECTORY_FAULTS
from jepsen_like.nemesis.membership import Membership
from jepsen_like.nemesis.network import NETWORK_FAULTS, apply, isolate
from jepsen_like.nemesis.processes import PROCESS_FAULTS, kill, pause

NONE: Final = "none"


class LeaderOfTheMoment:
    """Whoever leads just now, of the quorum or of a partition, is killed, stopped or cut off."""

    name = "leader"

    async def begin(self, situation: Situation) -> Fault:
        rng = situation.rng
        targets = situation.choose(rng.choice(("active-controller", "partition-leader")))
        if not targets:
            raise NotNow("nobody is known to lead")
        match rng.choice(("kill", "pause", "isolate")):
            case "kill":
                fault = await kill(situation, targets)
            case "pause":
                fault = await pause(situation, targets)
            case _:
                grudge = isolate([*situation.all_nodes, "client"], targets)
                apply(situation, grudge, {"hold": True})

                async def heal() -> None:
                    apply(situation, grudge, {})

                fault = Fault("isolate", {"targets": targets}, heal)
        return replace(fault, details={**fault.details, "nemesis": self.name})


_ALL: Final[Sequence[Nemesis]] = (
    *PROCESS_FAULTS,
    *DIRECTORY_FAULTS,
    *NETWORK_FAULTS,
    *ADMIN_FAULTS,
    Membership(),
    LeaderOfTheMoment(),
)
NEMESES: Final[Mapping[str, Nemesis]] = {each.name: each for each in _ALL}


def parse(text: str) -> list[str]:
    """The names of "kill,partition"; ValueError names one that is unknown."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name != NONE and name not in NEMESES:
            known = ", ".join([NONE, *sorted(NEMESES)])
            raise ValueError(f"no such nemesis: {name} (there are {known})")
    return [name for name in names if name != NONE]


__all__ = ["NEMESES", "NONE", "Made", "parse"]
