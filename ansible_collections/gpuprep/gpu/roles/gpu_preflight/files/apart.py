"""Runs a program apart from whoever called it: from the folder /, with umask 022 and nothing of the environment but proxies.

A PYTHONPATH, a PIP_INDEX_URL, a pip.conf beside XDG_CONFIG_DIRS or a pip.py in the caller's folder would otherwise choose
what root runs. Arguments: the program and its own arguments. Stdlib only, Python 3.9 or newer.
"""

import os
import pwd
import sys

PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")

names = [*PROXIES, *(name.upper() for name in PROXIES)]
environment = {name: os.environ[name] for name in names if name in os.environ}
environment["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
environment["HOME"] = pwd.getpwuid(os.getuid()).pw_dir
environment["LC_ALL"] = "C.UTF-8"
os.chdir("/")
os.umask(0o022)
os.execvpe(sys.argv[1], sys.argv[1:], environment)
