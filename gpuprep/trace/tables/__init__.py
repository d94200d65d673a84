"""What do the sums of a range of iterations say? Profile ► document."""
