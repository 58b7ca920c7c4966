"""Collect: workouts unlock the parts of a model.

Users sign in through an OIDC provider, link Strava and set milestones for a sport. Strava reports
workouts by webhook. One table holds users, workouts, milestones, awards and models; three more hold
sessions, the audit trail and idempotency claims. Each part is minted once, in one transaction with
its milestone, and published to SSE subscribers of the milestone.
"""
