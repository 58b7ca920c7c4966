"""The HTTP edge: routes, handlers, request and response schemas, authentication and SSE streams."""
