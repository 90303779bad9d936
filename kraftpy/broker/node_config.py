"""What a broker is started with, made of the settings, or refused with one line."""

import os
from dataclasses import dataclass
from typing import Final

from kraftpy.broker.fetcher import FetcherSettings
from kraftpy.broker.lifecycle import LifecycleTiming
from kraftpy.broker.server_limits import BrokerLimits
from kraftpy.config import METADATA_PARTITION, Settings
from kraftpy.config_broker import RACK_AWARE_SELECTOR
from kraftpy.errors import ConfigError
from kraftpy.limits import CONTROLLER_PLACES_MAX
from kraftpy.network.places import Place, parse_place

DEFAULT_NODE_ID: Final = 101
DEFAULT_PORT: Final = 9092
LISTENER: Final = "PLAINTEXT"
_ANY_HOST: Final = "0.0.0.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Everything that a broker needs to know."""

    broker_id: int
    controllers: tuple[Place, ...]
    listen: Place
    advertised: Place | None  # None: where it listens.
    log_dirs: tuple[str, ...]
    metadata_dir: str
    rack: str | None
    reads_from_followers: bool
    limits: BrokerLimits
    lifecycle: LifecycleTiming
    fetchers: FetcherSettings
    settings: Settings

    @staticmethod
    def of(settings: Settings) -> "BrokerConfig":
        """ConfigError names what is missing or does not fit together."""
        broker_id = DEFAULT_NODE_ID if settings.node_id is None else settings.node_id
        data_dir = os.path.abspath(
            os.path.expanduser(settings.data_dir or f"kraftpy-data/broker-{broker_id}")
        )
        listen = Place("127.0.0.1", DEFAULT_PORT)
        if settings.listeners:
            listen = place("listeners", settings.listeners)
        advertised = None
        if settings.advertised_listeners:
            advertised = place("advertised.listeners", settings.advertised_listeners)
        elif listen.host in (_ANY_HOST, "::"):
            raise ConfigError(
                f"advertised.listeners is needed to listen at {listen}, which is no address to "
                "connect to"
            )
        return BrokerConfig(
            broker_id=broker_id,
            controllers=_controllers(settings.controller_quorum_bootstrap_servers),
            listen=listen,
            advertised=advertised,
            log_dirs=_log_dirs(settings.log_dirs) or (data_dir,),
            metadata_dir=os.path.join(settings.metadata_log_dir or data_dir, METADATA_PARTITION),
            rack=settings.broker_rack or None,
            reads_from_followers=settings.replica_selector_class == RACK_AWARE_SELECTOR,
            limits=BrokerLimits.of(settings),
            lifecycle=LifecycleTiming.of(settings),
            fetchers=FetcherSettings(
                wait_ms_max=settings.replica_fetch_wait_max_ms,
                bytes_min=settings.replica_fetch_min_bytes,
                bytes_max=settings.replica_fetch_max_bytes,
                response_bytes_max=settings.replica_fetch_response_max_bytes,
            ),
            settings=settings,
        )


def place(key: str, text: str) -> Place:
    """HOST:PORT, with or without the listener's name before it; no host is any."""
    named = text.strip().removeprefix(f"{LISTENER}://")
    example = f"127.0.0.1:{DEFAULT_PORT}"
    return parse_place(_ANY_HOST + named if named[:1] == ":" else named, key, example, port_min=0)


def _controllers(text: str) -> tuple[Place, ...]:
    key = "controller.quorum.bootstrap.servers"
    places = tuple(place(key, each) for each in text.split(",") if each.strip())
    if not 0 < len(places) <= CONTROLLER_PLACES_MAX:
        raise ConfigError(f"{key}: 1 to {CONTROLLER_PLACES_MAX} addresses, not {len(places)}")
    return places


def _log_dirs(text: str) -> tuple[str, ...]:
    names = (each.strip() for each in text.split(","))
    return tuple(os.path.abspath(os.path.expanduser(each)) for each in names if each)
