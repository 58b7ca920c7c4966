"""Virtual athletes who ride, run, swim and walk on an accelerated clock.

They have accounts in the Strava simulator, which sends their activities as webhooks. With a collect
server, they first log in there, link their Strava account and set a goal through a browser.
`tally sim athletes` runs a fleet of them.
"""
