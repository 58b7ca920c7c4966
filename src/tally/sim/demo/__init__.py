"""The demo: simulators for every external service, and virtual clients that use the server.

`services` starts the simulators and returns the settings for them, `clients` runs boards, athletes,
players and phones, `match_schedule` keeps matches live, and `state` persists identities across
restarts.
"""
