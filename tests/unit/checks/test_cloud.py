"""Which cloud and type a machine is of, and whether it has the GPUs of its type."""

from __future__ import annotations

import dataclasses
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import bare_snapshot, finished_snapshot, load, resolved
from places import ROOT
from records_for_tests import record

from gpuprep import catalogue, checks, errors, records
from gpuprep.agent.facts import cloud
from gpuprep.catalogue import clouds
from gpuprep.catalogue import xids as catalogue_xids
from gpuprep.checks import commands
from gpuprep.desired import state

NITRO = {"sys_vendor": "Amazon EC2", "product_name": "g4dn.12xlarge"}
XEN = {"sys_vendor": "Xen", "product_uuid": "EC2E1916-9099-7CAF-FD21-012345ABCDEF", "product_serial": "ec2e1916-9099"}
AZURE = {"sys_vendor": "Microsoft Corporation", "chassis_asset_tag": cloud.AZURE_TAG}
AZURE_ID = "/subscriptions/0a1b/resourceGroups/gpu.rg/providers/Microsoft.Compute/virtualMachines/gpu-7"
GOOGLE = {"product_name": "Google Compute Engine", "product_serial": "GoogleCloud-0123"}
GOOGLE_HOST = "gpu-7.us-west1-b.c.team-1.internal"
Serve = Callable[[Callable[[BaseHTTPRequestHandler], None]], str]


FINISHED = finished_snapshot(resolved(), bare_snapshot())


def google(host: str) -> dict[str, Any]:
    return {"v1": {"availability_zone": "us-west1-b"}, "ds": {"meta_data": {"local-hostname": host}}}


def dmi(folder: Path, texts: dict[str, str]) -> Path:
    made = folder / "dmi"
    made.mkdir()
    for name, text in texts.items():
        (made / name).write_text(text + "\n")
    return made


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """A metadata service that answers as a test says; on a busy computer that takes longer than in a cloud."""
    monkeypatch.setattr(cloud, "SECONDS", 300.0)
    servers: list[ThreadingHTTPServer] = []

    def start(answer: Callable[[BaseHTTPRequestHandler], None]) -> str:
        class Handler(BaseHTTPRequestHandler):
            do_GET = do_PUT = answer

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return f"127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def say(handler: BaseHTTPRequestHandler, text: str, code: int = 200, **headers: str) -> None:
    handler.send_response(code)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(text.encode())


def service(handler: BaseHTTPRequestHandler) -> None:
    """As the three clouds answer: each to those alone who ask in its own way."""
    asked, of = (handler.command, handler.path), handler.headers
    if asked == ("PUT", "/latest/api/token") and of["X-aws-ec2-metadata-token-ttl-seconds"]:
        say(handler, "token")
    elif asked == ("GET", "/latest/meta-data/instance-type") and of["X-aws-ec2-metadata-token"] == "token":
        say(handler, "p3.2xlarge")
    elif handler.path.startswith("/metadata/instance/compute/vmSize?") and of["Metadata"] == "true":
        say(handler, "Standard_NC6s_v3")
    elif handler.path == "/computeMetadata/v1/instance/machine-type" and of["Metadata-Flavor"] == "Google":
        say(handler, "projects/123456/machineTypes/a2-highgpu-2g")
    else:
        say(handler, "no", 401)


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (NITRO, records.CloudFacts("aws", "g4dn.12xlarge", "DMI", None)),
        (XEN, records.CloudFacts("aws", "p3.2xlarge", "metadata service", None)),
        (AZURE, records.CloudFacts("azure", "Standard_NC6s_v3", "metadata service", None)),
        (GOOGLE, records.CloudFacts("gcp", "a2-highgpu-2g", "metadata service", None)),
        ({"sys_vendor": "Dell Inc.", "product_name": "PowerEdge XE9680"}, None),
        ({"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine"}, None),  # Hyper-V
        ({}, None),
    ],
)
def test_a_machine_of_a_cloud(
    tmp_path: Path, serve: Serve, texts: dict[str, str], found: records.CloudFacts | None
) -> None:
    places = {"dmi": dmi(tmp_path, texts), "xen": tmp_path / "none", "kept": tmp_path / "none"}
    assert cloud.facts(simulated=False, metadata=serve(service), **places) == found
    assert cloud.facts(simulated=True, metadata=serve(service), **places) is None


