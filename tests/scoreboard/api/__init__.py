"""The scoreboard over HTTP: a real server on a real PostgreSQL and a real Redis, which come and go."""
