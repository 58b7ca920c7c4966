"""Every subscriber receives each message once and in order, or learns that it missed some."""

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


def make_hub(
    clock: ManualClock | None = None, metrics: Metrics | None = None, **options: Any
) -> Hub:
    return Hub(clock or ManualClock(), metrics or Metrics(), **options)


async def read_events(subscription: StreamSubscription) -> list[dict[str, str]]:
    """Return the queued events, parsed as a browser would."""
    return parse((await subscription.next()).decode())


def parse(text: str) -> list[dict[str, str]]:
    return [
        dict(line.split(": ", 1) for line in event.split("\n"))
        for event in text.split("\n\n")
        if event
    ]


async def test_a_message_reaches_all_subscribers_of_its_topic() -> None:
    hub = make_hub()
    one, other, elsewhere = (
        hub.subscribe("match:1"),
        hub.subscribe("match:1"),
        hub.subscribe("match:2"),
    )
    hub.publish("match:1", "display", {"runs": 4})
    hub.publish("match:2", "display", {"runs": 6})
    for subscription, runs in ((one, 4), (other, 4), (elsewhere, 6)):
        [event] = await read_events(subscription)
        assert event["event"] == "display"
        assert json.loads(event["data"]) == {"runs": runs}


async def test_a_message_is_serialised_once_for_all_clients() -> None:
    """All subscribers share the same bytes object."""
    hub = make_hub()
    subscriptions = [hub.subscribe("board") for _ in range(100)]
    hub.publish("board", "update", {"rank": 1})
    assert len({id(subscription._chunks[0]) for subscription in subscriptions}) == 1


async def test_a_message_without_subscribers_is_not_serialised() -> None:
    """An unserialisable message is harmless before the first and after the last subscriber."""
    hub = make_hub()
    hub.publish("board", "update", object())
    subscription = hub.subscribe("board")
    hub.unsubscribe("board", subscription)
    hub.publish("board", "update", object())
    hub.subscribe("board")
    with pytest.raises(TypeError):
        hub.publish("board", "update", object())


async def test_only_a_slow_client_is_dropped(
    metrics: Metrics,
) -> None:
    hub = make_hub(metrics=metrics, queue_size=3)
    slow, quick = hub.subscribe("board"), hub.subscribe("board")
    dropped = False

    def drop() -> None:
        nonlocal dropped
        dropped = True

    slow.on_dropped = drop
    received = []
    for number in range(5):
        hub.publish("board", "update", number)
        received += await read_events(quick)
    assert dropped
    assert await slow.next() == b""
    assert [int(event["data"]) for event in received] == [0, 1, 2, 3, 4]
    assert metrics.registry.get_sample_value("tally_stream_clients_dropped_total") == 1
    assert metrics.registry.get_sample_value("tally_stream_clients") == 1


async def test_a_reconnecting_client_receives_missed_messages() -> None:
    """This includes messages published while there were no subscribers."""
    hub = make_hub()
    first = hub.subscribe("board")
    hub.publish("board", "update", 1)
    [seen] = await read_events(first)
    hub.unsubscribe("board", first)
    hub.publish("board", "update", 2)
    hub.publish("board", "update", 3)
    again = hub.subscribe("board", seen["id"])
    assert not again.needs_snapshot
    assert [int(event["data"]) for event in await read_events(again)] == [2, 3]


@pytest.mark.parametrize(
    "last",
    [None, "", "abc", "1", "-1", "feedfacecafe-1", "é-1", "{origin}-x", "{origin}-" + "9" * 5000],
)
def test_an_unknown_event_id_needs_a_snapshot(last: str | None) -> None:
    """No ID, an invalid ID, or an ID of another process."""
    hub = make_hub()
    hub.subscribe("board")
    hub.publish("board", "update", 1)
    assert hub.subscribe("board", last and last.replace("{origin}", hub._origin)).needs_snapshot


async def test_a_batch_is_one_chunk_and_drops_no_client_that_keeps_up() -> None:
    """A batch may exceed the queue size; contents are not consumed without subscribers."""
    hub = make_hub(queue_size=2)
    subscription = hub.subscribe("board")
    for start in (0, 100):
        hub.publish_all("board", "update", iter(range(start, start + 100)))
        assert [event["data"] for event in await read_events(subscription)] == [
            str(number) for number in range(start, start + 100)
        ]
    unused = iter([1])
    hub.publish_all("elsewhere", "update", unused)
    assert next(unused) == 1


