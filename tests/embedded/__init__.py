"""Tests of the embedded servers: start, stop, crashes and takeover."""
