"""Starts simulators for the external services that the settings do not configure.

    async with simulated_services(settings, clock, state) as services:
        async with open_application(services.settings) as application: ...

The simulators listen on loopback, on the default ports of `tally sim …` if those are free, so that
their URLs survive a restart.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from tally.kit.clock import Clock
from tally.kit.server import ListenError, listen
from tally.settings import LOOPBACK_HOSTS, Secret, Settings
from tally.sim.apns.certificates import AUTHORITY_FILE
from tally.sim.apns.simulator import ApnsSimulator
from tally.sim.command_line import (
    APNS_CONTROL_PORT,
    APNS_MANAGE_PORT,
    APNS_PUSH_PORT,
    COGNITO_PORT,
    MAIL_PORT,
    OIDC_PORT,
    SPORTMONKS_PORT,
    STRAVA_PORT,
)
from tally.sim.demo.match_schedule import MatchSchedule, load_matches, marquee_leagues
from tally.sim.demo.phones import DemoPhones
from tally.sim.demo.state import DemoState
from tally.sim.mail.simulator import MailSimulator
from tally.sim.oidc.cognito import CognitoSimulator
from tally.sim.oidc.pool import COLLECT_CLIENT
from tally.sim.oidc.simulator import OidcSimulator
from tally.sim.sportmonks.simulator import SportMonksSimulator
from tally.sim.strava.rate_limits import UNLIMITED, RateLimits
from tally.sim.strava.simulator import StravaSimulator

# A demo may run for days, so its simulators retain less than in tests.
MAX_LOG_ENTRIES: Final = 500
MAX_ACTIVITIES: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedServices:
    """The running simulators and the settings that configure Tally for them."""

    settings: Settings
    strava: StravaSimulator | None = None
    collect_issuer: OidcSimulator | None = None
    cognito: CognitoSimulator | None = None
    sportmonks: SportMonksSimulator | None = None
    match_schedule: MatchSchedule | None = None
    apns: ApnsSimulator | None = None
    phones: DemoPhones | None = None
    mail: MailSimulator | None = None

    @property
    def urls(self) -> list[tuple[str, str]]:
        """The names and URLs of the running simulators."""
        candidates = [
            ("Strava", self.strava and self.strava.url),
            ("Sign-in for collect", self.collect_issuer and self.collect_issuer.url),
            ("Sign-in for cricket", self.cognito and self.cognito.url),
            ("SportMonks", self.sportmonks and self.sportmonks.url),
            ("APNs", self.apns and self.apns.url),
            ("Mails to players", self.mail and self.mail.url),
        ]
        return [(name, url) for name, url in candidates if url]


@asynccontextmanager
async def simulated_services(
    settings: Settings, clock: Clock, state: DemoState
) -> AsyncIterator[SimulatedServices]:
    """Run the simulators that the selected backends need until the block ends."""
    async with AsyncExitStack() as stack:
        services = SimulatedServices(settings=settings)
        if "collect" in settings.backends:
            services = await _start_collect_issuer(stack, services, clock)
            services = await _start_strava(stack, services, clock, state)
        if "cricket" in settings.backends:
            services = await _start_cognito(stack, services, clock)
            services = await _start_sportmonks(stack, services, clock)
            services = await _start_apns(stack, services, clock, state)
        if "scoreboard" in settings.backends:
            services = await _start_mail(stack, services, clock)
        yield services


async def _start_collect_issuer(
    stack: AsyncExitStack, services: SimulatedServices, clock: Clock
) -> SimulatedServices:
    if services.settings.collect_oidc_issuer is not None:
        return services
    issuer = OidcSimulator(clock)
    issuer.faults.limit_requests(MAX_LOG_ENTRIES)
    await stack.enter_async_context(issuer.serving(port=_free_port(OIDC_PORT)))
    settings = replace(
        services.settings,
        collect_oidc_issuer=issuer.issuer,
        collect_oidc_client_id=COLLECT_CLIENT.client_id,
        collect_oidc_client_secret=Secret(COLLECT_CLIENT.secret or ""),
        collect_oidc_delete_url=issuer.url,
        # On other hosts cookies require HTTPS: a browser then needs a proxy with TLS in front of
        # the demo. Virtual athletes do not.
        collect_plain_http=services.settings.host in LOOPBACK_HOSTS,
    )
    return replace(services, settings=settings, collect_issuer=issuer)


async def _start_strava(
    stack: AsyncExitStack, services: SimulatedServices, clock: Clock, state: DemoState
) -> SimulatedServices:
    if services.settings.collect_strava_client_secret is not None:
        return services
    strava = StravaSimulator(clock, limits=RateLimits(clock, UNLIMITED, UNLIMITED))
    strava.max_activities = MAX_ACTIVITIES
    strava.faults.limit_requests(MAX_LOG_ENTRIES)
    strava.webhooks.limit_log(MAX_LOG_ENTRIES)
    state.restore_strava(strava)
    await stack.enter_async_context(strava.serving(port=_free_port(STRAVA_PORT)))
    stack.callback(state.save_strava, strava)
    settings = replace(
        services.settings,
        collect_strava_api_url=f"{strava.url}/api/v3",
        collect_strava_oauth_url=f"{strava.url}/oauth",
        collect_strava_client_id=str(strava.application.client_id),
        collect_strava_client_secret=Secret(strava.application.client_secret),
        collect_strava_subscription_id=0,
        # The simulator has no rate limits.
        collect_strava_event_reads=0,
        collect_strava_athlete_event_reads=0,
    )
    return replace(services, settings=settings, strava=strava)


async def _start_cognito(
    stack: AsyncExitStack, services: SimulatedServices, clock: Clock
) -> SimulatedServices:
    if services.settings.cricket_issuer is not None:
        return services
    cognito = CognitoSimulator(clock)
    cognito.faults.limit_requests(MAX_LOG_ENTRIES)
    await stack.enter_async_context(cognito.serving(port=_free_port(COGNITO_PORT)))
    settings = replace(
        services.settings, cricket_issuer=cognito.issuer, cricket_client_id=cognito.client_id
    )
    return replace(services, settings=settings, cognito=cognito)


async def _start_sportmonks(
    stack: AsyncExitStack, services: SimulatedServices, clock: Clock
) -> SimulatedServices:
    if services.settings.cricket_sportmonks_token is not None:
        return services
    sportmonks = SportMonksSimulator(clock)
    sportmonks.faults.limit_requests(MAX_LOG_ENTRIES)
    await stack.enter_async_context(sportmonks.serving(port=_free_port(SPORTMONKS_PORT)))
    schedule = MatchSchedule(sportmonks, load_matches(), clock)
    schedule.start()
    settings = replace(
        services.settings,
        cricket_sportmonks_url=sportmonks.api,
        cricket_sportmonks_token=Secret(sportmonks.api_token),
        cricket_marquee_leagues=marquee_leagues(schedule.matches),
    )
    return replace(services, settings=settings, sportmonks=sportmonks, match_schedule=schedule)


async def _start_apns(
    stack: AsyncExitStack, services: SimulatedServices, clock: Clock, state: DemoState
) -> SimulatedServices:
    if services.settings.cricket_apns_key is not None:
        return services
    apns = ApnsSimulator.load(state.directory, clock)
    apns.log.limit(MAX_LOG_ENTRIES)
    apns.devices.max_retired_tokens = MAX_LOG_ENTRIES
    await stack.enter_async_context(
        apns.serving(
            port=_free_port(APNS_PUSH_PORT),
            manage_port=_free_port(APNS_MANAGE_PORT),
            control_port=_free_port(APNS_CONTROL_PORT),
        )
    )
    settings = apns.configure(services.settings, state.directory / AUTHORITY_FILE)
    phones = (
        DemoPhones(apns, services.cognito, clock, state.rng("phones"))
        if services.cognito is not None
        else None
    )
    return replace(services, settings=settings, apns=apns, phones=phones)


async def _start_mail(
    stack: AsyncExitStack, services: SimulatedServices, clock: Clock
) -> SimulatedServices:
    if services.settings.scoreboard_smtp_url is not None:
        return services
    mail = MailSimulator(clock)
    mail.faults.limit_requests(MAX_LOG_ENTRIES)
    await stack.enter_async_context(mail.serving(port=_free_port(MAIL_PORT)))
    settings = replace(services.settings, scoreboard_smtp_url=Secret(mail.smtp_url))
    return replace(services, settings=settings, mail=mail)


def _free_port(port: int) -> int:
    """The port, or 0 (any) if it is in use."""
    try:
        listen("127.0.0.1", port).close()
    except ListenError:
        return 0
    return port
