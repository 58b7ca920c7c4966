"""The HTTP API of the collect backend, for browsers, Strava and operators."""
