"""Which driver are these packages with prebuilt kernel modules built for? Prints JSON; changes nothing.

Arguments: names such as linux-modules-nvidia-580-server-open-aws. Each depends on the modules of one kernel, and these
on one version of the driver. Printed: {"packages": ["NAME=VERSION"], "drivers": ["580.126.20"], "absent": [names that
are not offered]}.
Stdlib only, Python 3.9 or newer.
"""

import json
import os
import re
import subprocess
import sys

NEEDED = re.compile(r"(linux-modules-nvidia-[a-z0-9.+-]+) \(= ")
BUILT_FOR = re.compile(r"nvidia-kernel-common-[a-z0-9-]+ \(>= ([0-9]{3}(?:\.[0-9]{1,4}){1,3})[)-]")


def shown(name):
    """The fields of the version of a package that apt would install; {} if it has none."""
    command = ["apt-cache", "show", "--no-all-versions", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    lines = [
        line.partition(": ")[::2] for line in done.stdout.split("\n\n")[0].splitlines() if not line.startswith(" ")
    ]
    return dict(lines) if done.returncode == 0 else {}


def main():
    found = {name: shown(name) for name in sys.argv[1:]}
    needed = {kernel for fields in found.values() for kernel in NEEDED.findall(fields.get("Depends", ""))}
    modules = {kernel: shown(kernel) for kernel in sorted(needed)}
    drivers = {driver for fields in modules.values() for driver in BUILT_FOR.findall(fields.get("Depends", ""))}
    absent = [name for name, fields in {**found, **modules}.items() if "Version" not in fields]
    packages = [f"{name}={fields['Version']}" for name, fields in found.items() if "Version" in fields]
    json.dump({"packages": packages, "drivers": sorted(drivers), "absent": absent}, sys.stdout)


main()
