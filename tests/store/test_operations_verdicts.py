"""Every engine accepts and rejects the same requests as the service.

The emulators get the requests without our validation, so that a check that is wrong or missing on
our side shows.
"""

import pytest

from tally.store.api import Engine
from tests.store.request_cases import CASES, make_request
from tests.store.unchecked import no_validation, verdict


# aiohttp warns about bodies above 1 MB; some cases are larger than any request may be.
@pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")
@pytest.mark.parametrize("case", CASES)
async def test_a_request_gets_the_verdict_of_the_service(engine: Engine, case: str) -> None:
    with no_validation():
        found, reason = await verdict(engine, make_request(case))
    assert found == CASES[case][1], reason
