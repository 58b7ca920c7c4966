"""Everyone who listens gets every message once, in order, or knows that it did not."""

import asyncio
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.errors import Unavailable
from tally.kit.clock import ManualClock
from tally.kit.hub import MAX_QUEUED_BYTES, PING, Hub, StreamSubscription
from tally.kit.metrics import Metrics


def hub_of(clock: ManualClock | None = None, metrics: Metrics | None = None, **options: Any) -> Hub:
    return Hub(clock or ManualClock(), metrics or Metrics(), **options)


async def events_of(subscription: StreamSubscription) -> list[dict[str, str]]:
    """What waits for the client now, taken apart as a browser would."""
    return parse((await subscription.next()).decode())


def parse(text: str) -> list[dict[str, str]]:
    return [
        dict(line.split(": ", 1) for line in event.split("\n"))
        for event in text.split("\n\n")
        if event
    ]


async def test_a_message_goes_to_all_who_listen_to_its_topic() -> None:
    hub = hub_of()
    one, other, elsewhere = (
        hub.subscribe("match:1"),
        hub.subscribe("match:1"),
        hub.subscribe("match:2"),
    )
    hub.publish("match:1", "display", {"runs": 4})
    hub.publish("match:2", "display", {"runs": 6})
    for subscription, runs in ((one, 4), (other, 4), (elsewhere, 6)):
        [event] = await events_of(subscription)
        assert event["event"] == "display"
        assert json.loads(event["data"]) == {"runs": runs}


async def test_a_message_is_serialised_once_whatever_the_number_of_clients() -> None:
    """All of them are given the very same bytes."""
    hub = hub_of()
    subscriptions = [hub.subscribe("board") for _ in range(100)]
    hub.publish("board", "update", {"rank": 1})
    assert len({id(subscription._chunks[0]) for subscription in subscriptions}) == 1


async def test_a_message_that_nobody_listens_to_is_not_serialised() -> None:
    """What cannot be serialised does no harm then, neither before the first client nor after the last."""
    hub = hub_of()
    hub.publish("board", "update", object())
    subscription = hub.subscribe("board")
    hub.unsubscribe("board", subscription)
    hub.publish("board", "update", object())
    hub.subscribe("board")
    with pytest.raises(TypeError):
        hub.publish("board", "update", object())


async def test_a_client_that_does_not_keep_up_is_dropped_and_others_are_not(
    metrics: Metrics,
) -> None:
    hub = hub_of(metrics=metrics, queue_size=3)
    slow, quick = hub.subscribe("board"), hub.subscribe("board")
    dropped = False

    def drop() -> None:
        nonlocal dropped
        dropped = True

    slow.on_dropped = drop
    received = []
    for number in range(5):
        hub.publish("board", "update", number)
        received += await events_of(quick)
    assert dropped
    assert await slow.next() == b""
    assert [int(event["data"]) for event in received] == [0, 1, 2, 3, 4]
    assert metrics.registry.get_sample_value("tally_stream_clients_dropped_total") == 1
    assert metrics.registry.get_sample_value("tally_stream_clients") == 1


async def test_who_comes_back_gets_what_it_missed() -> None:
    """Also what was published while nobody listened at all."""
    hub = hub_of()
    first = hub.subscribe("board")
    hub.publish("board", "update", 1)
    [seen] = await events_of(first)
    hub.unsubscribe("board", first)
    hub.publish("board", "update", 2)
    hub.publish("board", "update", 3)
    again = hub.subscribe("board", seen["id"])
    assert not again.needs_snapshot
    assert [int(event["data"]) for event in await events_of(again)] == [2, 3]


@pytest.mark.parametrize(
    "last",
    [None, "", "abc", "1", "-1", "feedfacecafe-1", "é-1", "{origin}-x", "{origin}-" + "9" * 5000],
)
def test_an_id_that_says_nothing_here_needs_a_snapshot(last: str | None) -> None:
    """None, made up, or of another process."""
    hub = hub_of()
    hub.subscribe("board")
    hub.publish("board", "update", 1)
    assert hub.subscribe("board", last and last.replace("{origin}", hub._origin)).needs_snapshot


async def test_many_at_once_come_in_one_piece_and_drop_nobody_who_keeps_up() -> None:
    """More of them than a client may be behind; each is an event of its own, and made only where someone listens."""
    hub = hub_of(queue_size=2)
    listening = hub.subscribe("board")
    for start in (0, 100):
        hub.publish_all("board", "update", iter(range(start, start + 100)))
        assert [event["data"] for event in await events_of(listening)] == [
            str(number) for number in range(start, start + 100)
        ]
    unheard = iter([1])
    hub.publish_all("elsewhere", "update", unheard)
    assert next(unheard) == 1


