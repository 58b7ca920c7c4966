"""Tests of the scoreboard's repositories on real PostgreSQL and Redis servers."""
