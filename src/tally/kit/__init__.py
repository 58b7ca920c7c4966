"""What all backends share, and nothing that only one of them needs.

Each module stands alone and is small: `clock` and `ids`; `cursors`, `auth` and `keyfile` for what
is signed or secret; `http`, `body`, `openapi`, `docs` and `server` for requests; `hub` for
server-sent events; `jobs`, `retry` and `breaker` for work that time starts and others may fail;
`logs` and `metrics` for whoever looks after it. docs/kit.md says how they fit.
"""
