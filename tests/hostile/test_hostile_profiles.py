"""Profiles that would make root write, mount or read where it must not, or that read otherwise than they are.

Each is one line of a profile that extends t4, and the problem that names file, line and key.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from profiletext import problems, write

from gpuprep.desired import loading

PREFIX = [
    "/etc/cron.d", "/etc", "/tmp", "/tmp/ffmpeg", "/var/tmp/x", "/home/alice/ffmpeg", "/root/x", "/usr", "/usr/lib/x",
    "/usr/bin", "/boot/x", "/dev/shm/x", "/run/x", "/opt/../etc", "/opt/./x", "/opt//x", "/opt/x/", "/opt/.x",
    "/opt/gpuprep/agent", "/opt/gpuprep/agent/x", "/opt/gpuprep/cudnn", "/usr/local/bin", "/usr/local/lib/python3.11",
    "/usr/local/sbin/x", "/var/spool/cron", "opt/x", "/opt/-x", "/opt/x y", "/opt/{{ x }}",
]  # fmt: skip
MOUNT_POINT = [
    "/etc/ssh", "/etc/cron.d", "/usr/bin", "/usr/local", "/home", "/home/alice/data", "/root/.ssh", "/root/x",
    "/tmp/x", "/run/x", "/dev/x", "/proc/x", "/sys/x", "/boot/efi", "/var", "/var/log", "/var/lib/dpkg",
    "/var/lib/gpuprep", "/var/lib/docker2", "/opt", "/opt/gpuprep", "/opt/gpuprep/agent", "/lib/x86_64-linux-gnu",
    "/data/../etc", "/mnt/./x", "/mnt//x", "/mnt/..", "/data/",
]  # fmt: skip
DEVICE = ["/dev/shm/image", "/dev/fd/3", "/dev/../tmp/image", "/tmp/image", "/dev/.x", "-o", "UUID=../x", "/dev/pts/1"]
OPTIONS = [
    "bind", "defaults,bind", "rbind", "remount", "loop", "loop=/dev/loop0,ro", "user", "users,exec", "group",
    "X-mount.mkdir=0777", "helper=x", "defaults,", "a b", "uhelper=x,ro", "move",
]  # fmt: skip
METRICS = [
    "/etc/cron.d", "/home/alice", "/tmp", "/root", "/usr/bin", "/var/lib/../../etc", "/var/lib", "/srv/./x",
    "/srv/a b", "/proc/1", "relative", "/srv/$(id)", "/var/log/x",
]  # fmt: skip
TOKEN = ["/dev/zero", "/proc/self/environ", "/sys/x", "/etc/../dev/zero", "/root/./token", "/etc/a b", "/etc/$(id)"]
MOUNT = "{{device: {device}, path: {path}, fstype: ext4, options: {options}}}"


def mount(device: str = "/dev/vdb1", path: str = "/data", options: str = "defaults") -> str:
    return "extras:\n  mount: " + MOUNT.format(device=f"'{device}'", path=f"'{path}'", options=f"'{options}'")


BAD_PLACES = [
    *((f"codec:\n  prefix: '{path}'", "3: codec.prefix: is the text ", "/opt") for path in PREFIX),
    *((mount(path=path), "3: extras.mount.path: is the text ", "/data") for path in MOUNT_POINT),
    *((mount(device=device), "3: extras.mount.device: is the text ", "/dev/nvme1n1") for device in DEVICE),
    *((mount(options=option), "3: extras.mount.options: is the text ", "defaults,nofail") for option in OPTIONS),
    *(
        (f"drift:\n  textfile_directory: '{path}'", "3: drift.textfile_directory: is the text ", "/var/lib")
        for path in METRICS
    ),
    *(
        (f"drift:\n  notify:\n    token_file: '{path}'", "4: drift.notify.token_file: is the text ", "absolute path")
        for path in TOKEN
    ),
]


@pytest.mark.parametrize(("text", "begins", "allowed"), BAD_PLACES, ids=[" ".join(p[0].split()) for p in BAD_PLACES])
def test_a_place_that_is_not_the_profiles_to_give(tmp_path: Path, text: str, begins: str, allowed: str) -> None:
    (told,) = problems(write(tmp_path, f"extends: t4\n{text}\n"))
    assert told.startswith(begins), told
    assert "; allowed: " in told
    assert allowed in told.partition("; allowed: ")[2]


WAIVER = "waivers:\n  - finding: {finding}\n    hosts: {hosts}\n    justification: {why}\n    expires: '2026-12-31'"


def waiver(finding: str = "driver.version", hosts: str = "a", why: str = "known") -> str:
    return WAIVER.format(finding=f'"{finding}"', hosts=f'"{hosts}"', why=f'"{why}"')


# In YAML's own escapes, so that the table can be read.
TEXTS = [
    ('description: "safe \\u202e gpj.exe"', "2: description: holds the character U+202E"),
    ('description: "a\\u200bb"', "2: description: holds the character U+200B"),
    ('description: "a\\u2066b"', "2: description: holds the character U+2066"),
    ('description: "a\\xADb"', "2: description: holds the character U+00AD"),
    ('description: "\\U000E0041"', "2: description: holds the character U+E0041"),
    ('"dri\\u200bver": {}', "2: file: holds the character U+200B"),
    (waiver(why="ok \\u202e"), "5: waivers[0].justification: holds the character U+202E"),
    (waiver(why="ok \\e[2J"), "5: waivers[0].justification: holds the character U+001B"),
    (waiver(hosts="a\\u200fb"), "4: waivers[0].hosts: holds the character U+200F"),
    (waiver(finding="a\\u061cb"), "3: waivers[0].finding: holds the character U+061C"),
    (waiver(why="a" * 1001), "5: waivers[0].justification: is the text"),
    (waiver(hosts="a" * 256), "4: waivers[0].hosts: is the text"),
    (waiver(finding="a" * 201), "3: waivers[0].finding: is the text"),
    (waiver(why="two\\nlines"), "5: waivers[0].justification: is the text"),
    ('drift: {notify: {command: "mail \\u202e root"}}', "2: drift.notify.command: holds the character U+202E"),
    (f"drift: {{notify: {{command: '{'a' * 2001}'}}}}", "2: drift.notify.command: is the text"),
    ('drift: {notify: {webhook: "https://a\\u200b.example/"}}', "2: drift.notify.webhook: holds the character U+200B"),
    ("drift: {notify: {webhook: 'https://exämple/'}}", "2: drift.notify.webhook: is the text"),
    (f"drift: {{notify: {{webhook: 'https://a/{'b' * 2000}'}}}}", "2: drift.notify.webhook: is the text"),
    ("drift: {notify: {webhook: 'file:///etc/shadow'}}", "2: drift.notify.webhook: is the text"),
    (f"description: '{'a' * 201}'", "2: description: is the text"),
    ("description: fine\n# \u202e true: dloh {:revird", "3: file: holds the character U+202E"),
    ("description: fine # \u2066 hidden", "2: file: holds the character U+2066"),
]


@pytest.mark.parametrize(("text", "begins"), TEXTS, ids=[ascii(" ".join(t[0].split())[:60]) for t in TEXTS])
def test_a_text_that_reads_otherwise_than_it_is(tmp_path: Path, text: str, begins: str) -> None:
    (told,) = problems(write(tmp_path, f"extends: t4\n{text}\n"))
    assert told.startswith(begins), told
    assert told.isprintable()


@pytest.mark.parametrize(
    "text",
    [
        *(f"codec: {{prefix: {path}}}" for path in ("/opt", "/opt/video-1.2", "/srv/tools", "/usr/local/gpuprep")),
        *(mount(path=path) for path in ("/data", "/mnt", "/mnt/a/b", "/srv", "/opt/models", "/var/lib/docker")),
        *(mount(device=device) for device in ("/dev/disk/by-id/nvme-x", "UUID=0a-1", "LABEL=data", "/dev/mapper/v-d")),
        *(mount(options=options) for options in ("noatime,x-systemd.device-timeout=9", "subvol=@data", "usrquota")),
        *(f"drift: {{textfile_directory: {path}}}" for path in ("/var/lib/x/textfile", "/srv/metrics", "''")),
        *(f"drift: {{notify: {{token_file: {path}}}}}" for path in ("/etc/gpuprep/token", "/run/secrets/t", "''")),
        "description: 'Größe, 深い, ünïcode – and a tab\t'",
    ],
    ids=lambda text: " ".join(text.split()),
)
def test_what_operators_write_stays_allowed(tmp_path: Path, text: str) -> None:
    loading.load(write(tmp_path, f"extends: t4\n{text}\n"))
