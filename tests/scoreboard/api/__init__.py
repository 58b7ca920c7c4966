"""Tests of the scoreboard over HTTP, with server failures."""