async def test_a_client_is_dropped_for_queued_bytes_too() -> None:
    """Its queue is limited in bytes, however few the messages."""
    metrics = Metrics()
    hub = make_hub(metrics=metrics, queue_size=1_000)
    hub.subscribe("board")
    for _ in range(2):
        hub.publish("board", "update", "x" * (MAX_QUEUED_BYTES // 2))
    assert metrics.registry.get_sample_value("tally_stream_clients_dropped_total") == 0
    hub.publish("board", "update", "x")
    assert metrics.registry.get_sample_value("tally_stream_clients_dropped_total") == 1


async def test_a_client_that_missed_more_than_the_history_needs_a_snapshot() -> None:
    hub = make_hub(history_size=2)
    first = hub.subscribe("board")
    for number in range(5):
        hub.publish("board", "update", number)
    seen = [event["id"] for event in await read_events(first)]
    needs = [hub.subscribe("board", last).needs_snapshot for last in seen]
    assert needs == [True, True, False, False, False]


async def test_a_topic_expires_after_its_last_subscriber_leaves(clock: ManualClock) -> None:
    """A client that returns later may have missed messages and needs a snapshot."""
    hub = make_hub(clock, linger_seconds=30)
    first = hub.subscribe("board")
    hub.publish("board", "update", 1)
    [seen] = await read_events(first)
    hub.unsubscribe("board", first)
    await clock.advance(29)
    again = hub.subscribe("board", seen["id"])
    assert not again.needs_snapshot
    hub.unsubscribe("board", again)
    await clock.advance(30)
    assert hub.subscribe("board", seen["id"]).needs_snapshot


async def test_pings_are_sent_and_expired_topics_removed(clock: ManualClock) -> None:
    hub = make_hub(clock, ping_seconds=15, linger_seconds=20)
    staying, leaving = hub.subscribe("board"), hub.subscribe("old")
    hub.unsubscribe("old", leaving)
    running = asyncio.create_task(hub.run())
    await clock.until_sleeping()
    await clock.advance(30)
    running.cancel()
    assert await staying.next() == PING * 2
    assert set(hub._topics) == {"board"}


async def test_closing_sends_every_client_a_reconnection_delay() -> None:
    """It follows the queued messages, and the delays are spread out."""
    hub = make_hub(reconnect_ms=(500, 3000), rng=random.Random(7))
    subscriptions = [hub.subscribe("board") for _ in range(20)]
    hub.publish("board", "update", 1)
    hub.close()
    waits = set()
    for subscription in subscriptions:
        update, reconnect = await read_events(subscription)
        assert update["event"] == "update"
        assert reconnect["event"] == "reconnect"
        assert json.loads(reconnect["data"]) == {"retryMs": int(reconnect["retry"])}
        waits.add(int(reconnect["retry"]))
        assert await subscription.next() == b""
    assert len(waits) > 10
    assert 500 <= min(waits) <= max(waits) <= 3000
    with pytest.raises(Unavailable, match="shutting down"):
        hub.subscribe("board")


def test_unsubscribing_is_idempotent(metrics: Metrics) -> None:
    hub = make_hub(metrics=metrics)
    subscription = hub.subscribe("board")
    for _ in range(2):
        hub.unsubscribe("board", subscription)
    hub.unsubscribe("nowhere", subscription)
    assert metrics.registry.get_sample_value("tally_stream_clients") == 0


class Viewer:
    """A client like a browser: it disconnects, reconnects with its last event ID, and reads."""

    def __init__(self, hub: Hub, published: list[int]) -> None:
        self.hub = hub
        self.published = published
        self.seen: list[int] = []
        self.last: str | None = None
        self.subscription: StreamSubscription | None = None

    def connect(self) -> None:
        if self.subscription is None:
            self.subscription = self.hub.subscribe("board", self.last)
            if self.subscription.needs_snapshot:
                self.seen = list(self.published)
                self.last = self.subscription.position

    def disconnect(self) -> None:
        if self.subscription is not None:
            self.hub.unsubscribe("board", self.subscription)
            self.subscription = None

    async def read(self) -> None:
        if self.subscription is not None and self.subscription._chunks:
            for event in await read_events(self.subscription):
                self.seen.append(int(event["data"]))
                self.last = event["id"]


steps = st.lists(
    st.sampled_from(["publish", "read", "disconnect", "connect", "elsewhere", "wait"]), max_size=60
)


@given(steps, st.integers(1, 8), st.integers(1, 8))
async def test_no_message_is_lost_duplicated_or_reordered(
    steps: list[str], queue: int, history: int
) -> None:
    """A client has each message once and in order, or requested a snapshot."""
    clock = ManualClock()
    hub = make_hub(clock, queue_size=queue, history_size=history, linger_seconds=30)
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
    viewer.disconnect()
    viewer.connect()
    await viewer.read()
    assert viewer.seen == published
