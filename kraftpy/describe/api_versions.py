"""ApiVersions: what a listener serves, so that a client can choose what both speak. Pure.

A client that asks in a version that is not in the table is answered in version 0, with an error and
the versions of this API (KIP-511): in one of them it then asks for the rest.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from kraftpy.wire.apis import NO_THROTTLE, ApiTable, Request
from kraftpy.wire.headers import API_VERSIONS

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


class Features(NamedTuple):
    """What this node can do, as (lowest, highest) levels, and what the cluster has agreed on.

    `epoch` is the offset of the metadata that `finalized` was read from; -1 if there is none.
    """

    supported: Mapping[str, tuple[int, int]]
    finalized: Mapping[str, int]
    epoch: int


NO_FEATURES: Final = Features({}, {}, -1)


def api_versions(table: ApiTable, request: Request, features: Features = NO_FEATURES) -> bytearray:
    """The table, if the request is one that can be understood."""
    error_code = ErrorCode.none
    listed = table
    if request.message is None:
        error_code = ErrorCode.unsupported_version
        listed = {API_VERSIONS: table[API_VERSIONS]}
    elif not _is_named(request.message):
        error_code = ErrorCode.invalid_request
        listed = {}
    return request.response(
        {
            "error_code": error_code,
            "api_keys": [
                {"api_key": key, "min_version": low, "max_version": high}
                for key, (low, high) in sorted(listed.items())
            ],
            "throttle_time": NO_THROTTLE,
            **_feature_values(features, request.header.api_version),
        }
    )


def _is_named(asked: Any) -> bool:
    """KIP-511: a client that can say what it is must say it in these letters."""
    names = (
        getattr(asked, field, "none")
        for field in ("client_software_name", "client_software_version")
    )
    return all(_SOFTWARE.fullmatch(name) for name in names)


_FIRST_WITH_LEVEL_0: Final = 4  # Clients of older versions refuse a range that begins with 0.


def _feature_values(features: Features, version: int) -> dict[str, Any]:
    return {
        "supported_features": [
            {"name": name, "min_version": low, "max_version": high}
            for name, (low, high) in sorted(features.supported.items())
            if low > 0 or version >= _FIRST_WITH_LEVEL_0
        ],
        "finalized_features_epoch": features.epoch,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in sorted(features.finalized.items())
        ],
    }
