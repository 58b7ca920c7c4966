"""The event key identifies an event across deliveries."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tally.collect.service.webhook import WebhookDelivery, event_key

NUMBERS = st.integers(0, 3)
EVENTS = st.builds(
    WebhookDelivery,
    object_type=st.sampled_from(["activity", "athlete"]),
    object_id=NUMBERS,
    aspect_type=st.sampled_from(["create", "update", "delete"]),
    owner_id=NUMBERS,
    subscription_id=NUMBERS,
    event_time=NUMBERS,
    updates=st.dictionaries(
        st.sampled_from(["title", "type", "private"]),
        st.sampled_from(["a", "b", "true"]),
        max_size=2,
    ),
)


@given(EVENTS, EVENTS)
def test_keys_are_equal_only_for_equal_events(one: WebhookDelivery, other: WebhookDelivery) -> None:
    """Any difference changes the key."""
    assert (event_key(one) == event_key(other)) == (one == other)


@given(EVENTS)
def test_the_order_of_updates_does_not_matter(event: WebhookDelivery) -> None:
    """A redelivery may have another field order."""
    backwards = replace(event, updates=dict(reversed(list(event.updates.items()))))
    assert event_key(backwards) == event_key(event)
