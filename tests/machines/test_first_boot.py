"""A new VM certifies itself by the user data of docs/cloud; an image that Packer made of it has nothing of it.

cloud-init is Debian's own, with the seed of its source NoCloud. Everything else of the example is as it is: it installs
gpuprep from the wheel with pip, restarts the machine, validates, and phones home.

Packer runs the template's provisioners on the machine (packerprogram.py). Where Packer is not to be had, the test
runs the two scripts itself, as Packer would.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import packerprogram
import pytest
from machines import GPUPREP, Done, fresh, gpuprep, inside, must, run
from places import ROOT

from gpuprep.sim.archive import repository

pytestmark = [pytest.mark.e2e, pytest.mark.only_all]

CLOUD = ROOT / "docs/cloud"
SCRIPT = (CLOUD / "packer/clean.sh").read_text(encoding="utf-8")
REPORT, UNIT = "/var/lib/gpuprep/first-boot.json", "gpuprep-first-boot.service"
MOST_REPORT = 64 << 10
MINUTES = 45.0  # the driver is compiled, on a computer that others use
# The driver alone: what else a profile asks for does not change how a machine starts.
PROFILE = """\
extends: base
description: the driver alone
driver: {{source: {source}}}
cuda: {{version: none}}
cudnn: {{version: none}}
codec: {{ffmpeg: none}}
extras: {{tools: []}}
waivers:
  - {{finding: cuda.compiles, hosts: "*", justification: no toolkit, expires: 2099-01-01}}
  - {{finding: cupti.counters, hosts: "*", justification: no toolkit, expires: 2099-01-01}}
"""
# cloud-init 25.1 with the driver of Debian's own archive, and 22.4 with NVIDIA's repository (stubs).
SYSTEMS = {"debian13": "distribution", "debian12": "nvidia"}
# For which cloud the template's provisioners are. On Google Cloud the account goes with the builder, on AWS it stays.
CLOUDS = {"debian13": "googlecompute", "debian12": "amazon-ebs"}
# Of a cloud's image, which knows its own source and that the network is there.
OF_THE_IMAGE = "datasource_list: [NoCloud]\nnetwork: {config: disabled}\n"
# As Google's guest agent makes the account that Packer asks for; the key comes on standard input.
ACCOUNT = """\
set -e
groupadd google-sudoers
echo '%google-sudoers ALL=(ALL:ALL) NOPASSWD:ALL' >/etc/sudoers.d/google_sudoers
useradd --create-home --shell /bin/bash --groups google-sudoers packer
install -d -m 700 -o packer -g packer /home/packer/.ssh
cat >/home/packer/.ssh/authorized_keys
"""
SEED = "/var/lib/cloud/seed/nocloud"
# Where a simulated machine has NVIDIA's repository.
MIRRORS = f"mirrors: {{nvidia: file:///{repository.INSIDE}/nvidia, nvidia_key: /{repository.INSIDE}/key.asc}}\n"


class Home(BaseHTTPRequestHandler):
    server: Phone

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.told = json.loads(self.rfile.read(min(length, MOST_REPORT)))
        self.send_response(204)
        self.end_headers()
        self.server.called.set()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Phone(HTTPServer):
    """Whom the machine calls: a simulated machine has the network of its computer."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Home)
        self.called = threading.Event()
        self.told: dict[str, Any] = {}


