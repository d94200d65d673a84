"""The program of `make canary`."""

from __future__ import annotations

import sys

from places import ROOT
from programfile import module_of

sys.path.append(str(ROOT / ".ci"))  # canary_rpm
CANARY = module_of(ROOT / ".ci/canary.py")
