"""Made-up people who ride, run, swim and walk, day after day, on a clock that may run fast.

They live in the Strava simulator, which tells whoever listens; given a running collect server, they
first log in there, link their Strava account and set themselves a goal, as people do with a
browser. `tally sim athletes` starts a fleet.
"""
