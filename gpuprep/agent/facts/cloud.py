"""The machine's cloud, type and name in that cloud, from DMI, cloud-init and the metadata service.

Nothing leaves the machine's own network: the metadata service has a link-local address, and is asked only where DMI
names a cloud and nothing on the machine says the type.
"""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Tuple

from gpuprep.agent import host_paths
from gpuprep.agent.programs.run import read_text
from gpuprep.records import CloudFacts, Missing, OptStr
from gpuprep.records.cloudnames import is_name
from gpuprep.untrusted.limits import json_document

DMI = Path(host_paths.DMI)
XEN = Path("/sys/hypervisor/uuid")
CLOUD_INIT = Path("/run/cloud-init/instance-data.json")
METADATA = "169.254.169.254"
SECONDS = 1.0  # until the metadata service must have answered
MOST_BYTES = 4096  # of its answer
TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,63}")
# How cloud-init's ds-identify recognises a cloud.
AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"
AWS_VENDOR = "Amazon EC2"  # on Nitro the product's name is the type; on Xen (p2, p3) it is not
GOOGLE_PRODUCTS = ("Google Compute Engine", "Google")
# Where cloud-init's datasource of each cloud puts the type.
KEPT: Dict[str, Tuple[str, ...]] = {
    "aws": ("ds", "meta_data", "instance-type"),
    "azure": ("ds", "meta_data", "imds", "compute", "vmSize"),
}
# Google's default host name contains the machine's name; a chosen host name does not.
GOOGLE_HOST = re.compile(r"([a-z0-9-]{1,63})(?:\.[a-z0-9-]{1,63})?\.c\.([a-z0-9-]{1,30})\.internal")
# Path and headers of the question to the metadata service.
ASKED: Dict[str, Tuple[str, Dict[str, str]]] = {
    "aws": ("/latest/meta-data/instance-type", {}),
    "azure": ("/metadata/instance/compute/vmSize?api-version=2021-02-01&format=text", {"Metadata": "true"}),
    "gcp": ("/computeMetadata/v1/instance/machine-type", {"Metadata-Flavor": "Google"}),
}


def facts(
    *, simulated: bool, dmi: Path = DMI, xen: Path = XEN, kept: Path = CLOUD_INIT, metadata: str = METADATA
) -> Optional[CloudFacts]:
    """Cloud and machine type; None: no known cloud. `simulated`: DMI is not read."""
    if simulated:
        return None
    cloud = provider(dmi, xen)
    if cloud is None:
        return None
    nitro = cloud == "aws" and _text(dmi / "sys_vendor") == AWS_VENDOR
    named = _text(dmi / "product_name") if nitro else ""
    name = next((name for name in _names(cloud, dmi, kept) if is_name(cloud, name)), None)
    if TYPE.fullmatch(named):
        return CloudFacts(cloud, named, "DMI", name)
    instance_type = _kept(KEPT[cloud], kept) if cloud in KEPT else ""
    if TYPE.fullmatch(instance_type):
        return CloudFacts(cloud, instance_type, "cloud-init", name)
    return CloudFacts(cloud, ask(cloud, metadata), "metadata service", name)


def _names(cloud: str, dmi: Path, kept: Path) -> Iterator[str]:
    """Candidates for the machine's name in commands of its cloud, best first."""
    if cloud == "aws":
        region = _kept(("v1", "region"), kept)
        ids = (_text(dmi / "board_asset_tag"), _kept(("v1", "instance_id"), kept))
        yield from (f"{region}/{one}" for one in ids)
        yield from ids
    elif cloud == "azure":
        yield _kept(("ds", "meta_data", "imds", "compute", "resourceId"), kept)
    else:
        host = GOOGLE_HOST.fullmatch(_kept(("ds", "meta_data", "local-hostname"), kept))
        if host:
            yield f"{host[2]}/{_kept(('v1', 'availability_zone'), kept)}/{host[1]}"


def provider(dmi: Path = DMI, xen: Path = XEN) -> Optional[str]:
    """ "aws", "azure", "gcp" or None."""
    if _text(dmi / "chassis_asset_tag") == AZURE_TAG:
        return "azure"
    if _text(dmi / "product_name") in GOOGLE_PRODUCTS or _text(dmi / "product_serial").startswith("GoogleCloud-"):
        return "gcp"
    ids = (_text(dmi / "product_uuid"), _text(dmi / "product_serial"))
    by_ids = all(text.lower().startswith("ec2") for text in ids)  # root alone may read them
    if _text(dmi / "sys_vendor") == AWS_VENDOR or by_ids or _text(xen).lower().startswith("ec2"):
        return "aws"
    return None


def ask(cloud: str, metadata: str = METADATA) -> OptStr:
    """The type from the metadata service; Missing if it does not answer within a second, or not with a type."""
    path, headers = ASKED[cloud]
    try:
        if cloud == "aws":  # version 2 of the service gives a token first
            seconds = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
            headers = {"X-aws-ec2-metadata-token": _answer(metadata, "PUT", "/latest/api/token", seconds)}
        text = _answer(metadata, "GET", path, headers)
    except (OSError, ValueError) as error:
        return Missing("command_failed", f"the metadata service: {error}")
    instance_type = text.strip().rpartition("/")[2]  # Google's: projects/NUMBER/machineTypes/TYPE
    return (
        instance_type
        if TYPE.fullmatch(instance_type)
        else Missing("unparsable", f"the metadata service: {instance_type[:80]!r}")
    )


def _answer(host: str, method: str, path: str, headers: Dict[str, str]) -> str:
    """The answer's text. Raises OSError, also for a redirect; ValueError if it is not a short ASCII text."""
    from http.client import HTTPConnection, HTTPException  # few machines need it, and its import takes a while

    connection = HTTPConnection(host, timeout=SECONDS)
    until, read = time.monotonic() + SECONDS, b""
    with contextlib.closing(connection):
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise OSError(f"HTTP {answer.status}")
            while len(read) < MOST_BYTES and time.monotonic() < until:
                part = answer.read1(MOST_BYTES - len(read))
                if not part:
                    return read.decode("ascii")
                read += part
        except HTTPException as error:
            raise OSError(f"no HTTP: {error!r}") from error
    raise ValueError(f"an answer longer than {MOST_BYTES} bytes or {SECONDS:g} s")


def _kept(keys: Tuple[str, ...], path: Path) -> str:
    text = read_text(path)
    if not isinstance(text, str):
        return ""
    try:
        node: Any = json_document(text)
    except ValueError:
        return ""
    for key in keys:
        node = node.get(key) if isinstance(node, dict) else None
    return node if isinstance(node, str) else ""


def _text(path: Path) -> str:
    text = read_text(path)
    return text.strip() if isinstance(text, str) else ""
