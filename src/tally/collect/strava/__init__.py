"""The gateway to Strava: OAuth, activities, and the state of the registered application."""
