"""How fast can a GPU be, and where was speed lost? Pure: uses figures of the catalogue and of records, no hosts."""
