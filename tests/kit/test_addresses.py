"""The address that limits count a client by."""

import pytest

from tally.kit.addresses import NO_ADDRESS, counted_address


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("", NO_ADDRESS),
        (None, NO_ADDRESS),
        ("/run/tally.sock", NO_ADDRESS),
        ("192.0.2.7, 192.0.2.8", NO_ADDRESS),
    ],
)
def test_ipv6_addresses_count_by_their_network(host: str | None, expected: str) -> None:
    """A customer can use any of the 2^64 addresses of a network."""
    assert counted_address(host) == expected
