"""Tests of the scoreboard on real PostgreSQL and Redis servers."""