@pytest.mark.parametrize(
    ("texts", "kept", "named"),
    [
        ({**NITRO, "board_asset_tag": "i-0123456789abcdef0"}, {}, "i-0123456789abcdef0"),
        (XEN, {"v1": {"instance_id": "i-0123abcd"}}, "i-0123abcd"),
        (XEN, {"v1": {"instance_id": "i-0123abcd", "region": "us-gov-west-1"}}, "us-gov-west-1/i-0123abcd"),
        (XEN, {"v1": {"instance_id": "i-0123abcd", "region": "--region=eu"}}, "i-0123abcd"),
        (AZURE, {"ds": {"meta_data": {"imds": {"compute": {"resourceId": AZURE_ID}}}}}, AZURE_ID),
        *((GOOGLE, google(host), "team-1/us-west1-b/gpu-7") for host in (GOOGLE_HOST, "gpu-7.c.team-1.internal")),
        (GOOGLE, google("db.corp.example"), None),  # chosen: the machine has another name
        (GOOGLE, {"v1": {"availability_zone": "us-west1-b", "local_hostname": "gpu-7"}}, None),
        (GOOGLE, {"v1": {"availability_zone": "us-west1-b"}}, None),
        (NITRO, {"v1": {"instance_id": "i-0123abcd; rm -rf /"}}, None),
        (AZURE, {"ds": {"meta_data": {"imds": {"compute": {"resourceId": "/subscriptions/$(id)"}}}}}, None),
    ],
)
def test_the_name_of_a_machine_in_its_cloud(
    tmp_path: Path, serve: Serve, texts: dict[str, str], kept: Any, named: str | None
) -> None:
    (tmp_path / "kept").write_text(json.dumps(kept))
    places = {"dmi": dmi(tmp_path, texts), "xen": tmp_path / "none", "kept": tmp_path / "kept"}
    seen = cloud.facts(simulated=False, metadata=serve(service), **places)
    assert seen
    assert seen.instance == named


def test_xen_says_it_to_an_ordinary_user_too(tmp_path: Path) -> None:
    (tmp_path / "uuid").write_text("ec2e1916-9099-7caf-fd21-012345abcdef\n")
    assert cloud.provider(dmi(tmp_path, {"sys_vendor": "Xen"}), tmp_path / "uuid") == "aws"


@pytest.mark.parametrize(
    ("texts", "document", "found"),
    [
        (XEN, {"ds": {"meta_data": {"instance-type": "p3.16xlarge"}}}, "p3.16xlarge"),
        (AZURE, {"ds": {"meta_data": {"imds": {"compute": {"vmSize": "Standard_ND40rs_v2"}}}}}, "Standard_ND40rs_v2"),
    ],
)
def test_what_cloud_init_kept_needs_no_network(
    tmp_path: Path, texts: dict[str, str], document: Any, found: str
) -> None:
    kept = tmp_path / "instance-data.json"
    kept.write_text(json.dumps(document))
    places = {"dmi": dmi(tmp_path, texts), "xen": tmp_path / "none", "kept": kept}
    seen = cloud.facts(simulated=False, metadata="127.0.0.1:1", **places)
    assert seen is not None
    assert (seen.instance_type, seen.told_by) == (found, "cloud-init")


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"ds": 5}', '{"ds": {"meta_data": {"instance-type": "a b\\u0007"}}}', "[" * 100_000, "\x00\xff"],
    ids=["empty", "list", "number", "control", "deep", "binary"],
)
def test_strange_files_of_cloud_init_are_no_answer(tmp_path: Path, text: str) -> None:
    kept = tmp_path / "instance-data.json"
    kept.write_text(text)
    places = {"dmi": dmi(tmp_path, XEN), "xen": tmp_path / "none", "kept": kept}
    seen = cloud.facts(simulated=False, metadata="127.0.0.1:1", **places)
    assert seen is not None
    assert isinstance(seen.instance_type, records.Missing)
    assert seen.instance_type.reason == "command_failed"


