"""What the console shows, asked for without a browser: counts, rates, and what it says of a backend in trouble."""
