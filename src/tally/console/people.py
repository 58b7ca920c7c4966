"""The made-up people whom the console may call by name.

In production there is no list of people, on purpose.
"""

from tally.console.context import ConsoleContext
from tally.sim.oidc.people import person_named


def athletes_of(context: ConsoleContext) -> dict[str, str]:
    """Names of a demo's athletes by the id that they have here."""
    strava = context.outside.strava if context.outside is not None else None
    if strava is None:
        return {}
    names = [f"{athlete.firstname} {athlete.lastname}" for athlete in strava.athletes.values()]
    return {person_named(name).sub: name for name in sorted(names)}
