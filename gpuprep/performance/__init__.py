"""How fast can a GPU be, and where did the speed go? Pure: figures of the catalogue and of records, no hosts."""
