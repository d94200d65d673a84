"""How much of what comes from a host, a file or a network is read, and how is it made safe to show? Stdlib only."""
