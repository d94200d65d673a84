"""How does a host return to the driver that it had, without network and without the controller?

The role gpu_driver copies this package as one file (host_paths.ROLLBACK_PROGRAM) before it changes a driver, so it
depends neither on the agent, which the same run replaces, nor on the driver. Python 3.9 or newer, stdlib only.

    saved     what is kept: the packages, settings and figures of the driver that worked, and the journal of the change
    save      keeps them
    packages  apt and dpkg, or dnf and rpm
    working   does the driver work, and is it the one that is expected?
    back      the steps of the way back; each can be broken off and done again
    program   the commands, and what a boot does
"""