@pytest.mark.parametrize(
    "answer",
    [
        lambda handler: say(handler, "x" * 100_000),
        lambda handler: say(handler, "a type with spaces; rm -rf /"),
        lambda handler: say(handler, "\x1b[31mred"),
        lambda handler: say(handler, "", 302, Location="http://127.0.0.1:1/elsewhere"),
        lambda handler: say(handler, "p3.2xlarge", 500),
    ],
    ids=["long", "words", "escapes", "elsewhere", "error"],
)
def test_a_strange_metadata_service_is_a_missing_reading(
    serve: Serve, answer: Callable[[BaseHTTPRequestHandler], None]
) -> None:
    found = cloud.ask("gcp", serve(answer))
    assert isinstance(found, records.Missing)
    assert len(found.detail) < 200


def test_a_metadata_service_that_drips_is_left_after_a_second(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud, "SECONDS", 0.5)
    sent = []

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b"x")
                sent.append(b"x")
                time.sleep(0.05)
        except OSError:
            return

    found = cloud.ask("gcp", serve(drip))
    assert isinstance(found, records.Missing)
    assert len(sent) < 2000, "not only the size of the answer ended it"


# ---------------------------------------------------------------- the catalogue


def test_every_type_is_there_once_is_read_as_one_and_has_boards_of_one_model(tmp_path: Path) -> None:
    document = yaml.safe_load((Path(catalogue.__file__).parent / "clouds.yml").read_text(encoding="utf-8"))
    types = [(entry["cloud"], name) for entry in document["machines"] for name in entry["types"]]
    assert len({(provider, name.lower()) for provider, name in types}) == len(types) >= 50
    here = dmi(tmp_path, NITRO)
    for _, name in types:
        (here / "product_name").write_text(name)
        seen = cloud.facts(simulated=False, dmi=here, xen=tmp_path / "none", kept=tmp_path / "none")
        assert seen == records.CloudFacts("aws", name, "DMI", None)
    for entry in document["machines"]:
        assert 1 <= entry["gpus"] <= 16
        assert len({catalogue.boards()[board].model.key for board in entry["boards"]}) == 1


def test_the_user_of_each_image_is_tried_and_the_page_shows_the_same_images() -> None:
    document = yaml.safe_load((Path(catalogue.__file__).parent / "logins.yml").read_text(encoding="utf-8"))
    page = (ROOT / "docs/quickstart.md").read_text(encoding="utf-8")
    for image in document["images"]:
        system = next(key for key in document["systems"] if key in image["system"].lower() or key == "other")
        chosen = image["user"] == "CHOSEN"
        said = document["systems"][system]["says"]
        tried = clouds.image_users(said, f"x{document['clouds'][image['cloud']]['ends']}", "alice")
        assert chosen or image["user"] in tried
        user = "you choose it" if chosen else f"`{image['user']}`"
        place = f"{clouds.name(image['cloud'])} | {image['system']} | `{image['name']}` | {image['owner']} | {user}"
        assert f"| {place} |\n" in page


# ---------------------------------------------------------------- the check


def with_gpus(count: int, instance_type: Any, provider: str = "aws") -> records.Snapshot:
    first = FINISHED.pci_gpus[0]
    devices = tuple(dataclasses.replace(first, address=f"0000:00:{slot:02x}.0") for slot in range(count))
    return dataclasses.replace(FINISHED, pci_gpus=devices, cloud=records.CloudFacts(provider, instance_type, "DMI"))


def judged(snapshot: records.Snapshot) -> list[records.Finding]:
    return [one for one in checks.compare(resolved(), snapshot) if one.key == "gpus.of_machine_type"]


