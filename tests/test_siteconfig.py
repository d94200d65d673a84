"""The controller's own settings file."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprep import settings
from gpuprep.errors import UsageError
from gpuprep.settings import Builds, SiteConfig


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yml"
    path.write_text(text)
    return path


def test_no_file_and_an_empty_file_are_the_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert settings.load() == SiteConfig()
    (tmp_path / "gpuprep").mkdir()
    (tmp_path / "gpuprep/config.yml").write_text("# nothing\n")
    assert settings.load() == SiteConfig()
    (tmp_path / "gpuprep/config.yml").write_text("forks: 9\n")
    assert settings.load().forks == 9


def test_all_keys(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "mirrors:\n  ffmpeg: https://mirror.example/ffmpeg/\n  nv_codec_headers: file:///srv/headers\n"
        "store: sqlite:////srv/h.db\nforks: 10\n"
        "builds:\n  from: [gpu-build-01, 'sim:builder', 'root@h:2222', '[::1]:22']\n  signers: /etc/signers\n",
    )
    assert settings.load(path) == SiteConfig(
        {"ffmpeg": "https://mirror.example/ffmpeg", "nv_codec_headers": "file:///srv/headers"},
        "sqlite:////srv/h.db",
        10,
        Builds(("gpu-build-01", "sim:builder", "root@h:2222", "[::1]:22"), "/etc/signers"),
    )


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("forks: many\n", ["1: forks: 'many' is not allowed"]),
        ("forks: 0\n", ["1: forks: '0' is not allowed"]),
        ("forks: true\n", ["1: forks: "]),
        ("store: 5\n", ["1: store: "]),
        ("\nforkz: 1\n", ["2: forkz: unknown key, allowed: mirrors, store, forks, builds"]),
        ("mirrors:\n  ffmpeg: [a]\n  other: x\nforks: 0\n", ["2: mirrors.ffmpeg", "3: mirrors.other", "4: forks"]),
        ("builds: all\n", ["1: builds: 'all' is not allowed"]),
        ("builds: {}\nforks: 0\n", ["2: forks"]),
        ("builds:\n  from: gpu-01\n", ["2: builds.from: 'gpu-01' is not allowed"]),
        ("builds:\n  from: ['*']\n", ["2: builds.from[0]: '*' is not allowed"]),
        ("builds:\n  from:\n    - gpu-[0-9]*\n    - -x\n", ["3: builds.from[0]", "4: builds.from[1]"]),
        ("builds:\n  from: [5, [a]]\n", ["2: builds.from[0]", "2: builds.from[1]"]),
        ("builds:\n  from: ['a{{ 1 }}', 'a b', \"a\\n\"]\n", ["2: builds.from[0]", "2: builds.from[1]"]),
        ("builds:\n  signers: signers\n", ["2: builds.signers: 'signers' is not allowed"]),
        ("builds:\n  trust: [a]\n", ["2: builds.trust: unknown key, allowed: from, signers"]),
        ("mirrors: here\n", ["1: mirrors: 'here' is not allowed"]),
        ("forks: 1\nforks: 2\n", ["2: forks: given twice"]),
        ("- a\n", ["1: (the file): "]),
        ("a: [\n", ["2: not YAML"]),
        ("a: \x07\n", ["1: not YAML"]),
    ],
)
def test_every_problem_has_its_line(tmp_path: Path, text: str, problems: list[str]) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        settings.load(path)
    lines = caught.value.what.splitlines()
    assert len(lines) >= len(problems)
    for line, problem in zip(lines, problems, strict=False):
        assert line.startswith(f"{path}:{problem}"), line


def test_what_cannot_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "config.yml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read"):
        settings.load(tmp_path / "config.yml")
