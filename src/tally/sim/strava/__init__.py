"""Simulates Strava: consent, tokens, activities, rate limits and webhooks with retries.

Virtual athletes live in the simulator. It sends events to the one registered application, if the
athlete authorized it. All state is in memory. Tests and the demo use `simulator.StravaSimulator`.
"""
