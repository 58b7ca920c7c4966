"""The HTTP edge of the scoreboard: routes, handlers, bodies, authentication and the SSE stream."""
