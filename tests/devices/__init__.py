"""Tests of the devices backend, from the repositories to the HTTP API, on every engine."""
