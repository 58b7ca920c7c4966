"""Scoreboard on a real PostgreSQL and a real Redis."""