@dataclass(frozen=True)
class Login:
    """An SSH key in a home of its own: a controller that has never seen a machine."""

    home: Path

    @classmethod
    def made(cls, home: Path) -> Login:
        home.mkdir()
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / "key")], check=True)
        return cls(home)

    @property
    def public(self) -> str:
        return (self.home / "key.pub").read_text().strip()

    @property
    def environment(self) -> dict[str, str]:
        cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
        own = {f"XDG_{name}_HOME": str(self.home / name.lower()) for name in ("STATE", "CONFIG")}
        path = f"{Path(GPUPREP).parent}:{os.environ['PATH']}"
        return {**os.environ, **own, "HOME": str(self.home), "XDG_CACHE_HOME": cache, "PATH": path}

    def gpuprep(self, command: str, vm: Vm, *words: str) -> Done:
        """Of this controller on the machine, over SSH, as on any machine that is not simulated."""
        host = f"debian@127.0.0.1:{vm.port}"
        login = ["--ssh-key", str(self.home / "key"), "--accept-new-host-key"]
        command_line = [*command.split(), host, "--profile", str(vm.profile), *login, *words]
        done = gpuprep(*command_line, environment=self.environment)
        assert done.exit_code == 0, done.text[-6000:]
        return done

    def ssh(self, vm: Vm, command: str, text: str = "") -> Done:
        options = ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={os.devnull}"]
        key = ["-o", "IdentitiesOnly=yes", "-i", str(self.home / "key")]
        done = subprocess.run(
            ["ssh", *options, *key, "-p", str(vm.port), "debian@127.0.0.1", command],
            input=text, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class Vm:
    machine: str
    cloud: str
    port: int
    profile: Path
    phone: Phone

    def put(self, path: str, content: bytes) -> None:
        """Through the door of the simulation: what a cloud puts onto a disk before it boots."""
        self.pipe(f"mkdir -p $(dirname {path}) && cat >{path}", content)

    def pipe(self, command: str, content: bytes) -> Done:
        done = subprocess.run(
            [GPUPREP, "sim", "exec", self.machine, "--", "sh", "-c", command],
            input=content, capture_output=True, check=False,
        )  # fmt: skip
        return Done(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    def seed(self, instance: str, login: Login) -> None:
        """The example's user data with its three lines filled in, and the key for the login that every cloud adds."""
        (wheel,) = (ROOT / "dist").glob("gpuprep-*.whl")
        self.put(f"/root/{wheel.name}", wheel.read_bytes())
        self.put("/root/profile.yml", self.profile.read_bytes())
        self.put("/root/.config/gpuprep/config.yml", MIRRORS.encode())
        text = (CLOUD / "user-data.yaml").read_text(encoding="utf-8")
        for name, value in {
            "PACKAGE": f"/root/{wheel.name}",
            "PROFILE": "/root/profile.yml",
            "PHONE_HOME": f"http://127.0.0.1:{self.phone.server_address[1]}/?token=s3cret",
        }.items():
            (line,) = [line for line in text.splitlines() if line.strip().startswith(f"GPUPREP_{name}=")]
            text = text.replace(line, f"{line.partition('=')[0]}={value}")
        text += f"\nssh_authorized_keys:\n  - {login.public}\n"
        self.put(f"{SEED}/user-data", text.encode())
        self.put(f"{SEED}/meta-data", f"instance-id: {instance}\nlocal-hostname: {instance}-gpu\n".encode())

    def boot(self) -> dict[str, Any]:
        """Off and on; then what the machine tells when it calls. The file on its disk says the same."""
        self.phone.called.clear()
        must("sim", "down", "--keep", self.machine)
        must("sim", "up", self.machine)
        called = self.phone.called.wait(60 * MINUTES)
        seen = inside(self.machine, f"cat {REPORT}; journalctl -u {UNIT} -n 40 --no-pager", check=False)
        assert called, seen.text[-6000:]
        text = inside(self.machine, f"cat {REPORT}").stdout
        assert len(text) < MOST_REPORT
        assert "s3cret" not in text
        assert json.loads(text) == self.phone.told
        return self.phone.told

    def identity(self) -> dict[str, str]:
        """What no other machine has. The GPU is not among it: the board stays in this simulated slot."""
        return {
            "machine id": inside(self.machine, "cat /etc/machine-id").stdout.strip(),
            "host name": inside(self.machine, "uname -n").stdout.strip(),
            **{
                f"{kind} key": inside(self.machine, f"cut -d' ' -f2 /etc/ssh/ssh_host_{kind}_key.pub").stdout.strip()
                for kind in ("ed25519", "ecdsa", "rsa")
            },
        }

    def gpu(self) -> str:
        (line,) = inside(self.machine, "grep UUID /proc/driver/nvidia/gpus/*/information").stdout.splitlines()
        return line.split()[-1]


@pytest.fixture(params=SYSTEMS)
def vm(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Vm]:
    """A machine as a cloud starts it: with cloud-init, and nothing of gpuprep."""
    system = str(request.param)
    with Phone() as phone, fresh(f"e2e-firstboot-{system}", system, ["t4"]) as machine:
        profile = tmp_path / "profile.yml"
        profile.write_text(PROFILE.format(source=SYSTEMS[system]))
        (port,) = [m["port"] for m in must("sim", "list", "--json").json()["machines"] if m["name"] == machine]
        threading.Thread(target=phone.serve_forever, daemon=True).start()
        inside(machine, "apt-get update -qq && apt-get install -y -qq --no-install-recommends cloud-init >/dev/null")
        made = Vm(machine, CLOUDS[system], port, profile, phone)
        made.put("/etc/cloud/cloud.cfg.d/99-image.cfg", OF_THE_IMAGE.encode())
        yield made
        phone.shutdown()


def test_a_machine_certifies_itself_and_an_image_of_it_has_nothing_of_it(
    vm: Vm, tmp_path: Path, packer_or_why: packerprogram.Packer | str
) -> None:
    builder, user = Login.made(tmp_path / "builder"), Login.made(tmp_path / "user")
    vm.seed("i-builder", builder)
    is_certified(vm, vm.boot(), restarted=True)

    builder.gpuprep("drift schedule", vm)  # so that facts of a certified run are there
    was = vm.identity()
    owned = [(builder.home / "key.pub").read_text().split()[1], vm.gpu(), *was.values()]
    is_full_of_the_builder(vm, builder)
    assert baked(vm, builder, packer_or_why, tmp_path / "image") == "not needed"
    nothing_is_left(vm, builder, owned)

    vm.seed("i-user", user)
    is_certified(vm, vm.boot(), restarted=False)
    now = vm.identity()
    assert [name for name in was if was[name] == now[name] or not now[name]] == []
    assert builder.ssh(vm, "true").exit_code == 255
    assert user.ssh(vm, "true").exit_code == 0
    # The image is whole: nothing to do for another controller, and nothing that differs.
    (run,) = user.gpuprep("provision", vm, "--json").json()["runs"]
    assert run["playbook"]["status"] == "not needed"
    (drift,) = user.gpuprep("drift", vm, "--json").json()["runs"]
    assert {f["status"] for f in drift["findings"]} <= {"PASS", "SKIP"}


def is_certified(vm: Vm, report: dict[str, Any], *, restarted: bool) -> None:
    assert report["status"] == "certified", report
    last = report["steps"][-1]
    assert (last["command"], last["exit_code"], last["verdict"]) == ("validate", 0, "PASS")
    assert (report["reboots"] > 0) == restarted
    assert report["starts"] == report["reboots"] + 1
    print({step["command"]: step["seconds"] for step in report["steps"]}, report["reboots"])
    assert "status: done" in inside(vm.machine, "cloud-init status", check=False).stdout
    assert inside(vm.machine, f"systemctl is-enabled {UNIT}", check=False).stdout.strip() == "disabled"
    assert inside(vm.machine, "systemctl --failed --no-legend").stdout == ""
    # In brackets, so that it does not find the line in which systemd tells of this command.
    assert inside(vm.machine, "journalctl --no-pager | grep -i 'ordering cycl[e]'", check=False).stdout == ""


def is_full_of_the_builder(vm: Vm, builder: Login) -> None:
    assert builder.ssh(vm, "cat >/tmp/script.sh", SCRIPT).exit_code == 0
    found = builder.ssh(vm, "sudo sh /tmp/script.sh --check")
    assert found.exit_code == 1
    for left in (
        "/etc/machine-id is not empty",
        "/etc/ssh/ssh_host_ed25519_key is there",
        "/etc/gpuprep/drift.json names the builder",
        "/home/debian/.ssh/authorized_keys is there",
        "/root/.local/state/gpuprep is there",
        f"{REPORT} is there",
        "/etc/gpuprep/first-boot.conf is there",
    ):
        assert left in found.stdout.splitlines()


def baked(vm: Vm, builder: Login, packer: packerprogram.Packer | str, folder: Path) -> str:
    """Provisioned and cleaned by the template of docs/cloud/packer; how its playbook ended."""
    account = "debian"
    if vm.cloud == "googlecompute":
        account = "packer"
        vm.pipe(ACCOUNT, builder.public.encode())
    text = packerprogram.on_a_machine(packerprogram.template(), vm.cloud, vm.port, account)
    packerprogram.written(folder, text)
    before = sorted(builder.home.rglob("*"))
    if isinstance(packer, str):
        print(f"without Packer: {packer}")
        as_packer_does(vm, builder, account, folder)
    else:
        given = ["-var", f"profile={vm.profile}", "-var", f"key_file={builder.home / 'key'}"]
        words = ["build", "-only=gpuprep.null.builder", *given, "."]
        done = packer.run(folder, *words, environment=builder.environment)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said[-6000:]
        assert "gpuprep.null.builder: nothing is left of the builder" in said
        print(said[-500:])
    assert sorted(builder.home.rglob("*")) == before  # neither a record nor a host key of the builder
    (written,) = folder.glob("gpuprep-profile-*.json")  # its name has the profile's and the time
    (record,) = json.loads(written.read_text())["runs"]
    assert record["verdict"]["status"] == "PASS"
    return str(record["playbook"]["status"])


def as_packer_does(vm: Vm, builder: Login, account: str, folder: Path) -> None:
    given = {
        "BUILD_HOST": "127.0.0.1", "BUILD_PORT": str(vm.port), "BUILD_USER": account,
        "BUILD_KEY": str(builder.home / "key"), "PROFILE": str(vm.profile),
        "RECORD": str(folder / "gpuprep-profile-now.json"),
    }  # fmt: skip
    done = run([str(folder / "provision.sh")], environment={**builder.environment, **given})
    assert done.exit_code == 0, done.text[-4000:]
    assert builder.ssh(vm, "cat >/tmp/script.sh", SCRIPT).exit_code == 0
    own = f"--user {account}" if vm.cloud == "googlecompute" else ""
    done = builder.ssh(vm, f"sudo sh /tmp/script.sh {own}")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "nothing is left of the builder"), done.text


def nothing_is_left(vm: Vm, builder: Login, owned: list[str]) -> None:
    again = vm.pipe("sh -s -- --check", SCRIPT.encode())
    assert again.exit_code == 0, again.text
    assert inside(vm.machine, "ls /home; getent passwd packer", check=False).stdout.split() == ["debian"]
    # And without its list: no file of the disk holds a word that only the builder has, in clear or in a database.
    assert all(len(word) > 8 for word in owned)
    folders = "/boot /etc /home /opt /root /srv /usr /var"
    named = vm.pipe(f"grep -r -l -F -a -s -D skip -f - {folders}", "\n".join(owned).encode())
    assert named.stdout == ""
    assert builder.ssh(vm, "true").exit_code == 255
