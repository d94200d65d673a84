"""Which archives of packages does a simulated machine install from, beside Debian's own?

Stubs with the real names, versions and relations (data/), built, indexed and signed once on this computer. NVIDIA's and
Ubuntu's own packages cannot be had everywhere, and an archive that tests can shape shows what a newer branch would do.
"""
