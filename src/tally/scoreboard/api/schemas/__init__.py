"""Request and response bodies of the scoreboard API."""
