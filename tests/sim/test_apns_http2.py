"""The HTTP/2 server works with another implementation, and invalid input ends one connection."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    PingAckReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.settings import SettingCodes
from hpack import Encoder
from hypothesis import given
from hypothesis import strategies as st

from tally.kit.clock import SystemClock
from tally.sim.apns import frames
from tally.sim.apns.hpack_codec import HpackDecoder, HpackError, encode_headers
from tally.sim.apns.http2 import MAX_STREAMS, Http2Connection
from tally.sim.apns.simulator import ApnsSimulator
from tally.sim.apns.streams import Http2Response, Http2Stream
from tests.sim.push_provider import PAYLOAD, issue_token, provider_token


@pytest.fixture(scope="module")
async def apns() -> AsyncIterator[ApnsSimulator]:
    async with ApnsSimulator(SystemClock()).serving() as apns:
        yield apns


class Peer:
    """An HTTP/2 client based on `h2`, on a real socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self.seen: list[Event] = []

    async def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())
        await self.writer.drain()

    async def until(self, kind: type[Event], count: int = 1) -> list[Event]:
        """Wait for this number of events of the kind, and return them."""
        while len(found := [event for event in self.seen if isinstance(event, kind)]) < count:
            received = await self.reader.read(65_536)
            if not received:
                raise ConnectionResetError("the server has closed the connection")
            for event in self.h2.receive_data(received):
                self.seen.append(event)
                if isinstance(event, DataReceived):
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            await self.flush()
        return found


@asynccontextmanager
async def raw_connection(apns: ApnsSimulator) -> AsyncIterator[Peer]:
    """A connection on which nothing was sent."""
    context = ssl.create_default_context(cadata=apns.certificates.authority.decode())
    context.set_alpn_protocols(["h2"])
    host, _, port = apns.url.removeprefix("https://").partition(":")
    peer = Peer(*await asyncio.open_connection(host, int(port), ssl=context))
    try:
        yield peer
    finally:
        peer.writer.transport.abort()


@asynccontextmanager
async def connected(apns: ApnsSimulator) -> AsyncIterator[Peer]:
    async with raw_connection(apns) as peer:
        peer.h2.initiate_connection()
        await peer.flush()
        yield peer


def headers_for(apns: ApnsSimulator, token: str) -> list[tuple[str, str]]:
    return [
        (":method", "POST"),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", f"/3/device/{token}"),
        ("authorization", provider_token(apns, SystemClock().seconds() // 1800 * 1800)),
        ("apns-topic", f"{apns.bundle_id}.push-type.liveactivity"),
        ("apns-push-type", "liveactivity"),
    ]


AUTHORIZED: dict[int, list[tuple[str, str]]] = {}


def cached_headers(apns: ApnsSimulator, token: str) -> list[tuple[str, str]]:
    """The same provider token in all tests, because APNs limits token updates."""
    if id(apns) not in AUTHORIZED:
        AUTHORIZED[id(apns)] = headers_for(apns, "")
    return [
        (name, f"/3/device/{token}" if name == ":path" else value)
        for name, value in AUTHORIZED[id(apns)]
    ]


async def test_h2_client_can_push(apns: ApnsSimulator) -> None:
    """Many streams per connection, split and padded bodies, headers in several frames."""
    async with connected(apns) as peer:
        tokens = [issue_token(apns) for _ in range(50)]
        for number, token in enumerate(tokens):
            stream = peer.h2.get_next_available_stream_id()
            long = [("x-long", "y" * 20_000)] if number % 10 == 0 else []
            peer.h2.send_headers(
                stream,
                cached_headers(apns, token) + long,
                priority_weight=16 if number % 2 else None,
            )
            peer.h2.send_data(stream, PAYLOAD[:10], pad_length=7 if number % 3 else None)
            peer.h2.send_data(stream, PAYLOAD[10:], end_stream=True)
        await peer.flush()
        responses = await peer.until(ResponseReceived, 50)
        assert {
            dict(response.headers)[b":status"]
            for response in responses
            if isinstance(response, ResponseReceived)
        } == {b"200"}
        assert all(apns.log.payloads(token) == [PAYLOAD] for token in tokens)


async def test_stream_limit_is_announced_and_pings_are_acknowledged(apns: ApnsSimulator) -> None:
    async with connected(apns) as peer:
        peer.h2.ping(b"12345678")
        await peer.flush()
        await peer.until(PingAckReceived)
        assert peer.h2.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS] == MAX_STREAMS


async def test_large_response_respects_flow_control(apns: ApnsSimulator) -> None:
    """The server never exceeds the window and eventually sends everything."""
    async with connected(apns) as peer:
        peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 10})
        await peer.flush()
        stream = peer.h2.get_next_available_stream_id()
        headers = [pair for pair in cached_headers(apns, "") if pair[0] != "apns-topic"]
        peer.h2.send_headers(stream, headers, end_stream=True)
        await peer.flush()
        await peer.until(StreamEnded)
        parts = [event.data for event in peer.seen if isinstance(event, DataReceived)]
        assert b"".join(parts) == b'{"reason":"MissingDeviceToken"}'
        assert max(map(len, parts)) <= 10


