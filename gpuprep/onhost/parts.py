"""What travels to a GPU machine, as patterns inside the package `gpuprep`. The role gpu_agent reads this file, too."""

# Facts, probes and tuning: sent along to a machine without an agent. Stdlib and pynvml, Python 3.9 or newer.
STREAMED = (
    "__init__.py", "errors.py", "gpufacts.py", "limits.py", "plaintext.py", "recordcodec.py", "records.py",
    "onhost/**/*.py",
)  # fmt: skip
# Judgement, for the nightly check on the machine itself. PyYAML and prometheus-client too, Python 3.10 or newer.
JUDGING = (
    "attribution.py",
    "baselines.py",
    "catalogue/*.py",
    "catalogue/*.yml",
    "checks/**/*.py",
    "drift.py",
    "exposition.py",
    "hostrules.py",
    "moments.py",
    "probing.py",
    "refusals.py",
    "roofline.py",
    "runids.py",
    "selfcheck/**/*.py",
    "shapes.py",
    "showable.py",
    "slowdowns.py",
    "textmetrics.py",
    "verdict.py",
    "waivers.py",
    "wanted.py",
    "wishes.py",
)
INSTALLED = (*STREAMED, *JUDGING)
