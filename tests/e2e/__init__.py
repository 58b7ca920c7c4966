"""Everything together: simulated services on real sockets, gateways, jobs and store, from the first ball to the last push."""