@pytest.mark.parametrize(
    ("count", "type_name", "status", "words"),
    [
        (1, "g4dn.xlarge", records.Status.PASS, ""),
        (4, "g4dn.12xlarge", records.Status.PASS, ""),
        (3, "g4dn.12xlarge", records.Status.FAIL, "GPUs on the PCI bus: 3; a machine of type AWS g4dn.12xlarge has 4"),
        (0, "g4dn.xlarge", records.Status.FAIL, "GPUs on the PCI bus: 0; a machine of type AWS g4dn.xlarge has 1"),
        (2, "g4dn.xlarge", records.Status.UNKNOWN, "the machine or the catalogue is wrong"),
        (1, "p3.2xlarge", records.Status.UNKNOWN, "the machine or the catalogue is wrong"),
        (1, "x1.unknown", records.Status.SKIP, "does not say which GPUs AWS x1.unknown has"),
        (1, records.Missing("command_failed", "timed out"), records.Status.SKIP, "could not be read"),
    ],
)
def test_the_gpus_of_a_type(count: int, type_name: Any, status: records.Status, words: str) -> None:
    (finding,) = judged(with_gpus(count, type_name))
    assert finding.status is status
    assert words in finding.reason
    assert finding.remedy or status in (records.Status.PASS, records.Status.SKIP)


def test_no_cloud_is_no_finding() -> None:
    for seen in (None, records.Missing("not_read")):
        assert judged(dataclasses.replace(FINISHED, cloud=seen)) == []


def test_a_part_of_a_gpu_is_refused() -> None:
    snapshot = with_gpus(1, "standard_nv6ads_a10_v5", "azure")
    with pytest.raises(errors.PlanRefused, match=r"host.cloud: Azure Standard_NV6ads_A10_v5 has a part of a GPU"):
        state.resolve(load("t4"), snapshot)


def test_other_devices_are_no_gpus() -> None:
    audio = records.PciDevice("0000:00:1f.0", "10de", "10f8", "040300")
    snapshot = with_gpus(1, "g4dn.xlarge")
    (finding,) = judged(dataclasses.replace(snapshot, pci_gpus=(*snapshot.pci_gpus, audio)))
    assert finding.status is records.Status.PASS


# ---------------------------------------------------------------- what only the machine's owner can do

MAY_BE_EITHER = re.compile("the provider|server's maker|machine is rented|if it is yours|check (fans|slot|the power)")
NO_NAME = "; type on your own computer: "
NAMED = "; compare the name, then type on your own computer: "
AWS_OFF = "`aws ec2 stop-instances --region eu-west-1 --instance-ids i-0123abcd`, then `aws ec2 wait instance-stopped"
AZURE_OFF = f"{NAMED}`az vm redeploy --ids {AZURE_ID}`"
MOMENT = "2026-11-28T10:00:00+00:00"
GOOGLE_OFF = (
    "`gcloud compute instances stop gpu-7 --project team-1 --zone us-west1-b --discard-local-ssd=true`, then"
    " `gcloud compute instances start gpu-7 --project team-1 --zone us-west1-b`"
)


# What a board, its slot or its cooling has: on a T4, and on an A100 where the T4 cannot have it.
FAULTS: tuple[dict[str, Any], ...] = (
    {"temperature_c": 96},
    {"event_reasons": 0x40},
    {"event_reasons": 0x80},
    {"retired_pages": records.RetiredPages(80, 0, False)},
    {"ecc_errors": records.EccErrors(0, 3, 0, 3)},
    {"ecc_errors": records.EccErrors(10**6, 0, 10**6, 0)},
    {"pcie_errors": records.PcieErrors(0, 0, 4)},
    {"recovery_action": "bus_reset"},
    {"temperature_c": records.Missing("gpu_is_lost")},
)


def hardware_remedies() -> Iterator[str]:
    gpus = FINISHED.gpus
    assert not isinstance(gpus, records.Missing)
    seen = [dataclasses.replace(FINISHED, gpus=(dataclasses.replace(gpus[0], **fault),)) for fault in FAULTS]
    address = gpus[0].pci_address or ""
    seen += [dataclasses.replace(FINISHED, xids=(records.Xid(code, address, "", MOMENT),)) for code in (48, 64, 79, 94)]
    for snapshot in seen:
        found = [
            one
            for one in checks.compare(resolved(), snapshot)
            if one.status in (records.Status.FAIL, records.Status.WARN)
        ]
        assert found
        yield from (one.remedy for one in found)


