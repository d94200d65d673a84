"""Which op launched which kernel, in which iteration? Trace ► Profile."""
