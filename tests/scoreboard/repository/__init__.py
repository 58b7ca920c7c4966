"""What PostgreSQL and Redis keep for the scoreboard, on real servers."""
