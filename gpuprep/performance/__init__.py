"""How fast can a GPU be, and where was speed lost? Uses figures of the catalogue and of records, no hosts."""
