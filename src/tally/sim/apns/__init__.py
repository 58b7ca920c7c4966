"""Simulates the Apple Push Notification service: HTTP/2 over TLS, channels, fault injection.

Accepted pushes are delivered to the virtual devices that own the token or subscribe to the channel.
Tests and the demo use `simulator.ApnsSimulator`.

`http2`, `frames`, `streams` and `hpack_codec` are a small HTTP/2 server written for speed: with the
`h2` library, the server takes four times as long per push as the client under measurement.
"""
