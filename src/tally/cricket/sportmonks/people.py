"""Who is named in a fixture: players by their ids, wherever an answer mentions them."""

from collections.abc import Iterator, Mapping

from tally.cricket.sportmonks import payloads


def player_names(fixture: payloads.SportMonksFixture) -> Mapping[int, str]:
    """Everyone who is named anywhere in the fixture."""
    return {
        player.id: name
        for player in _players(fixture)
        if player is not None and (name := _name(player))
    }


def _players(fixture: payloads.SportMonksFixture) -> Iterator[payloads.SportMonksPlayer | None]:
    yield from fixture.lineup or ()
    for ball in fixture.balls or ():
        yield ball.batsman
        yield ball.bowler
    yield from (line.batsman for line in fixture.batting or ())
    yield from (line.bowler for line in fixture.bowling or ())
    yield fixture.manofmatch


def _name(player: payloads.SportMonksPlayer) -> str:
    return player.fullname or " ".join(filter(None, (player.firstname, player.lastname)))


def name_of(names: Mapping[int, str], player_id: int | None) -> str | None:
    return None if player_id is None else names.get(player_id)
