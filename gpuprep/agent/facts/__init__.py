"""Which facts does the machine have: system, packages, driver, CUDA, FFmpeg, containers? `system` reads them all."""
