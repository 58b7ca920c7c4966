"""Tests of the simulators, on real sockets with real clients."""
