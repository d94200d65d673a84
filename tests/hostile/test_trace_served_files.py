"""A folder of profiles that somebody else may write to: what is served of it, and what is not."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gpuprep.trace import web

SECRET = '{"type": "service_account", "private_key": "TOPSECRET"}'
EVENT = '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "%s", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}'


def asker(found: Mapping[str, Path], *folders: Path) -> Callable[[str, str], tuple[str, bytes]]:
    """Asks a server of these profiles for an address of a run: status and body."""
    application = web.application(web.Library(lambda: found, folders))

    def answer(name: str, run: str) -> tuple[str, bytes]:
        told: list[str] = []
        environ: dict[str, Any] = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": f"/{name}",
            "QUERY_STRING": f"run={quote(run, safe='')}",
        }
        body = application(environ, lambda status, *_: told.append(status))  # type: ignore[arg-type]
        whole = b"".join(body)
        getattr(body, "close", lambda: None)()  # as a server does
        return told[0], whole

    return answer


def ask(found: dict[str, Path], name: str, run: str) -> tuple[str, bytes]:
    return asker(found)(name, run)


@pytest.mark.parametrize("address", ["raw", "perfetto", "page", "document.json"])
def test_a_link_to_a_file_that_is_no_profile_gives_nothing_of_it(tmp_path: Path, address: str) -> None:
    """TensorBoard takes a run by its name alone, and often answers a whole network."""
    (tmp_path / "secret").write_text(SECRET)
    link = tmp_path / "run.pt.trace.json"
    link.symlink_to(tmp_path / "secret")
    status, body = ask({"run": link}, address, "run")
    assert status[:3] in ("404", "422"), (status, body)
    assert b"TOPSECRET" not in body
    assert str(tmp_path).encode() not in body


@pytest.mark.parametrize("address", ["raw", "perfetto", "page", "document.json"])
@pytest.mark.parametrize("how", ["a link", "a link to a link", "a folder that became one", "a relative one"])
def test_a_link_out_of_the_folder_gives_nothing_of_a_real_profile(tmp_path: Path, how: str, address: str) -> None:
    """Another run of this user, in a folder that is not shown, is a profile as well."""
    private, shown = tmp_path / "private", tmp_path / "shown"
    private.mkdir()
    shown.mkdir()
    (private / "run.json").write_text(EVENT % "SECRETNAME")
    run = shown / "run.json"
    if how == "a folder that became one":
        (shown / "deep").symlink_to(private)
        run = shown / "deep" / "run.json"
    elif how == "a link to a link":
        (shown / "other").symlink_to(private / "run.json")
        run.symlink_to("other")
    else:
        run.symlink_to("../private/run.json" if how == "a relative one" else private / "run.json")
    status, body = asker({"run": run}, shown)(address, "run")
    assert status[:3] == "422"
    assert b"SECRETNAME" not in body
    if run.is_symlink():
        assert b"run=run" not in asker({"run": run}, shown)("index.html", "")[1]


def test_a_link_inside_the_folder_and_a_linked_folder_are_served(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/run.json").write_text(EVENT % "aten::mine")
    (tmp_path / "real/newest.json").symlink_to("run.json")
    (tmp_path / "logs").symlink_to("real")
    ask = asker({"newest": tmp_path / "logs/newest.json"}, tmp_path / "logs")
    assert b"aten::mine" in ask("document.json", "newest")[1]
    assert ask("raw", "newest")[0] == "200 OK"


@pytest.mark.parametrize(
    "run", ["../../etc/passwd", "/etc/passwd", "%2e%2e", "<script>", "run\0", "\r\nSet-Cookie: a=b"]
)
@pytest.mark.parametrize("address", ["raw", "page", "perfetto"])
def test_a_name_that_was_not_found_is_never_a_path(tmp_path: Path, address: str, run: str) -> None:
    status, body = ask({"run": tmp_path / "x.json"}, address, run)
    assert (status[:3], b"there is no such run" in body) == ("422", True)


def test_a_file_that_changed_in_place_is_read_again_though_its_size_and_time_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    answer = asker({"run": path})
    pages = []
    for name in ("one", "two"):
        path.write_text(EVENT % f"aten::{name}")
        os.utime(path, ns=(1, 1))
        pages.append(answer("document.json", "run")[1])
    assert b"aten::two" in pages[1]
    assert pages[0] != pages[1]


@pytest.mark.parametrize("address", ["raw", "page"])
@pytest.mark.parametrize("name", ["run.pt.trace.json", "run.pt.trace.json.gz", "run.nsys.sqlite"])
def test_a_pipe_with_the_name_of_a_profile_is_not_waited_for(tmp_path: Path, name: str, address: str) -> None:
    os.mkfifo(tmp_path / name)
    status, _ = ask({"run": tmp_path / name}, address, "run")
    assert status[:3] in ("404", "422")
