"""Who lives, on whom all agree, and how daemons' messages come over."""
