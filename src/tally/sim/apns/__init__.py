"""A simulator of Apple's push service: HTTP/2 over TLS with Apple's paths, checks, answers and channels, and faults on demand.

What it accepts goes on to the virtual devices that own the token or listen to the channel.
`simulator.Apns` is what tests and the demo hold. The HTTP/2 in `http2`, `frames` and `headers` is
written for speed: the library `h2`, which does all that a server could want, takes four times as
long for a push as the client that is to be measured against it.
"""
