"""Code shared by all backends: HTTP, authentication, jobs, logs and metrics.

Each module is small and independent. `http`, `body`, `endpoints`, `openapi`, `docs` and `server`
handle requests. `auth`, `keyring`, `token_issuer`, `cursors`, `encryption` and `keyfile` handle
credentials and secrets. `hub` and `event_stream` serve server-sent events. `jobs`,
`locks`, `retry` and `breaker` run work that may fail. `logs` and `metrics` report on all of it.
docs/kit.md describes how they work together.
"""
