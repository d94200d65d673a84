"""What drift offers to put back."""

from __future__ import annotations

from gpuprep.records import Fix

TUNE = "systemctl restart gpuprep-tune.service"


FIXES = (
    Fix("gpu 0.clocks", "set clocks", TUNE, 0, "", "585 MHz", "1590 MHz"),
    Fix("gpu 0.compute_mode", "set clocks", TUNE, 0, "", "prohibited", "default"),
    Fix("driver.held", "hold the packages again", "apt-mark hold libcuda1", 100, "E: no lock\nbusy", "free", "free"),
)