async def test_a_client_that_does_not_read_is_dropped_for_bytes_too() -> None:
    """However few messages they are: it must not cost more memory than a limit and one message."""
    metrics = Metrics()
    hub = hub_of(metrics=metrics, queue_size=1_000)
    hub.subscribe("board")
    for _ in range(2):
        hub.publish("board", "update", "x" * (MAX_QUEUED_BYTES // 2))
    assert metrics.registry.get_sample_value("tally_stream_clients_dropped_total") == 0
    hub.publish("board", "update", "x")
    assert metrics.registry.get_sample_value("tally_stream_clients_dropped_total") == 1


async def test_who_missed_more_than_is_kept_needs_a_snapshot() -> None:
    hub = hub_of(history_size=2)
    first = hub.subscribe("board")
    for number in range(5):
        hub.publish("board", "update", number)
    seen = [event["id"] for event in await events_of(first)]
    needs = [hub.subscribe("board", last).needs_snapshot for last in seen]
    assert needs == [True, True, False, False, False]


async def test_a_topic_is_forgotten_some_time_after_the_last_one_left(clock: ManualClock) -> None:
    """Who comes back later may have missed something, and is told so."""
    hub = hub_of(clock, linger_seconds=30)
    first = hub.subscribe("board")
    hub.publish("board", "update", 1)
    [seen] = await events_of(first)
    hub.unsubscribe("board", first)
    await clock.advance(29)
    again = hub.subscribe("board", seen["id"])
    assert not again.needs_snapshot
    hub.unsubscribe("board", again)
    await clock.advance(30)
    assert hub.subscribe("board", seen["id"]).needs_snapshot


async def test_pings_keep_connections_alive_and_sweep_old_topics(clock: ManualClock) -> None:
    hub = hub_of(clock, ping_seconds=15, linger_seconds=20)
    staying, leaving = hub.subscribe("board"), hub.subscribe("old")
    hub.unsubscribe("old", leaving)
    running = asyncio.create_task(hub.run())
    await clock.until_sleeping()
    await clock.advance(30)
    running.cancel()
    assert await staying.next() == PING * 2
    assert set(hub._topics) == {"board"}


async def test_at_the_end_everyone_is_told_when_to_come_back() -> None:
    """After what was still waiting; each at another moment, so that they do not come all at once."""
    hub = hub_of(reconnect_ms=(500, 3000), rng=random.Random(7))
    subscriptions = [hub.subscribe("board") for _ in range(20)]
    hub.publish("board", "update", 1)
    hub.close()
    waits = set()
    for subscription in subscriptions:
        update, farewell = await events_of(subscription)
        assert update["event"] == "update"
        assert farewell["event"] == "reconnect"
        assert json.loads(farewell["data"]) == {"retryMs": int(farewell["retry"])}
        waits.add(int(farewell["retry"]))
        assert await subscription.next() == b""
    assert len(waits) > 10
    assert 500 <= min(waits) <= max(waits) <= 3000
    with pytest.raises(Unavailable, match="shutting down"):
        hub.subscribe("board")


def test_to_leave_twice_is_to_leave_once(metrics: Metrics) -> None:
    hub = hub_of(metrics=metrics)
    subscription = hub.subscribe("board")
    for _ in range(2):
        hub.unsubscribe("board", subscription)
    hub.unsubscribe("nowhere", subscription)
    assert metrics.registry.get_sample_value("tally_stream_clients") == 0


class Viewer:
    """A client as a browser is one: it leaves, returns with its last id, and reads when it likes."""

    def __init__(self, hub: Hub, published: list[int]) -> None:
        self.hub = hub
        self.published = published
        self.seen: list[int] = []
        self.last: str | None = None
        self.subscription: StreamSubscription | None = None

    def come(self) -> None:
        if self.subscription is None:
            self.subscription = self.hub.subscribe("board", self.last)
            if self.subscription.needs_snapshot:
                self.seen = list(self.published)
                self.last = self.subscription.position

    def leave(self) -> None:
        if self.subscription is not None:
            self.hub.unsubscribe("board", self.subscription)
            self.subscription = None

    async def read(self) -> None:
        if self.subscription is not None and self.subscription._chunks:
            for event in await events_of(self.subscription):
                self.seen.append(int(event["data"]))
                self.last = event["id"]


steps = st.lists(
    st.sampled_from(["publish", "read", "leave", "come", "elsewhere", "wait"]), max_size=60
)


@given(steps, st.integers(1, 8), st.integers(1, 8))
async def test_nothing_is_lost_unnoticed_doubled_or_out_of_order(
    steps: list[str], queue: int, history: int
) -> None:
    """Whatever happens, a client has each message once and in order, or asked for a snapshot."""
    clock = ManualClock()
    hub = hub_of(clock, queue_size=queue, history_size=history, linger_seconds=30)
    published: list[int] = []
    viewer = Viewer(hub, published)
    for step in steps:
        if step == "publish":
            hub.publish("board", "update", len(published))
            published.append(len(published))
        elif step == "elsewhere":
            hub.subscribe("other")
            hub.publish("other", "update", -1)
        elif step == "wait":
            await clock.advance(20)
        elif step == "read":
            await viewer.read()
        else:
            getattr(viewer, step)()
        assert viewer.seen == published[: len(viewer.seen)]
    viewer.leave()
    viewer.come()
    await viewer.read()
    assert viewer.seen == published
