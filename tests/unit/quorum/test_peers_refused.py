"""What a voter hears when others will not talk to it, and when a connection is worth a line."""

from structlog.testing import capture_logs

from kraftpy.quorum.voters import Voter
from tests.unit.quorum.raw_peer import Alone, RawPeer, identity
from tests.unit.quorum.test_peers_world import refusals


def test_a_voter_that_lost_its_directory_hears_why_nobody_talks_to_it() -> None:
    with Alone(1) as wiped:
        voters = [Voter(1, *wiped.address), Voter(2, "127.0.0.1", 1)]
        with (
            Alone(2, voters, accepts=lambda _id, _directory: False) as high,
            capture_logs() as logged,
        ):

            def refused_thrice() -> bool:
                wiped.poll()
                return wiped.world.counts["refused_by_peer"] >= 3

            high.poll_until(refused_thrice)
            assert sorted(refusals(logged)) == ["other_directory", "refused_by_peer"]
            (said,) = [each for each in logged if each.get("reason") == "refused_by_peer"]
            assert "node 2 refuses us: 'other_directory'; it knows this voter with" in said["why"]
            # It comes again and again, and the log does not grow with it.
            assert {each["event"] for each in logged} == {"peer_refused"}
            assert high.told == []


def test_a_connection_that_lasts_is_told_of_and_so_is_its_end() -> None:
    with Alone() as alone, capture_logs() as logged:
        with RawPeer(alone.address, alone.poll) as peer:
            peer.join(identity(3), 1)
            alone.poll(3)
            assert logged == []
            alone.clock.added_ms += 1000
            alone.poll(3)
        alone.poll_until(lambda: ("disconnected", 3) in alone.told)
        assert [each["event"] for each in logged] == ["peer_connected", "peer_disconnected"]
