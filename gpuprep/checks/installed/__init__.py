"""Is the wanted software installed and held, and do programs get it? Also the settings of the GPUs."""
