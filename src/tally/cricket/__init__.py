"""Cricket: live scores on the web and on Lock Screens.

SportMonks is asked for scores, and people ask for matches, follow them, and hand in the tokens of
their devices. Kept are leagues, teams, fixtures, follows, devices, and what every live match and
Live Activity has come to. Told, within seconds of a ball that matters, are the followers: through
Apple's push service on each of their devices, and by server-sent events on a page.
"""
