"""How much input from hosts, files and networks do we read, and how do we make it safe to show? Stdlib only."""
