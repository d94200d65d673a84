"""What is wrong with the settings of container engines: files in, sentences out."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprep.agent.facts import runtimesettings

SOUND = {
    "DAEMON_JSON": '{"runtimes": {"nvidia": {"args": [], "path": "TMP/bin/nvidia-container-runtime"}}}',
    "TOOLKIT_TOML": '#no-cgroups = true\nno-cgroups = false\nldconfig = "@TMP/bin/ldconfig"\n',
    "CONTAINERD_TOML": 'disabled_plugins = []\nBinaryName = "TMP/bin/nvidia-container-runtime"\n',
    "DOCKER_SOCKET": "",
    "KUBELET": "",
}


def said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **files: str | None) -> list[str]:
    (tmp_path / "bin").mkdir()
    for program in ("nvidia-container-runtime", "ldconfig"):
        (tmp_path / "bin" / program).touch()
    monkeypatch.setattr(runtimesettings, "DAEMON_JSON", str(tmp_path / "DAEMON_JSON"))
    monkeypatch.setattr(runtimesettings, "TOOLKIT_TOML", str(tmp_path / "TOOLKIT_TOML"))
    monkeypatch.setattr(runtimesettings, "CONTAINERD_TOML", str(tmp_path / "CONTAINERD_TOML"))
    monkeypatch.setattr(runtimesettings, "DOCKER_SOCKET", str(tmp_path / "DOCKER_SOCKET"))
    monkeypatch.setattr(runtimesettings, "KUBELET", str(tmp_path / "KUBELET"))
    for name, text in (SOUND | files).items():
        if text is not None:
            (tmp_path / name).write_text(text.replace("TMP", str(tmp_path)))
    return [line.replace(f"{tmp_path}/", "") for line in runtimesettings.wrong()]


@pytest.mark.parametrize(
    "files", [{}, dict.fromkeys(SOUND), {"DAEMON_JSON": ""}, {"KUBELET": None, "CONTAINERD_TOML": '["cri"]'}]
)
def test_sound_and_absent_settings_say_nothing(
    files: dict[str, str | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert said(monkeypatch, tmp_path, **files) == []


@pytest.mark.parametrize(
    ("files", "line"),
    [
        ({"DAEMON_JSON": "{'a': 1}"}, "DAEMON_JSON is not valid JSON"),
        ({"DAEMON_JSON": "[" * 100_000}, "DAEMON_JSON is not valid JSON"),
        ({"DAEMON_JSON": "[]"}, "DAEMON_JSON is not valid: it has no keys"),
        ({"DAEMON_JSON": '{"default-runtime": "nvidia"}'}, "DAEMON_JSON is not valid: its default runtime nvidia"),
        ({"DAEMON_JSON": '{"runtimes": {"nvidia": {"path": "TMP/no"}}}'}, "DAEMON_JSON names no, which is not there"),
        ({"DAEMON_JSON": '{"runtimes": {"nvidia": {"path": "no-such-runtime"}}}'}, "names no-such-runtime"),
        ({"TOOLKIT_TOML": "  no-cgroups=true\n"}, "docker runs as root, and TOOLKIT_TOML has no-cgroups = true"),
        ({"TOOLKIT_TOML": 'ldconfig = "@TMP/ldconfig.real"'}, "TOOLKIT_TOML names ldconfig.real, which is not there"),
        ({"CONTAINERD_TOML": 'disabled_plugins = ["cri"]'}, "Kubernetes is here, and CONTAINERD_TOML has"),
        ({"CONTAINERD_TOML": 'BinaryName = "TMP/nvidia/no"'}, "CONTAINERD_TOML names nvidia/no"),
    ],
)  # fmt: skip
def test_each_thing_that_is_wrong_is_said(
    files: dict[str, str | None], line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (found,) = said(monkeypatch, tmp_path, **files)
    assert line in found
