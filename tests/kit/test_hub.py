"""Every subscriber receives each event once and in order, and the latest state."""

import asyncio
import json
import random

import pytest

from tally.errors import Unavailable
from tally.kit.clock import ManualClock
from tally.kit.hub import MAX_QUEUED_BYTES, MAX_UNREAD, PING, Hub, StreamSubscription, encode_event
from tally.kit.metrics import Metrics


@pytest.fixture
def hub(clock: ManualClock, metrics: Metrics) -> Hub:
    return Hub(clock, metrics, ping_seconds=15, rng=random.Random(7))


def publish(hub: Hub, number: int, topic: str = "board") -> None:
    """Publish an event whose content is its sequence number."""
    hub.publish(topic, number, encode_event("update", number, f"id-{number}"))


def parse(text: str) -> list[dict[str, str]]:
    """Parse events as a browser would."""
    return [
        dict(line.split(": ", 1) for line in event.split("\n"))
        for event in text.split("\n\n")
        if event and not event.startswith(":")
    ]


async def read_events(subscription: StreamSubscription) -> list[dict[str, str]]:
    return parse((await subscription.next()).decode())


async def read_numbers(subscription: StreamSubscription) -> list[int]:
    return [int(event["data"]) for event in await read_events(subscription)]


async def test_an_event_reaches_all_subscribers_of_its_topic(hub: Hub) -> None:
    one, other, elsewhere = hub.subscribe("m1"), hub.subscribe("m1"), hub.subscribe("m2")
    publish(hub, 4, "m1")
    publish(hub, 6, "m2")
    for subscription, number in ((one, 4), (other, 4), (elsewhere, 6)):
        [event] = await read_events(subscription)
        assert event == {"id": f"id-{number}", "event": "update", "data": str(number)}


async def test_events_that_a_client_has_are_not_repeated(hub: Hub) -> None:
    """Neither those that were queued before the replay ended, nor those that come later."""
    subscription = hub.subscribe("board")
    publish(hub, 1)
    publish(hub, 2)
    subscription.start(after=3)
    publish(hub, 3)
    publish(hub, 4)
    assert await read_numbers(subscription) == [4]


async def test_a_client_receives_only_the_latest_state_after_its_events(hub: Hub) -> None:
    subscription = hub.subscribe("board")
    hub.publish_state("board", "state", "old")
    publish(hub, 1)
    hub.publish_state("board", "state", "new")
    events = await read_events(subscription)
    assert [event["data"] for event in events] == ["1", '"new"']
    assert "id" not in events[1], "a state does not move the client's position"


async def test_an_unchanged_state_is_not_sent_again(hub: Hub) -> None:
    subscription = hub.subscribe("board")
    hub.publish_state("board", "state", 1)
    assert await read_numbers(subscription) == [1]
    hub.publish_state("board", "state", 1)
    hub.publish_state("board", "state", 2)
    assert await read_numbers(subscription) == [2]


async def test_a_state_without_subscribers_is_not_serialised(hub: Hub) -> None:
    """An unserialisable state is harmless before the first and after the last subscriber."""
    hub.publish_state("board", "state", object())
    hub.unsubscribe("board", hub.subscribe("board"))
    hub.publish_state("board", "state", object())
    hub.subscribe("board")
    with pytest.raises(TypeError):
        hub.publish_state("board", "state", object())


@pytest.mark.parametrize("kind", ["event", "state", "ping"])
async def test_only_a_slow_client_is_dropped(
    hub: Hub, clock: ManualClock, metrics: Metrics, kind: str
) -> None:
    """Whatever it does not read."""
    slow, quick = hub.subscribe("board"), hub.subscribe("board")
    dropped = asyncio.Event()
    slow.on_dropped = dropped.set
    running = asyncio.create_task(hub.run())
    await clock.until_sleeping()
    for number in range(1, MAX_UNREAD + 2):
        if kind == "event":
            publish(hub, number)
            hub.publish("board", number, b"x" * (MAX_QUEUED_BYTES // MAX_UNREAD + 1))
        elif kind == "state":
            hub.publish_state("board", "state", number)
        else:
            await clock.advance(15)
        assert not quick.has_ended
        if hub.subscriber_count("board") == 2 or number > MAX_UNREAD:
            assert await quick.next()
    running.cancel()
    assert dropped.is_set()
    assert await slow.next() == b""
    assert metrics.registry.get_sample_value("tally_stream_clients_dropped_total") == 1
    assert metrics.registry.get_sample_value("tally_stream_clients") == 1


async def test_pings_are_sent(hub: Hub, clock: ManualClock) -> None:
    subscription = hub.subscribe("board")
    running = asyncio.create_task(hub.run())
    await clock.until_sleeping()
    await clock.advance(30)
    running.cancel()
    assert await subscription.next() == PING * 2


async def test_closing_sends_every_client_a_reconnection_delay(hub: Hub) -> None:
    """It follows the queued messages, and the delays are spread out."""
    subscriptions = [hub.subscribe("board") for _ in range(20)]
    publish(hub, 1)
    hub.publish_state("board", "state", 2)
    hub.close()
    waits = set()
    for subscription in subscriptions:
        update, state, reconnect = await read_events(subscription)
        assert (update["event"], state["event"], reconnect["event"]) == (
            "update",
            "state",
            "reconnect",
        )
        assert json.loads(reconnect["data"]) == {"retryMs": int(reconnect["retry"])}
        waits.add(int(reconnect["retry"]))
        assert await subscription.next() == b""
    assert len(waits) > 10
    assert 500 <= min(waits) <= max(waits) <= 3000
    with pytest.raises(Unavailable, match="shutting down"):
        hub.subscribe("board")


async def test_nothing_follows_the_end_of_a_stream(hub: Hub) -> None:
    subscription = hub.subscribe("board")
    hub.end("board", "deleted", {})
    publish(hub, 1)
    hub.publish_state("board", "state", 2)
    assert [event["event"] for event in await read_events(subscription)] == ["deleted"]
    assert await subscription.next() == b""


def test_unsubscribing_is_idempotent(hub: Hub, metrics: Metrics) -> None:
    subscription = hub.subscribe("board")
    for _ in range(2):
        hub.unsubscribe("board", subscription)
    hub.unsubscribe("nowhere", subscription)
    assert metrics.registry.get_sample_value("tally_stream_clients") == 0
    assert not hub.is_active("board")
