"""The gateway to Apple's push service (APNs): pushes over HTTP/2, and broadcast channels.

`gateway` implements the port `PushGateway`. `connection_pool` limits the requests in flight per
connection, `token_queue` orders the pushes to one token, and `push_stream` sends many pushes
concurrently. `transport` opens the connections, `requests` and `channels` speak Apple's HTTP API,
and `provider_token` authenticates the requests.
"""
