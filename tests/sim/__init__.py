"""Tests of the outside world: simulators on real sockets, asked by a real client."""
