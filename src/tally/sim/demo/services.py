"""The services that Tally calls, simulated beside it: those that the settings do not name already.

    async with outside_world(settings, clock, kept) as outside:
        async with open_application(outside.settings) as parts: ...

They listen on loopback, on the ports of `tally sim …` where those are free, so that a restart finds
them at the same place.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from tally.kit.clock import Clock
from tally.kit.server import ListenError, listen
from tally.settings import Secret, Settings
from tally.sim.apns.certificates import AUTHORITY_FILE
from tally.sim.apns.simulator import ApnsSimulator
from tally.sim.demo.match_schedule import MatchSchedule, load_matches, marquee_leagues
from tally.sim.demo.phones import DemoPhones
from tally.sim.demo.state import DemoState
from tally.sim.oidc.cognito import CognitoSimulator
from tally.sim.oidc.pool import COLLECT_CLIENT
from tally.sim.oidc.simulator import OidcSimulator
from tally.sim.request_parsing import LOOPBACK_HOSTS
from tally.sim.sportmonks.simulator import SportMonksSimulator
from tally.sim.strava.rate_limits import UNLIMITED, RateLimits
from tally.sim.strava.simulator import StravaSimulator

STRAVA_PORT: Final = 8101
COLLECT_ISSUER_PORT: Final = 8102
COGNITO_PORT: Final = 8104
SPORTMONKS_PORT: Final = 8103
APNS_PORTS: Final = (8121, 8122, 8123)
# A demo may run for days: of what was asked and told, each service keeps the latest.
MAX_KEPT: Final = 500
MAX_ACTIVITIES: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedServices:
    """The services that are simulated here, and the settings that lead to them."""

    settings: Settings
    strava: StravaSimulator | None = None
    collect_issuer: OidcSimulator | None = None
    cognito: CognitoSimulator | None = None
    sportmonks: SportMonksSimulator | None = None
    programme: MatchSchedule | None = None
    apns: ApnsSimulator | None = None
    crowd: DemoPhones | None = None

    @property
    def places(self) -> list[tuple[str, str]]:
        """What is simulated, and where."""
        found = [
            ("Strava", self.strava and self.strava.url),
            ("Sign-in for collect", self.collect_issuer and self.collect_issuer.url),
            ("Sign-in for cricket", self.cognito and self.cognito.url),
            ("SportMonks", self.sportmonks and self.sportmonks.url),
            ("Apple's push service", self.apns and self.apns.url),
        ]
        return [(name, url) for name, url in found if url]


@asynccontextmanager
async def simulated_services(
    settings: Settings, clock: Clock, kept: DemoState
) -> AsyncIterator[SimulatedServices]:
    """Serve what the chosen backends call, until the block ends."""
    async with AsyncExitStack() as stack:
        outside = SimulatedServices(settings=settings)
        if "collect" in settings.backends:
            outside = await _collect(stack, outside, clock, kept)
        if "cricket" in settings.backends:
            outside = await _cricket(stack, outside, clock, kept)
        yield outside


async def _collect(
    stack: AsyncExitStack, outside: SimulatedServices, clock: Clock, kept: DemoState
) -> SimulatedServices:
    settings = outside.settings
    if settings.collect_oidc_issuer is None:
        issuer = OidcSimulator(clock)
        issuer.faults.limit_requests(MAX_KEPT)
        await stack.enter_async_context(issuer.serving(port=_port(COLLECT_ISSUER_PORT)))
        settings = replace(
            settings,
            collect_oidc_issuer=issuer.issuer,
            collect_oidc_client_id=COLLECT_CLIENT.client_id,
            collect_oidc_client_secret=Secret(COLLECT_CLIENT.secret or ""),
            collect_oidc_delete_url=issuer.url,
            # Elsewhere cookies are for HTTPS alone: a browser needs a proxy with TLS before the
            # demo, made-up athletes do not.
            collect_plain_http=settings.host in LOOPBACK_HOSTS,
        )
        outside = replace(outside, settings=settings, collect_issuer=issuer)
    if settings.collect_strava_client_secret is None:
        strava = StravaSimulator(clock, limits=RateLimits(clock, UNLIMITED, UNLIMITED))
        strava.max_activities = MAX_ACTIVITIES
        strava.faults.limit_requests(MAX_KEPT)
        strava.webhooks.limit_log(MAX_KEPT)
        kept.restore_strava(strava)
        await stack.enter_async_context(strava.serving(port=_port(STRAVA_PORT)))
        stack.callback(kept.keep_strava, strava)
        settings = replace(
            settings,
            collect_strava_url=strava.url,
            collect_strava_client_id=str(strava.application.client_id),
            collect_strava_client_secret=Secret(strava.application.client_secret),
        )
        outside = replace(outside, settings=settings, strava=strava)
    return outside


async def _cricket(
    stack: AsyncExitStack, outside: SimulatedServices, clock: Clock, kept: DemoState
) -> SimulatedServices:
    settings = outside.settings
    if settings.cricket_issuer is None:
        cognito = CognitoSimulator(clock)
        cognito.faults.limit_requests(MAX_KEPT)
        await stack.enter_async_context(cognito.serving(port=_port(COGNITO_PORT)))
        settings = replace(
            settings, cricket_issuer=cognito.issuer, cricket_client_id=cognito.client_id
        )
        outside = replace(outside, settings=settings, cognito=cognito)
    if settings.cricket_sportmonks_token is None:
        sportmonks = SportMonksSimulator(clock)
        sportmonks.faults.limit_requests(MAX_KEPT)
        await stack.enter_async_context(sportmonks.serving(port=_port(SPORTMONKS_PORT)))
        programme = MatchSchedule(sportmonks, load_matches(), clock)
        programme.begin()
        settings = replace(
            settings,
            cricket_sportmonks_url=sportmonks.api,
            cricket_sportmonks_token=Secret(sportmonks.api_token),
            cricket_marquee_leagues=marquee_leagues(programme.matches),
        )
        outside = replace(outside, settings=settings, sportmonks=sportmonks, programme=programme)
    if settings.cricket_apns_key is None:
        apns = ApnsSimulator.load(kept.folder, clock)
        apns.log.limit(MAX_KEPT)
        apns.devices.max_retired_tokens = MAX_KEPT
        push, manage, control = (_port(port) for port in APNS_PORTS)
        await stack.enter_async_context(
            apns.serving(port=push, manage_port=manage, control_port=control)
        )
        settings = apns.configure(settings, kept.folder / AUTHORITY_FILE)
        crowd = (
            DemoPhones(apns, outside.cognito, clock, kept.rng("phones"))
            if outside.cognito is not None
            else None
        )
        outside = replace(outside, settings=settings, apns=apns, crowd=crowd)
    return outside


def _port(wanted: int) -> int:
    """The port that is wanted, or any if somebody else has it."""
    try:
        listen("127.0.0.1", wanted).close()
    except ListenError:
        return 0
    return wanted
