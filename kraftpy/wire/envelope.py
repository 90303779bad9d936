"""Requests that a broker passes on to the active controller, and as whom (KIP-590). Pure.

The envelope holds the client's request as it came, header and all; the answer holds the response in
the same way, so the broker need not understand either. Beside it travels who the client is, in
Kafka's form: a version, then type and name; and the bytes of its address.
"""

import ipaddress
import struct
from typing import Final, NamedTuple

from kio.schema.default_principal_data.v0.data import DefaultPrincipalData

from kraftpy.errors import WireError
from kraftpy.wire import apis
from kraftpy.wire.codec import decode, encode

# Kafka's: what a broker may ask for in somebody else's name.
FORWARDABLE: Final = frozenset(
    {
        apis.CREATE_TOPICS,
        apis.DELETE_TOPICS,
        apis.CREATE_ACLS,
        apis.DELETE_ACLS,
        apis.ALTER_CONFIGS,
        apis.CREATE_PARTITIONS,
        apis.ELECT_LEADERS,
        apis.INCREMENTAL_ALTER_CONFIGS,
        apis.ALTER_PARTITION_REASSIGNMENTS,
        apis.LIST_PARTITION_REASSIGNMENTS,
        apis.ALTER_CLIENT_QUOTAS,
        apis.ALTER_USER_SCRAM_CREDENTIALS,
        apis.DESCRIBE_QUORUM,
        apis.UPDATE_FEATURES,
        apis.UNREGISTER_BROKER,
    }
)
_PRINCIPAL_VERSION: Final = struct.Struct(">h")
_VERSION: Final = 0


class Principal(NamedTuple):
    """Who somebody is, as an authorizer knows them."""

    principal_type: str
    name: str
    token_authenticated: bool = False


ANONYMOUS: Final = Principal("User", "ANONYMOUS")


def principal_bytes(principal: Principal) -> bytes:
    message = DefaultPrincipalData(
        type_=principal.principal_type,
        name=principal.name,
        token_authenticated=principal.token_authenticated,
    )
    return bytes(encode(message, _PRINCIPAL_VERSION.pack(_VERSION)))


def read_principal(data: bytes) -> Principal:
    """WireError if it is not what `principal_bytes` or Kafka makes."""
    if len(data) < _PRINCIPAL_VERSION.size:
        raise WireError("a principal without a version")
    (version,) = _PRINCIPAL_VERSION.unpack_from(data)
    if version != _VERSION:
        raise WireError(f"a principal of version {version}")
    found = decode(DefaultPrincipalData, data, _PRINCIPAL_VERSION.size)
    return Principal(found.type_, found.name, found.token_authenticated)


def address_bytes(address: str) -> bytes:
    """The address of a client, without its port, as four or sixteen bytes."""
    return ipaddress.ip_address(address).packed


def read_address(data: bytes) -> str:
    """WireError if it is no address."""
    try:
        return str(ipaddress.ip_address(data))
    except ValueError:
        raise WireError(f"a client's address of {len(data)} bytes") from None