async def test_oversized_body_is_truncated_and_rejected(apns: ApnsSimulator) -> None:
    async with connected(apns) as peer:
        stream = peer.h2.get_next_available_stream_id()
        peer.h2.send_headers(stream, cached_headers(apns, issue_token(apns)))
        for _ in range(40):
            while peer.h2.local_flow_control_window(stream) < 10_000:
                await peer.flush()
                for event in peer.h2.receive_data(await peer.reader.read(65_536)):
                    peer.seen.append(event)
            peer.h2.send_data(stream, b"x" * 10_000)
        peer.h2.end_stream(stream)
        await peer.flush()
        [response] = await peer.until(ResponseReceived)
        assert isinstance(response, ResponseReceived)
        assert dict(response.headers)[b":status"] == b"413"


async def test_reset_stream_is_removed(apns: ApnsSimulator) -> None:
    async with connected(apns) as peer:
        stream = peer.h2.get_next_available_stream_id()
        peer.h2.send_headers(stream, cached_headers(apns, issue_token(apns)))
        peer.h2.reset_stream(stream)
        again = peer.h2.get_next_available_stream_id()
        peer.h2.send_headers(again, cached_headers(apns, issue_token(apns)))
        peer.h2.send_data(again, PAYLOAD, end_stream=True)
        await peer.flush()
        responses = await peer.until(ResponseReceived)
        assert [
            response.stream_id for response in responses if isinstance(response, ResponseReceived)
        ] == [again]


@pytest.mark.parametrize(
    "nonsense",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        frames.PREFACE + b"\xff" * 100,
        frames.PREFACE + frames.frame(frames.HEADERS, frames.END_HEADERS, 2, b"\x82"),
        frames.PREFACE
        + frames.frame(frames.HEADERS, frames.END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff\xff"),
        frames.PREFACE
        + frames.frame(frames.HEADERS, 0, 1, b"\x82")
        + frames.frame(frames.PING, 0, 0, b"12345678"),
        frames.PREFACE + frames.frame(frames.CONTINUATION, 0, 1, b"\x82"),
        frames.PREFACE + frames.frame(frames.HEADERS, frames.PADDED, 1, b"\x09a"),
        frames.PREFACE + frames.frame(frames.WINDOW_UPDATE, 0, 0, b"1"),
    ],
)
async def test_invalid_bytes_close_the_connection_with_goaway(
    apns: ApnsSimulator, nonsense: bytes
) -> None:
    async with raw_connection(apns) as bare:
        bare.writer.write(nonsense)
        received = await bare.reader.read()
        assert frames.go_away(0, frames.Http2ErrorCode.NO_ERROR)[3:4] in received
        assert await still_serves(apns)


async def still_serves(apns: ApnsSimulator) -> bool:
    async with connected(apns) as peer:
        stream = peer.h2.get_next_available_stream_id()
        peer.h2.send_headers(stream, cached_headers(apns, issue_token(apns)))
        peer.h2.send_data(stream, PAYLOAD, end_stream=True)
        await peer.flush()
        [response] = await peer.until(ResponseReceived)
        return (
            isinstance(response, ResponseReceived) and dict(response.headers)[b":status"] == b"200"
        )


