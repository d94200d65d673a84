"""One line for each mistake in a profile, naming file, line and key; all of them at once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from profiletext import problems, write

from gpuprep import errors
from gpuprep.desired import loading

MISTAKES = [
    # what is added to `extends: t4` from line 2 on, and the lines expected
    ("drivers: {}", "2: drivers: unknown key (did you mean driver?); allowed: extends, description, gpus"),
    ("driver: {verison: auto}", "2: driver.verison: unknown key (did you mean version?); allowed: source, version"),
    ("driver: {Source: nvidia}", "2: driver.Source: unknown key (did you mean source?)"),
    ("driver: {'a b': 1}", "2: driver.'a b': unknown key; allowed: source, version"),
    ("driver: 5", "2: driver: is the number 5; allowed: a mapping with source, version, flavour"),
    ("driver:", "2: driver: is nothing; allowed: a mapping with"),
    ("driver: [auto]", "2: driver: is a list; allowed: a mapping with"),
    ("driver: {source: distributoin}", "2: driver.source: is the text 'distributoin' (did you mean distribution?)"),
    (
        "driver: {version: 550}",
        "2: driver.version: is the number 550, not text; write it in quotes: '550'; allowed: auto",
    ),
    ("driver: {version: newest}", "2: driver.version: is the text 'newest'; allowed: auto, a branch such as '550'"),
    ("driver: {version: '550\\n'}", "2: driver.version: is the text"),
    ('driver: {version: "550\\n"}', "2: driver.version: is the text"),
    ("driver:\n  hold: yes", "3: driver.hold: yes means true or false to some YAML readers; write true or false"),
    ("driver: {hold: 'true'}", "2: driver.hold: is the text 'true' because of its quotes; write it without them"),
    ("driver: {hold: 1}", "2: driver.hold: is the number 1; allowed: true or false"),
    ("driver: {flavour: on}", "2: driver.flavour: on means true or false to some YAML readers"),
    ("driver: {flavour: true}", "2: driver.flavour: is true; allowed: auto, open, proprietary"),
    ("cuda: {version: 12.10}", "2: cuda.version: is the number 12.10, not text; write it in quotes: '12.10'"),
    ("cuda: {version: 12.4}", "2: cuda.version: is the number 12.4, not text; write it in quotes: '12.4'"),
    ("cuda: {version: 1_2}", "2: cuda.version: 1_2 is a number to some YAML readers; write it in quotes: '1_2'"),
    ("cuda: {version: 0x1F}", "2: cuda.version: 0x1F is a number to some YAML readers"),
    ("cuda: {version: 2024-01-01}", "2: cuda.version: is the text '2024-01-01'; allowed: auto, none, or"),
    ("cuda: {version: 2024-01-01 12:00:00}", "2: cuda.version: 2024-01-01 12:00:00 is a date to some YAML readers"),
    (
        "cudnn: {version: '9.10'}",
        "2: cudnn.version: is the text '9.10'; allowed: auto, none, or an exact version such as",
    ),
    ("cudnn: {source: conda}", "2: cudnn.source: is the text 'conda'; allowed: pypi"),
    ("codec: {prefix: opt/x}", "2: codec.prefix: is the text 'opt/x'; allowed: an absolute path"),
    ("codec: {prefix: /usr}", "2: codec.prefix: is the text '/usr'; allowed: an absolute path"),
    ("codec: {prefix: /opt/../etc}", "2: codec.prefix: is the text '/opt/../etc'; allowed: an absolute path"),
    ("codec: {prefix: '/opt/$(id)'}", "2: codec.prefix: is the text '/opt/$(id)'; allowed: an absolute path"),
    ("codec: {npp: none}", "2: codec.npp: is the text 'none'; allowed: true or false"),
    (
        "codec: {nvenc: require}",
        "2: codec.nvenc: is the text 'require' (did you mean required?); allowed: auto, required",
    ),
    ("codec: {parts: {encoder: []}}", "2: codec.parts.encoder: unknown key (did you mean encoders?)"),
    (
        "codec:\n  parts:\n    encoders:\n      - aac\n      - h264_nvnec",
        "6: codec.parts.encoders[1]: is the text 'h264_nvnec' (did you mean h264_nvenc?); allowed: a name that",
    ),
    ("codec: {parts: {encoders: [libfdk_aac]}}", "2: codec.parts.encoders[0]: is the text 'libfdk_aac'; allowed"),
    ("codec: {libraries: [gnutls, fdk-aac]}", "2: codec.libraries[1]: is the text 'fdk-aac'; allowed: gnutls, openssl"),
    ("codec: {parts: {muxers: [mp4, null]}}", "2: codec.parts.muxers[1]: is nothing; allowed: a name"),
    ("codec: {parts: {muxers: [mp4, mov, mp4]}}", "2: codec.parts.muxers[2]: the text 'mp4' is in the list twice"),
    ("codec: {parts: {muxers: mp4}}", "2: codec.parts.muxers: is the text 'mp4'; allowed: a list of: a name"),
    ("tuning: {clocks: fast}", "2: tuning.clocks: is the text 'fast'; allowed: max, default, or a mapping with"),
    ("tuning: {clocks: 1590}", "2: tuning.clocks: is the number 1590; allowed: max, default, or a mapping with"),
    (
        "tuning: {clocks: {memory_mhz: 5001, graphics_mhz: 15900}}",
        "2: tuning.clocks.graphics_mhz: is the number 15900; allowed: from 100 to 5000",
    ),
    (
        "tuning: {clocks: {memory_mhz: '5001', graphics_mhz: 1590}}",
        "2: tuning.clocks.memory_mhz: is the text '5001' because of its quotes; write it without them",
    ),
    ("tuning: {power_limit_watts: -1}", "2: tuning.power_limit_watts: is the number -1; allowed: from 20 to 2000"),
    (
        "tuning: {power_limit_watts: 70.0}",
        "2: tuning.power_limit_watts: is the number 70.0; allowed: default, or a whole",
    ),
    (
        "tuning: {power_limit_watts: max}",
        "2: tuning.power_limit_watts: is the text 'max'; allowed: default, or a whole",
    ),
    ("tuning: {power_limit_watts: " + "9" * 5000 + "}", "2: tuning.power_limit_watts: 99"),
    ("tuning: {ecc: off}", "2: tuning.ecc: off means true or false to some YAML readers"),
    ("extras: {tools: [tmuxx]}", "2: extras.tools[0]: is the text 'tmuxx' (did you mean tmux?); allowed: python3"),
    ("extras: {framework: pytorch}", "2: extras.framework: is the text 'pytorch' (did you mean torch?); allowed: none"),
    ("extras: {mount: false}", "2: extras.mount: is false; allowed: null, or a mapping with device"),
    ("extras: {mount: {device: /dev/sdb}}", "2: extras.mount.path: missing here and in what this extends"),
    (
        "extras: {mount: {device: sdb, path: /data, fstype: ext4, options: defaults}}",
        "2: extras.mount.device: is the text 'sdb'; allowed: a device such as",
    ),
    (
        "extras: {mount: {device: /dev/sdb, path: data, fstype: ext4, options: defaults}}",
        "2: extras.mount.path: is the text 'data'; allowed: an absolute path",
    ),
    (
        "extras: {mount: {device: /dev/sdb, path: /data, fstype: ntfs, options: defaults}}",
        "2: extras.mount.fstype: is the text 'ntfs'; allowed: ext4, xfs, btrfs",
    ),
    (
        "extras: {mount: {device: /dev/sdb, path: /data, fstype: xfs, options: 'a b'}}",
        "2: extras.mount.options: is the text 'a b'; allowed: mount options",
    ),
    (
        "thresholds: {fp16_percent_of_peak: 101}",
        "2: thresholds.fp16_percent_of_peak: is the number 101; allowed: above 0 to 100",
    ),
    (
        "thresholds: {fp16_percent_of_peak: 0}",
        "2: thresholds.fp16_percent_of_peak: is the number 0; allowed: above 0 to 100",
    ),
    (
        "thresholds: {fp16_percent_of_peak: '75'}",
        "2: thresholds.fp16_percent_of_peak: is the text '75' because of its quotes; write it without them",
    ),
    (
        "thresholds: {fp16_percent_of_peak: {percent: 0, source: x}}",
        "2: thresholds.fp16_percent_of_peak.percent: is the number 0; allowed: above 0 to 100",
    ),
    (
        "thresholds: {history_warn_percent: {percent: 5, source: x}}",
        "2: thresholds.history_warn_percent: is a mapping; allowed: a number above 0 to 100",
    ),
    (
        "thresholds:\n  peers_warn_percent: 11",
        "3: thresholds.peers_warn_percent: is 11, more than peers_fail_percent (10); allowed: at most 10",
    ),
    (
        "probes: {gemm: {main_dtype: fp4}}",
        "2: probes.gemm.main_dtype: is the text 'fp4' (did you mean fp64?); allowed: auto, fp64, fp32",
    ),
    (
        "probes: {gemm: {shapes: [8192x8192]}}",
        "2: probes.gemm.shapes[0]: is the text '8192x8192'; allowed: three whole numbers such as 8192x8192x8192",
    ),
    ("probes: {gemm: {shape: []}}", "2: probes.gemm.shape: unknown key (did you mean shapes?); allowed: main_dtype"),
    ("thresholds: {fp16_percent_of_peak: .nan}", "2: thresholds.fp16_percent_of_peak: .nan is not a usable number"),
    ("thresholds: {fp16_percent_of_peak: -.inf}", "2: thresholds.fp16_percent_of_peak: -.inf is not a usable number"),
    (
        "thresholds:\n  history_warn_percent: 11",
        "3: thresholds.history_warn_percent: is 11, more than history_fail_percent (10); allowed: at most 10",
    ),
    ("drift: {at: 12:30}", "2: drift.at: 12:30 is a number to some YAML readers; write it in quotes: '12:30'"),
    ("drift: {at: '24:00'}", "2: drift.at: is the text '24:00'; allowed: a time of day such as '02:30'"),
    ("gpus: []", "2: gpus: is empty; allowed: a list of: any, t4"),
    ("gpus: t4", "2: gpus: is the text 't4'; allowed: a list of: any, t4"),
    ("gpus: [k80]", "2: gpus[0]: is the text 'k80'; allowed: any, t4"),
    ("gpus: [any, t4]", "2: gpus: has any and other models; allowed: [any], or models"),
    ("description: ''", "2: description: is an empty text; allowed: one line of at most 200 characters"),
    ("description: |\n  two\n  lines", "2: description: is the text 'two lines'"),
    # what YAML can do and a profile may not
    ("extends: a100", "2: extends: is given twice; the first is on line 1"),
    ("driver:\n  hold: true\n  hold: false", "4: driver.hold: is given twice; the first is on line 3"),
    ("driver: &d {hold: true}", "2: driver: the anchor &d is not supported; write the value out, or use extends"),
    ("driver: {hold: &d true, gpu_firmware: *d}", "2: driver.gpu_firmware: the alias *d is not supported"),
    ("driver: !!python/object/apply:os.system [id]", "2: driver: the tag !!python/object/apply:os.system is not"),
    ("driver: {hold: !mine true}", "2: driver.hold: the tag !mine is not supported; write the plain value"),
    ("driver:\n  <<: {hold: true}", "3: driver: the merge key << is not supported; use extends"),
    ("1: x", "2: file: the number 1 cannot be a key; keys are plain words"),
    ("true: x", "2: file: true cannot be a key; keys are plain words"),
    ("driver: {[a]: x}", "2: driver: a list cannot be a key; keys are plain words"),
    ("? {a: b}\n: x", "2: file: a mapping cannot be a key; keys are plain words"),
    ("driver:\n\thold: true", "3: file: is not valid YAML: a tab; indent with spaces"),
    ("driver: {hold: true", "2: file: is not valid YAML: expected ',' or '}'"),
    ("driver: 'auto", "2: file: is not valid YAML: found unexpected end of stream"),
    ("  driver: {}", "2: file: is not valid YAML: "),
    ("driver: {hold: *nothing}", "2: driver.hold: the alias *nothing is not supported"),
    ("---\ndriver: {}", "2: file: holds a second YAML document; a profile is one document"),
    ('description: "\\UFFFFFFFF"', "2: file: is not valid YAML: \\UFFFFFFFF is beyond Unicode"),
    ('description: "\\ud800"', "2: description: holds the character U+D800, which is not text"),
    ('description: "\\e[31m"', "2: description: holds the character U+001B, which is not text"),
    ("description: \x07", "2: file: is not text: it holds the character U+0007"),
    ("driver: " + "[" * 4000, "2: file: is nested deeper than 20 levels"),
    ("driver: " + "{a: " * 4000, "2: file: is nested deeper than 20 levels"),
]


@pytest.mark.parametrize(("text", "expected"), MISTAKES, ids=[m[0][:40] for m in MISTAKES])
def test_mistake(tmp_path: Path, text: str, expected: str) -> None:
    found = problems(write(tmp_path, f"extends: t4\n{text}\n"))
    assert any(line.startswith(expected) for line in found), found
    told = [line.split(": ")[:2] for line in found]
    assert len([t for t in told if t == expected.split(": ")[:2]]) == 1, found  # once, not once for every rule


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "1: file: is empty; a profile is a mapping of keys to values"),
        (b"# only a comment\n\n", "1: file: is empty; a profile is a mapping of keys to values"),
        (b"---\n", "1: file: is empty; a profile is a mapping of keys to values"),
        (b"null\n", "1: file: is empty; a profile is a mapping of keys to values"),
        (b"\n- t4\n", "2: file: holds a list; a profile is a mapping of keys to values"),
        (b"t4\n", "1: file: holds the text 't4'; a profile is a mapping of keys to values"),
        (b"extends: t4\ndescription: caf\xe9\n", "2: file: is not UTF-8 text: byte 0xe9 cannot be read"),
        (b"\x7fELF\x02\x01\x01\0\0\0\0", "1: file: is not text: it holds the character U+007F"),
        ("extends: t4\n".encode("utf-16"), "1: file: is not UTF-8 text: byte 0xff cannot be read"),
        (b"extends: t4\n" + b"# x\n" * 20_000, "1: file: is larger than 64 KiB"),
    ],
)
def test_files_that_are_no_profile(tmp_path: Path, data: bytes, expected: str) -> None:
    found = problems(write(tmp_path, data))
    assert len(found) == 1
    assert found[0].startswith(expected)


def test_a_bomb_of_aliases_costs_nothing(tmp_path: Path) -> None:
    levels = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    found = problems(write(tmp_path, "\n".join(["a0: &a0 [x]", *levels])))
    assert sum("alias" in line for line in found) == 29 * 9


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"k{i}: x" for i in range(6500)),
        "gpus: [" + ", ".join(f"{i}, x{i}, true" for i in range(3000)) + "]",
        "codec: {parts: {encoders: [" + "h264_nvenx, " * 5000 + "]}}",
        "- " * 30_000,
        "? " * 30_000,
        "x" * 60_000,
    ],
    ids=["keys", "mixed", "repeated", "sequences", "keys of keys", "word"],
)
def test_a_file_of_the_largest_size_is_answered_in_seconds(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    started = time.process_time()
    assert problems(path)
    assert time.process_time() - started < 60


def test_a_path_that_is_no_text_can_be_printed() -> None:
    with pytest.raises(errors.ProfileError) as caught:
        loading.load("./a\udcff\nb.yml")
    assert caught.value.problems == (
        "./a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}b.yml:1: file: does not exist",
    )


def test_all_problems_at_once_in_order(tmp_path: Path) -> None:
    text = "extends: t4\ndrift: {at: noon}\ncuda:\n  version: 12.10\n  held: true\ntuning: {ecc: off}\ngpus: [t5]\n"
    lines = [int(line.split(":")[0]) for line in problems(write(tmp_path, text))]
    assert lines == [2, 4, 5, 6, 7]


def test_a_byte_order_mark_is_no_problem(tmp_path: Path) -> None:
    assert loading.load(write(tmp_path, "\ufeffextends: t4\n")).gpus == ("t4",)
