"""Strava as an application sees it: consent, tokens, activities, limits, and webhooks that insist.

Athletes are made up and live here; what they do is told to the one application that is registered,
if they let it. Nothing is kept but in memory. `simulator.Strava` is the object that tests and the
demo hold.
"""
