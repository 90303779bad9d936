"""What a broker may list, and that it can read what it lists."""

from kraftpy.broker.api_table import KNOWN, advertised, served
from kraftpy.wire.apis import request_type, response_type
from kraftpy.wire.headers import API_VERSIONS
from kraftpy.wire.produce import PRODUCE

JOIN_GROUP = 11


def test_every_version_that_is_known_can_be_read_and_answered() -> None:
    for key, (low, high) in KNOWN.items():
        for version in range(low, high + 1):
            assert request_type(key, version)
            assert response_type(key, version)


def test_only_what_is_served_is_listed() -> None:
    assert list(served([3, 1])) == [1, 3, API_VERSIONS]


def test_old_clients_find_the_versions_that_they_look_for() -> None:
    table = served([PRODUCE, JOIN_GROUP])
    assert table[PRODUCE] == (3, 13)
    assert advertised(table)[PRODUCE] == (0, 13)
    assert advertised(table)[JOIN_GROUP] == (0, 9)
    assert advertised(table).keys() == table.keys()
