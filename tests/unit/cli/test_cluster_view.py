"""What the live table shows, from what nodes said."""

from dataclasses import replace

from kraftpy.cli.cluster_view import (
    NO_LEADER,
    PartitionSight,
    Sight,
    changes,
    most_worrying,
    node_rows,
)

WHOLE = PartitionSight(101, (101, 102), (101, 102))
SHRUNK = PartitionSight(102, (101, 102), (102,))
LOST = PartitionSight(NO_LEADER, (101,), (101,))
FIRST = Sight(
    at_ms=1000,
    processes={1: "running", 101: "running", 102: "running"},
    active_controller=1,
    epoch=3,
    voter_lags={1: 0},
    brokers=(101, 102),
    partitions={("t", 0): WHOLE, ("t", 1): WHOLE},
    end_offsets={("t", 0): 100, ("t", 1): 0},
)


def test_rows_count_what_each_broker_leads_and_takes() -> None:
    now = replace(FIRST, at_ms=1500, end_offsets={("t", 0): 150, ("t", 1): 0})
    controller, leader, follower = node_rows((1,), (101, 102), FIRST, now)
    assert (controller.state, controller.lag, controller.led) == ("active", 0, None)
    assert (leader.led, leader.replicas, leader.records_per_s) == (2, 2, 100.0)
    assert (follower.led, follower.replicas, follower.records_per_s) == (0, 2, 0.0)


def test_a_broker_that_runs_and_may_not_lead_is_fenced() -> None:
    now = replace(FIRST, brokers=(102,), partitions={("t", 0): SHRUNK})
    _, fenced, leader = node_rows((1,), (101, 102), None, now)
    assert (fenced.state, fenced.led) == ("fenced", 0)
    assert (leader.state, leader.under_replicated) == ("running", 1)


def test_a_paused_controller_is_not_called_active() -> None:
    now = replace(FIRST, processes={**FIRST.processes, 1: "paused"})
    assert node_rows((1,), (101,), None, now)[0].state == "paused"


def test_changes_are_told_in_words_and_once() -> None:
    now = replace(
        FIRST,
        processes={**FIRST.processes, 101: "killed"},
        brokers=(102,),
        partitions={("t", 0): SHRUNK, ("t", 1): WHOLE},
    )
    assert list(changes(FIRST, now)) == [
        "node 101 is killed",
        "broker 101 is fenced",
        "t-0: leader 101 -> 102",
        "t-0: in sync [101, 102] -> [102]",
    ]
    assert list(changes(now, now)) == []
    assert list(changes(None, now)) == []


def test_a_look_that_found_nobody_to_ask_is_not_news() -> None:
    blind = replace(FIRST, active_controller=None, brokers=(), partitions={})
    assert list(changes(FIRST, blind)) == []


def test_the_worst_partitions_come_first() -> None:
    partitions = {("a", 0): WHOLE, ("b", 0): SHRUNK, ("c", 0): LOST}
    assert [name for (name, _), _ in most_worrying(partitions, 2)] == ["c", "b"]
    partitions = {("__consumer_offsets", 0): SHRUNK, ("z", 0): SHRUNK, ("a", 0): WHOLE}
    names = [name for (name, _), _ in most_worrying(partitions, 3)]
    assert names == ["z", "__consumer_offsets", "a"]
