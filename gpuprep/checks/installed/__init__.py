"""Is the wanted software installed, held, and what a program gets? Also the settings of the GPUs. Pure."""
