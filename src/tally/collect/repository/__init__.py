"""Tables and accesses: `main` joins the accesses of the one big table, which stand in a file for each kind of item."""
