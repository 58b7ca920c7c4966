"""Cricket: live scores in apps, on the web and on Lock Screens.

Users of an app list matches, follow them and register their devices; the backend polls SportMonks
for scores. It stores leagues, teams, fixtures, follows, devices, and the state of every live match
and Live Activity. It notifies followers within seconds of a key event: through APNs on each of
their devices, and through server-sent events on web pages.
"""
