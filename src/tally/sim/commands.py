"""`tally sim`: the outside world, simulated; one command for each kind of people or things that call Tally."""

import typer

from tally.sim.apns.command import apns
from tally.sim.athletes.command import athletes
from tally.sim.boards.command import boards
from tally.sim.phones.command import phones
from tally.sim.players.command import players
from tally.sim.sportmonks.command import cricket
from tally.sim.standalone import oidc, strava

sim = typer.Typer(
    help="The outside world, simulated: boards, athletes, and the services that Tally calls.",
    no_args_is_help=True,
)
sim.command("boards")(boards)
sim.command("athletes")(athletes)
sim.command("strava")(strava)
sim.command("oidc")(oidc)
sim.command("apns")(apns)
sim.command("phones")(phones)
sim.command("players")(players)
sim.command("cricket")(cricket)


@sim.callback()
def simulate() -> None:
    """Keep the name of the command, however many there are."""
