"""The role's FFmpeg build against plain tar, configure, `make -j`, install of the same sources with the same options.

    python tests/bench/bench_ffmpeg.py MACHINE     MACHINE is a simulated VM that has gpuprep's FFmpeg

Both run on the same machine in one go, each once: a build takes minutes. Both run at the role's niceness, so that other
work on the computer slows them alike. Neither touches the FFmpeg that is installed.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from gpuprep import sim
from gpuprep.catalogue.agent import role_folder
from gpuprep.remote import Host
from gpuprep.sim import mirror

FOLDER = "/var/lib/gpuprep/bench"
USER = "gpuprep-build"
NICE = 5
LIMIT = 1.15
PLAIN = """
set -e; cd {folder}/plain
mkdir headers src; tar -xf ../ours/headers.tar -C headers --strip-components=1
tar -xf ../ours/ffmpeg.tar -C src --strip-components=1
make -C headers install PREFIX={folder}/plain/nv
cd src
mapfile -t flags <../../ours/flags
PKG_CONFIG_PATH={folder}/plain/nv/lib/pkgconfig ./configure "${{flags[@]}}"
make -j"$(nproc)"
make install-progs DESTDIR={folder}/plain/out
"""


def build(machine: str) -> tuple[float, float]:
    """Seconds of the role's build and of the plain one, in `machine`."""
    role = role_folder("gpu_codec")
    with Host(sim.target(machine)) as host:
        spec = prepare(host, role)
        theirs = timed(host, f"nice -n {NICE} runuser -u {USER} -- bash -c {shlex.quote(PLAIN.format(folder=FOLDER))}")
        unit = f"systemd-run --wait --collect --quiet --uid={USER} --gid={USER} --nice={NICE}"
        unit += f" --property=WorkingDirectory={FOLDER}/ours/work"
        script = f"/bin/bash {FOLDER}/codec/build.sh {spec['release_key']}"
        ours = timed(
            host,
            f"{unit} {script}; grep -qx ok {FOLDER}/ours/work/result || {{ cat {FOLDER}/ours/work/result; exit 1; }}",
        )
        must(host, f"rm -rf {FOLDER}")
    return ours, theirs


def prepare(host: Host, role: Path) -> dict[str, Any]:
    """What tasks/start.yml puts there, in a folder of its own, and an empty one for the plain build."""
    manifest = json.loads(host.get("/opt/gpuprep/ffmpeg/current/manifest.json"))
    system, _, release = manifest["os"].partition("-")
    packages = yaml.safe_load((role / "vars" / f"{system.capitalize()}-{release}.yml").read_text())
    names = " ".join(packages["gpu_codec_build_packages"])
    must(host, f"DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends {names}")
    must(host, f"id {USER} || useradd --system --home-dir /var/lib/gpuprep/build --shell /usr/sbin/nologin {USER}")
    must(host, f"rm -rf {FOLDER} && mkdir -p {FOLDER}/codec {FOLDER}/ours/work {FOLDER}/plain")
    for file in (role / "files" / "codec").iterdir():
        if file.is_file():
            host.put(file.read_bytes(), f"{FOLDER}/codec/{file.name}", become=True)
    sources = Path(mirror.ensure()["ffmpeg"].removeprefix("file://"))
    tarball = f"ffmpeg-{manifest['version']}.tar.xz"
    digests = []
    for name, source in (
        ("ffmpeg.tar", tarball),
        ("ffmpeg.tar.asc", f"{tarball}.asc"),
        ("headers.tar", f"nv-codec-headers-{manifest['headers_version']}.tar.gz"),
    ):
        host.put((sources / source).read_bytes(), f"{FOLDER}/ours/{name}", become=True)
        digests.append(f"{mirror.sha256_of(sources / source)}  {name}\n")
    host.put((role / "files" / "codec" / "release-key.asc").read_bytes(), f"{FOLDER}/ours/release-key.asc", become=True)
    variables = yaml.safe_load((role / "vars" / "main.yml").read_text())
    spec = {
        **{key: manifest[key] for key in ("key", "os", "arch", "npp", "parts")},
        "ffmpeg": manifest["version"],
        "headers": manifest["headers_version"],
        "prefix": "/opt/gpuprep",
        "unit": variables["gpu_codec_unit"],
        "release_key": variables["gpu_codec_release_key"],
    }
    host.put(json.dumps(spec).encode(), f"{FOLDER}/ours/spec.json", become=True)
    host.put("".join(digests).encode(), f"{FOLDER}/ours/sources.sha256", become=True)
    must(host, f"python3 -B {FOLDER}/codec/sealing.py plan {FOLDER}/ours && chown -R {USER}: {FOLDER}")
    return spec


def timed(host: Host, command: str) -> float:
    start = time.perf_counter()
    must(host, command)
    return time.perf_counter() - start


def must(host: Host, command: str) -> None:
    done = host.run(command, become=True, timeout=3600)
    if done.exit_code != 0:
        sys.exit(f"{command[:200]}: exit {done.exit_code}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


if __name__ == "__main__":
    seconds = build(sys.argv[1])
    ratio = seconds[0] / seconds[1]
    sys.stdout.write(
        f"FFmpeg build / plain make -j: {ratio:.2f}x (limit {LIMIT}x) {seconds[0]:.1f} s / {seconds[1]:.1f} s\n"
    )
    sys.exit(ratio > LIMIT)
