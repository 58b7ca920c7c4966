"""Collect: workouts unlock the parts of a model.

People sign in through an OIDC issuer, link Strava, and set themselves a goal in a sport; Strava
tells of their workouts by webhook. Kept are one table for people, workouts, milestones, awards and
models, and three more for sessions, audit and idempotency. Each part of a model is minted once, in
one transaction with the milestone it belongs to, and whoever watches the milestone sees it happen.
"""
