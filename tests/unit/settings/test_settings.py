"""The controller's own settings file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuprep import errors, settings
from gpuprep.desired import loading


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yml"
    path.write_text(text)
    return path


def test_no_file_and_an_empty_file_are_the_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert settings.load() == settings.SiteConfig()
    (tmp_path / "gpuprep").mkdir()
    (tmp_path / "gpuprep/config.yml").write_text("# nothing\n")
    assert settings.load() == settings.SiteConfig()
    (tmp_path / "gpuprep/config.yml").write_text("forks: 9\n")
    assert settings.load().forks == 9


def test_all_keys(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "mirrors:\n  ffmpeg: https://mirror.example/ffmpeg/\n  nv_codec_headers: file:///srv/headers\n"
        "store: sqlite:////srv/h.db\nforks: 10\nkeep_days: 365\n"
        "builds:\n  from: [gpu-build-01, 'sim:builder', 'root@h:2222', '[::1]:22']\n  signers: /etc/signers\n",
    )
    assert settings.load(path) == settings.SiteConfig(
        {"ffmpeg": "https://mirror.example/ffmpeg", "nv_codec_headers": "file:///srv/headers"},
        "sqlite:////srv/h.db",
        10,
        365,
        settings.Builds(("gpu-build-01", "sim:builder", "root@h:2222", "[::1]:22"), "/etc/signers"),
    )


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("forks: many\n", ["1: forks: 'many' is not allowed"]),
        ("forks: 0\n", ["1: forks: '0' is not allowed"]),
        ("keep_days: 0\n", ["1: keep_days: '0' is not allowed, want a whole number from 1 to 36500"]),
        ("keep_days: 99999999999\n", ["1: keep_days: '99999999999' is not allowed"]),
        ("forks: true\n", ["1: forks: "]),
        ("store: 5\n", ["1: store: "]),
        ("\nforkz: 1\n", ["2: forkz: unknown key, allowed: mirrors, store, forks, keep_days, builds"]),
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
        ("mirrors:\n  nvidia: ftp://x\n", ["2: mirrors.nvidia: 'ftp://x' is not allowed"]),
        ("mirrors:\n  nvidia: 'https://x y'\n", ["2: mirrors.nvidia: 'https:***' is not allowed"]),
        ('mirrors:\n  nvidia: "https://x\\nSuites: y"\n', ["2: mirrors.nvidia: "]),
        ("mirrors:\n  nvidia_key: own.asc\n", ["2: mirrors.nvidia_key: 'own.asc' is not allowed"]),
        ("forks: 1\nforks: 2\n", ["2: forks: is given twice; the first is on line 1"]),
        ("- a\n", ["1: file: holds a list; a settings file is a mapping"]),
        ("a: [\n", ["1: file: is not valid YAML"]),
        ("a: \x07\n", ["1: file: is not text: it holds the character U+0007"]),
    ],
)
def test_every_problem_has_its_line(tmp_path: Path, text: str, problems: list[str]) -> None:
    path = write(tmp_path, text)
    with pytest.raises(errors.UsageError) as caught:
        settings.load(path)
    lines = caught.value.what.splitlines()
    assert len(lines) >= len(problems)
    for line, problem in zip(lines, problems, strict=False):
        assert line.startswith(f"{path}:{problem}"), line


def test_what_cannot_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "config.yml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(errors.UsageError, match="cannot be read"):
        settings.load(tmp_path / "config.yml")


# What no file of the user may hold, be it a profile or settings: the text, and the line, key and reason.
REFUSED_IN_BOTH: dict[str, tuple[bytes, str]] = {
    "twice": (b"forks: 1\nforks: 2\n", "2: forks: is given twice; the first is on line 1"),
    "twice-inside": (b"a:\n  b: 1\n  b: 2\n", "3: a.b: is given twice; the first is on line 2"),
    "anchor": (b"a: &x 1\n", "1: a: the anchor &x is not supported; write the value out"),
    "alias": (b"a: *x\n", "1: a: the alias *x is not supported; write the value out"),
    "laughs": (
        b"a: &a [1]\nb: &b [*a,*a,*a]\nc: [*b,*b,*b]\n", "1: a: the anchor &a is not supported; write the value out"
    ),
    "merge": (b"a:\n  <<: {b: 1}\n", "2: a: the merge key << is not supported; "),
    "tag": (b"a: !!python/object:os.system x\n", "1: a: the tag !!python/object:os.system is not supported"),
    "key-tag": (b"!x a: 1\n", "1: file: the tag !x is not supported"),
    "octal": (b"forks: 010\n", "1: forks: 010 is a number to some YAML readers; write it in quotes: '010'"),
    "yes": (b"a: yes\n", "1: a: yes means true or false to some YAML readers"),
    "sexagesimal": (b"forks: 1:30\n", "1: forks: 1:30 is a number to some YAML readers"),
    "long-number": (b"forks: " + b"9" * 5000 + b"\n", "1: forks: 999"),
    "number-as-key": (b"5: 1\n", "1: file: the number 5 cannot be a key; keys are plain words"),
    "list-as-key": (b"? [a]\n: 1\n", "1: file: a list cannot be a key; keys are plain words"),
    "two-documents": (b"a: 1\n---\nb: 1\n", "2: file: holds a second YAML document"),
    "list": (b"- a\n", "1: file: holds a list; a "),
    "deep": (b"a: " + b"[" * 5000 + b"]" * 5000 + b"\n", "1: file: is nested deeper than 20 levels, which no "),
    "deep-mapping": (b"a: " + b"{a: " * 5000 + b"1" + b"}" * 5000 + b"\n", "1: file: is nested deeper than 20 levels"),
    "large": (b"# " + b"x" * (64 << 10) + b"\n", "1: file: is larger than 64 KiB, the most a "),
    "tab": (b"a:\n\tb: 1\n", "2: file: is not valid YAML: a tab; indent with spaces"),
    "open": (b"a: [1,\n", "1: file: is not valid YAML"),
    "beyond-unicode": (b'a: "\\UFFFFFFFF"\n', "1: file: is not valid YAML"),
    "control": (b"a: b\n# \x07\n", "2: file: is not text: it holds the character U+0007"),
    "turned": ("# \u202e\na: 1\n".encode(), "1: file: holds the character U+202E, which is not text"),
    "not-utf8": (b"a: 1\nb: \xff\n", "2: file: is not UTF-8 text: byte 0xff cannot be read; save the file as UTF-8"),
    "utf16": ("a: 1\n".encode("utf-16"), "1: file: is not UTF-8 text: byte 0xff cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED_IN_BOTH)
def test_settings_and_profiles_are_read_by_the_same_rules(tmp_path: Path, case: str) -> None:
    text, problem = REFUSED_IN_BOTH[case]
    path = tmp_path / "config.yml"
    path.write_bytes(text)
    with pytest.raises(errors.UsageError) as of_settings:
        settings.load(path)
    with pytest.raises(errors.ProfileError) as of_profile:
        loading.load(str(path))
    for caught in (of_settings.value, of_profile.value):
        assert any(line.startswith(f"{path}:{problem}") for line in caught.what.splitlines()), caught.what


def test_a_profiles_words_are_not_those_of_settings(tmp_path: Path) -> None:
    path = write(tmp_path, "a: &x 1\n<<: {b: 1}\n---\n")
    with pytest.raises(errors.UsageError) as caught:
        settings.load(path)
    words = caught.value.what.replace(str(path), "")
    assert "a settings file is one document" in words
    assert not re.search("profile|extends", words)


@pytest.mark.parametrize("text", ["", "# a\n", "---\n", "---\n# a\n...\n", "~\n", "{}\n"])
def test_an_empty_file_is_the_defaults(tmp_path: Path, text: str) -> None:
    assert settings.load(write(tmp_path, text)) == settings.SiteConfig()


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: os.mkfifo(path)], ids=["folder", "fifo"])
def test_what_is_no_file_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "config.yml")
    with pytest.raises(errors.UsageError, match=r"config\.yml:1: file: is "):
        settings.load(tmp_path / "config.yml")


# Files before and after `keep_days: 30` was put into them.
PUT = {
    "": "keep_days: 30\n",
    "# nothing yet": "# nothing yet\nkeep_days: 30\n",
    "---\n": "---\nkeep_days: 30\n",
    "forks: 9": "forks: 9\nkeep_days: 30\n",
    "# mine\nkeep_days: 365 # a year\n# end\n": "# mine\nkeep_days: 30 # a year\n# end\n",
    "'keep_days'  :\n  365\nforks: 9\n": "'keep_days'  :\n  30\nforks: 9\n",
    "\ufeffforks: 9\r\nkeep_days: 1\r\n": "\ufeffforks: 9\r\nkeep_days: 30\r\n",
    "forks: 9   # all\r\n": "forks: 9   # all\r\nkeep_days: 30\r\n",
    "{forks: 9}\n": "{keep_days: 30, forks: 9}\n",
    "{}": "{keep_days: 30, }",
    "{forks: 9, keep_days: 4}\n": "{forks: 9, keep_days: 30}\n",
    "  forks: 9\n  # that was all\n": "  forks: 9\n  keep_days: 30\n  # that was all\n",
    "builds:\n  from: [a, b]  # two\n\n# the end\n": "builds:\n  from: [a, b]  # two\nkeep_days: 30\n\n# the end\n",
    "builds:\n  from:\n  - a\n  - b # b\n...\n": "builds:\n  from:\n  - a\n  - b # b\nkeep_days: 30\n...\n",
    'mirrors:\n  "ffmpeg": "https://x/y#z" # ü keep_days: 5\n': (
        'mirrors:\n  "ffmpeg": "https://x/y#z" # ü keep_days: 5\nkeep_days: 30\n'
    ),
}


@pytest.mark.parametrize("before", PUT)
def test_a_setting_is_put_into_the_file_and_the_rest_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    elsewhere = tmp_path / "dotfiles/settings.yml"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(before.encode())
    elsewhere.chmod(0o640)
    settings.file().parent.mkdir()
    settings.file().symlink_to(elsewhere)
    settings.set_keep_days(30)
    assert elsewhere.read_bytes().decode() == PUT[before]
    assert settings.file().is_symlink()
    assert elsewhere.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in elsewhere.parent.iterdir()] == [elsewhere.name]
    assert settings.load().keep_days == 30


def test_a_setting_makes_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "new"))
    settings.set_keep_days(30)
    assert settings.file().read_text() == "keep_days: 30\n"
    assert settings.file().stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("forks: many\n", "1: forks: 'many' is not allowed"),
        ("keep_days: 0\n", "1: keep_days: '0' is not allowed"),
        ("keep_days:\n", "1: keep_days: "),
        ("forks: [\n", "1: file: is not valid YAML"),
        ("---\n...\n", "keep_days cannot be put into a file of this form"),
        ("~\n", "keep_days cannot be put into a file of this form"),
    ],
)
def test_a_file_that_a_setting_cannot_be_put_into_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, said: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    settings.file().parent.mkdir()
    settings.file().write_text(before)
    with pytest.raises(errors.UsageError) as caught:
        settings.set_keep_days(30)
    assert said in caught.value.what
    assert [(path.name, path.read_text()) for path in settings.file().parent.iterdir()] == [("config.yml", before)]