@pytest.mark.parametrize(
    ("provider", "named", "said"),
    [
        ("aws", "eu-west-1/i-0123abcd", f"{NAMED}{AWS_OFF}"),
        ("aws", "i-0123abcd", f"{NAMED}`aws ec2 stop-instances --region REGION --instance-ids i-0123abcd`"),
        ("azure", AZURE_ID, AZURE_OFF),
        ("gcp", "team-1/us-west1-b/gpu-7", f"{NAMED}{GOOGLE_OFF}"),
        ("aws", None, f"{NO_NAME}`aws ec2 stop-instances --region REGION --instance-ids INSTANCE`"),
        *(
            ("aws", named, f"{NO_NAME}`aws ec2 stop-instances --region REGION --instance-ids INSTANCE`")
            for named in ("i-0 `id`; $(id)", "i-0123abcd\n", "i-1" * 200_000, "--region=eu")
        ),
        ("azure", AZURE_ID + "\u0660", f"{NO_NAME}`az vm redeploy --ids INSTANCE`"),
        *(
            ("gcp", named, f"{NO_NAME}`gcloud compute instances stop NAME --project PROJECT --zone ZONE")
            for named in ("noslash", "us-west1-b/gpu-7", "team-1/--zone=a/gpu-7")
        ),
    ],
    ids=lambda text: str(text)[:12],
)
def test_a_clouds_machine_gets_its_clouds_advice(provider: str, named: str | None, said: str) -> None:
    """Who rents has nobody to ask but the cloud, and no fans to look at."""
    rented = dataclasses.replace(FINISHED, cloud=records.CloudFacts(provider, "t4.none", "DMI", named))
    moved = 0
    for remedy in hardware_remedies():
        words = commands.expanded(remedy, record(after=rented), "gpu 0")
        assert not MAY_BE_EITHER.search(words), words
        assert ("stop the machine" in words) == (said in words)
        assert ("what is on its local disks is lost" in words) == (said in words)
        moved += said in words
        assert commands.expanded(remedy, record(after=FINISHED), "gpu 0") == remedy.replace("INDEX", "0")
    assert moved >= 8


@pytest.mark.parametrize(
    ("provider", "type_name", "named", "reported"),
    [
        ("gcp", "a3-highgpu-8g", "team-1/us-west1-b/gpu-7", True),
        ("gcp", "a4-highgpu-8g", "team-1/us-west1-b/gpu-7", True),
        ("gcp", "a3-highgpu-1g", "team-1/us-west1-b/gpu-7", False),
        ("gcp", "g2-standard-24", "team-1/us-west1-b/gpu-7", False),
        ("aws", "p5en.48xlarge", "eu-west-1/i-0123abcd", False),
        ("azure", "Standard_ND96isr_H200_v5", AZURE_ID, False),
    ],
)
def test_the_computer_is_reported_where_the_cloud_takes_reports(
    provider: str, type_name: str, named: str, reported: bool
) -> None:
    rented = dataclasses.replace(FINISHED, cloud=records.CloudFacts(provider, type_name, "DMI", named))
    lost = catalogue_xids.xid(79).remedy
    words = commands.expanded(lost, record(after=rented), "gpu 0")
    command = "`gcloud compute instances report-host-as-faulty gpu-7 --project team-1 --zone us-west1-b --disruption"
    assert (command in words) is reported
    assert "stop the machine and start it again" in words
    update = catalogue_xids.xid(78).remedy  # nobody needs another computer for it
    assert "report-host" not in commands.expanded(update, record(after=rented), "gpu 0")


@pytest.mark.parametrize("provider", ["\\g<9>", "\\1", "hetzner", ""])
def test_a_cloud_that_the_catalogue_lacks_changes_no_advice(provider: str) -> None:
    rented = dataclasses.replace(FINISHED, cloud=records.CloudFacts(provider, "t4.none", "DMI", "i-0123abcd"))
    for remedy in hardware_remedies():
        assert commands.expanded(remedy, record(after=rented), "") == remedy
