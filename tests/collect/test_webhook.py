"""An event is known by what it says: every delivery of it is the same one, and no other is."""

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
def test_two_events_have_one_key_if_they_say_the_same(
    one: WebhookDelivery, other: WebhookDelivery
) -> None:
    """Whatever they differ in, their keys differ."""
    assert (event_key(one) == event_key(other)) == (one == other)


@given(EVENTS)
def test_the_order_of_what_was_updated_does_not_matter(told: WebhookDelivery) -> None:
    """A redelivery may be written in another order."""
    backwards = replace(told, updates=dict(reversed(list(told.updates.items()))))
    assert event_key(backwards) == event_key(told)