class RecordingTransport(asyncio.Transport):
    """Records what a connection writes, without a socket."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True


def responses_to(_: Http2Stream) -> Http2Response:
    return Http2Response(200)


REQUEST = [(":method", "POST"), (":scheme", "https"), (":authority", "a"), (":path", "/")]
# Half of the frames open a stream by a request that is whole: random bytes would hardly ever be
# one.
OPENING = Encoder().encode(REQUEST)
FRAMES = st.one_of(
    st.builds(
        frames.frame,
        st.integers(0, 9),
        st.integers(0, 255),
        st.integers(0, 9),
        st.binary(max_size=40),
    ),
    st.builds(
        frames.frame,
        st.just(frames.HEADERS),
        st.sampled_from([4, 5]),
        st.integers(0, 9),
        st.just(OPENING),
    ),
)


@given(st.lists(st.one_of(st.binary(max_size=60), FRAMES), max_size=8))
def test_arbitrary_bytes_never_raise(chunks: list[bytes]) -> None:
    """After the preface, any input is processed, buffered, or closes the connection."""
    wire, connection = RecordingTransport(), Http2Connection(1, responses_to, lambda _: None)
    connection.connection_made(wire)
    connection.data_received(frames.PREFACE)
    for chunk in chunks:
        if not wire.is_closed:
            connection.data_received(chunk)
    peer = H2Connection(H2Configuration(client_side=True))
    peer.initiate_connection()
    for stream in range(1, 10, 2):
        peer.send_headers(stream, REQUEST)
    events = peer.receive_data(wire.sent)
    assert wire.is_closed == any(isinstance(event, ConnectionTerminated) for event in events)


FIELDS = st.tuples(
    st.sampled_from(["apns-id", "apns-topic", ":path", "x-odd", "content-length"]),
    st.text(st.characters(codec="ascii"), max_size=300),
)


@given(
    st.lists(st.lists(FIELDS, max_size=6), max_size=6),
    st.sampled_from([0, 60, 4096]),
    st.booleans(),
)
def test_decodes_headers_encoded_by_hpack(
    blocks: list[list[tuple[str, str]]], size: int, huffman: bool
) -> None:
    """Covers HPACK tables, table sizes and Huffman codes over several blocks."""
    encoder, reader = Encoder(), HpackDecoder()
    encoder.header_table_size = size
    for fields in blocks:
        found = reader.decode(encoder.encode(fields, huffman=huffman))
        assert found == {name.encode(): value.encode() for name, value in fields}


@given(st.binary(max_size=80))
def test_arbitrary_header_block_is_decoded_or_rejected(block: bytes) -> None:
    try:
        found = HpackDecoder().decode(block)
    except HpackError as error:
        assert str(error)  # noqa: PT017  (either is right: the point is that nothing else comes)
    else:
        assert all(isinstance(value, bytes) for value in found.values())


@pytest.mark.parametrize("status", [200, 201, 204, 400, 403, 410, 413, 429, 503])
def test_hpack_decodes_encoded_response_headers(status: int) -> None:
    wire, connection = (
        RecordingTransport(),
        Http2Connection(
            1, lambda _: Http2Response(status, ((b"apns-id", b"x" * 36),), b"body"), lambda _: None
        ),
    )
    peer = H2Connection(H2Configuration(client_side=True, header_encoding=None))
    peer.initiate_connection()
    peer.send_headers(1, REQUEST, end_stream=True)
    connection.connection_made(wire)
    connection.data_received(peer.data_to_send())
    [response] = [
        event for event in peer.receive_data(wire.sent) if isinstance(event, ResponseReceived)
    ]
    assert dict(response.headers) == {b":status": b"%d" % status, b"apns-id": b"x" * 36}
    assert encode_headers(status, ())


@pytest.mark.parametrize("missing", [":method", ":scheme", ":path"])
def test_request_without_required_headers_is_reset(missing: str) -> None:
    wire, connection = RecordingTransport(), Http2Connection(1, responses_to, lambda _: None)
    connection.connection_made(wire)
    peer = H2Connection(H2Configuration(client_side=True, validate_outbound_headers=False))
    peer.initiate_connection()
    peer.send_headers(1, [field for field in REQUEST if field[0] != missing], end_stream=True)
    peer.send_headers(3, REQUEST, end_stream=True)
    connection.data_received(peer.data_to_send())
    events = peer.receive_data(wire.sent)
    assert [event.stream_id for event in events if isinstance(event, StreamReset)] == [1]
    assert [event.stream_id for event in events if isinstance(event, ResponseReceived)] == [3]


def test_headers_after_end_stream_are_not_processed() -> None:
    seen: list[Http2Stream] = []
    wire, connection = RecordingTransport(), Http2Connection(1, seen.append, lambda _: None)
    connection.connection_made(wire)
    twice = frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 1, OPENING) * 2
    connection.data_received(frames.PREFACE + twice)
    assert len(seen) == 1
    assert wire.is_closed


def test_streams_beyond_the_limit_are_refused() -> None:
    wire, connection = RecordingTransport(), Http2Connection(1, lambda _: None, lambda _: None)
    connection.connection_made(wire)
    peer = H2Connection(H2Configuration(client_side=True))
    peer.initiate_connection()
    for number in range(MAX_STREAMS + 3):
        peer.send_headers(2 * number + 1, REQUEST, end_stream=True)
    connection.data_received(peer.data_to_send())
    refused = [
        event.stream_id for event in peer.receive_data(wire.sent) if isinstance(event, StreamReset)
    ]
    assert refused == [2 * (MAX_STREAMS + more) + 1 for more in range(3)]
