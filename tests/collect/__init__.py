"""Tests of the collect backend, from the rules to the HTTP API, on every engine."""
