"""`gpuprep explain`: a board, the speed of operations on it, the memory of a model; no machine is asked."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pages import too_wide

from gpuprep import catalogue
from gpuprep.catalogue import boards
from gpuprep.cli import cli, run_command

ENVELOPE = {"schema_version", "gpu", "meant", "products", "attentions", "board", "model", "exit_code"}


class Shell:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        code = run_command.run(cli, ["explain", *arguments])
        out, err = self._capsys.readouterr()
        return code, out, err

    def json(self, *arguments: str) -> dict[str, Any]:
        code, out, _ = self(*arguments, "--json")
        assert code == 0
        document: dict[str, Any] = json.loads(out)
        assert set(document) == ENVELOPE
        return document


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


# ---------------------------------------------------------------- which board


def meant(shell: Shell, words: str) -> list[str]:
    """The boards that these words mean; [] where there is no such GPU."""
    code, out, _ = shell("--gpu", words, "--json")
    document = json.loads(out)
    if code:
        assert (code, "no such GPU" in document["error"]["what"] or not words) == (2, True)
        return []
    return [document["gpu"]["board"], *(key for key in document["meant"] if key != document["gpu"]["board"])]


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        ("t4", ["t4"]),
        ("Tesla T4", ["t4"]),
        ("a100_pcie_40", ["a100_pcie_40"]),
        ("A100 PCIe 40 GB", ["a100_pcie_40"]),
        ("NVIDIA A100-PCIE-40GB", ["a100_pcie_40"]),
        ("a100 pcie", ["a100_pcie_40", "a100_pcie_80"]),
        ("H100 80GB", ["h100_sxm5_80", "h100_pcie_80"]),
        ("20f1", ["a100_pcie_40"]),
        ("10de:20f1", ["a100_pcie_40"]),
        ("10DE:20B2", ["a100_sxm4_80", "a100_sxm4_80_500w"]),
        ("20b2:147f", ["a100_sxm4_80_500w"]),
        ("0x10de:0x20b2/10de:147f", ["a100_sxm4_80_500w"]),
        ("RTX 4090", ["rtx_4090"]),
        ("L40", ["l40"]),
        ("pcie", []),
        ("", []),
        ("%s{{}}", []),
        ("ffff", []),
    ],
)
def test_boards_are_found_by_what_people_call_them(shell: Shell, words: str, keys: list[str]) -> None:
    assert meant(shell, words) == keys


@pytest.mark.parametrize("key", list(boards()))
def test_each_board_answers_to_its_key_its_name_and_its_ids(shell: Shell, key: str) -> None:
    board = boards()[key]
    for words in (key, board.name, *board.nvml_names, *board.pci_device_ids):
        assert key in meant(shell, words), words


# ---------------------------------------------------------------- a board


@pytest.mark.parametrize("key", list(boards()))
def test_each_board_has_a_page_that_fits_and_a_document(key: str, shell: Shell) -> None:
    code, out, err = shell("--gpu", key, "-v")
    assert (code, err) == (0, "")
    assert boards()[key].name in out
    assert not too_wide(out, 100)
    found = shell.json("--gpu", key)["board"]
    assert found["board"] == key
    assert len({one["dtype"] for one in found["precisions"]}) == len(found["precisions"]) == 11


def test_a_t4_can_what_nvidia_says(shell: Shell) -> None:
    found = shell.json("--gpu", "t4")["board"]
    types = {one["dtype"]: one for one in found["precisions"]}
    assert types["fp16"]["peak_tflops"] == pytest.approx(65.1, abs=0.1)
    assert types["fp16"]["unit"] == "tensor_fp16"
    assert (types["bf16"]["tensor_cores"], types["bf16"]["cuda_cores"], types["bf16"]["peak_tflops"]) == (
        False,
        False,
        None,
    )
    assert (types["int4"]["tensor_cores"], types["int4"]["peak_tflops"]) == (True, None)
    streams = {(one["kind"], one["codec"], one["preset"]): one for one in found["streams"]}
    # 2 engines x 771 fps (Video Codec SDK 13.0, NVDEC, Turing at 1860 MHz) x 1470 / 1860, over 30
    assert streams["decode", "h264", None]["streams"] == int(2 * 771 * 1470 / 1860 / 30)
    assert streams["encode", "hevc", "p1"]["fps"] == pytest.approx(920 * 1470 / 1950)
    assert not any(one["codec"] == "av1" for one in found["streams"])  # Turing has none
    assert found["pcie"] == {"generation": 3, "width": 16, "gb_per_s": pytest.approx(15.75, abs=0.01)}


@pytest.mark.parametrize(
    ("board", "said"), [("v100_sxm2_16", ("AWS P2, P3", "N1 of Google Cloud")), ("t4", ("Intel Haswell",)), ("l4", ())]
)
def test_images_that_do_not_start_with_a_board_are_named_before_it_is_rented(
    shell: Shell, board: str, said: tuple[str, ...]
) -> None:
    images = shell.json("--gpu", board)["board"]["images"]
    assert [words in image for words, image in zip(said, images, strict=True)] == [True] * len(said)


def test_what_is_not_known_of_a_board_is_said(shell: Shell) -> None:
    found = shell.json("--gpu", "a100_sxm_64")["board"]
    assert found["sms"] is None
    assert {"the number of SMs", "the boost clock", "the memory's bandwidth", "the power limit"} <= set(
        found["not_known"]
    )
    _, page, _ = shell("--gpu", "a100_sxm_64")
    assert "not known" in page
    b200 = shell.json("--gpu", "b200")["board"]
    assert b200["engines"]["nvdec"] is None
    assert all(one["streams"] is None and one["words"] for one in b200["streams"])
    assert "nvenc_engines" in shell.json("--gpu", "t4")["board"]["unverified"]


def test_a_gpu_without_encoders_has_no_encoded_streams(shell: Shell) -> None:
    found = shell.json("--gpu", "h100")["board"]
    assert {one["kind"] for one in found["streams"]} == {"decode"}
    assert found["engines"]["nvenc"] == 0


# ---------------------------------------------------------------- operations


def test_several_shapes_and_types_in_the_order_asked(shell: Shell) -> None:
    found = shell.json("--gpu", "h100", "--dtype", "bf16,fp8", "--dtype", "tf32", "4096x4096x4096", "8192,128,8192")
    asked = [(one["m"], one["n"], one["k"], one["dtype"]) for one in found["products"]]
    assert asked == [(*shape, t) for shape in ((4096, 4096, 4096), (8192, 128, 8192)) for t in ("bf16", "fp8", "tf32")]
    assert found["gpu"] == {"board": "h100_sxm5_80", "name": "H100 SXM5 80 GB"}
    assert "h100_pcie_80" in found["meant"]
    for one in found["products"]:
        expected = one["expected"]
        assert expected["low_tflops"] < expected["tflops"] < expected["high_tflops"]
        assert expected["tflops"] == pytest.approx(
            2e-6 * one["m"] * one["n"] * one["k"] / expected["microseconds"], rel=1e-6
        )


def test_the_asked_for_example(shell: Shell) -> None:
    code, out, err = shell("--gpu", "h100", "--dtype", "fp16", "4097x4097x4097")
    assert (code, err) == (0, "")
    assert not too_wide(out, 80)
    words = " ".join(out.split())
    for word in (
        "expected",
        "bound",
        "tiles",
        "waves",
        "alignment n 4097 (C), k 4097 (A and B): rows are multiples of 2 bytes only, not of 16; with",
        "better",
        "operations a byte",
        "give or take",
    ):
        assert word in words
    one = shell.json("--gpu", "h100", "4097x4097x4097")["products"][0]
    assert one["expected"]["aligned_bytes"] == 2
    assert one["expected"]["aligned_gain"] > 1.3
    assert one["expected"]["error_from"]["measured"] is True
    assert {better["direction"] for better in one["better"]} == {"larger", "smaller"}
    for better in one["better"]:
        assert better["gain"] > 1.05
    assert all(better["time_ratio"] < 1 for better in one["better"])


def test_the_price_of_crooked_rows_is_not_said_of_a_board_where_nobody_measured_it(shell: Shell) -> None:
    _, out, _ = shell("--gpu", "rtx_4090", "2055x2055x2055")
    words = " ".join(out.split())
    assert "rows are multiples of 2 bytes only, not of 16; what that costs was not measured on this board" in words
    assert re.search(r"expected 1\d\d TFLOPS in \d+ us, or between [\d.]+ and \d+ ", words)
    assert "2056" not in words
    assert "misalignment" not in words
    expected = shell.json("--gpu", "rtx_4090", "2055x2055x2055")["products"][0]["expected"]
    assert expected["aligned_gain"] is None
    assert expected["low_tflops"] < 116 < expected["high_tflops"]  # measured


@pytest.mark.parametrize(
    ("words", "crooked"),
    [
        (("5216x3843x2144",), "n 3843 (C)"),
        (("--layout", "row", "5216x3843x2144"), "n 3843 (C)"),
        (("--layout", "TN", "3843x5216x2144"), "m 3843 (C)"),  # as NVIDIA's guide counts: m are the outputs
        (("--layout", "nn", "3843x5216x2144"), "m 3843 (A and C)"),
        (("--layout", "nt", "3843x5216x2144"), "m 3843 (A and C)"),
        (("--layout", "tt", "5216x3843x2144"), "n 3843 (B)"),
        (("--layout", "tn", "5216x3843x2144"), ""),
        (("3843x5216x2144",), ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_only_the_rows_of_this_layout_are_misaligned(words: tuple[str, ...], crooked: str, shell: Shell) -> None:
    _, out, _ = shell("--gpu", "h100", "--dtype", "bf16", *words)
    page = " ".join(out.split())
    said = f"alignment {crooked}: rows are multiples of 2 bytes only" if crooked else "rows are multiples of 16 bytes"
    assert said in page
    assert ("misalignment" in page) == bool(crooked)
    found = shell.json("--gpu", "h100", "--dtype", "bf16", *words)["products"][0]
    layout = words[1].lower() if len(words) > 1 else "row"
    assert found["layout"] == layout
    assert (f"bf16 {words[-1]}, layout {layout}" in page) == (layout != "row")


def test_a_convolution_is_its_implicit_product(shell: Shell) -> None:
    found = shell.json("--gpu", "t4", "--conv", "32,56,56,64,128,3,3,2,1")["products"][0]
    # p = q = (56 + 2 - 3) / 2 + 1 = 28
    assert (found["m"], found["n"], found["k"]) == (32 * 28 * 28, 128, 64 * 9)
    moved = 2 * (32 * 56 * 56 * 64 + 128 * 64 * 9 + 32 * 28 * 28 * 128)
    operations = 2 * 32 * 28 * 28 * 128 * 64 * 9
    assert found["expected"]["operations_per_byte"] == pytest.approx(operations / moved)
    odd = shell.json("--gpu", "t4", "--conv", "32,56,56,3,64,7,7,2,3")["products"][0]["expected"]
    assert odd["aligned_bytes"] == 2  # three channels of two bytes


def test_matrices_that_do_not_fit_are_said(shell: Shell) -> None:
    _, page, _ = shell("--gpu", "t4", "100000x100000x1000")
    assert "the board has 15.0 GiB" in page
    assert "the board has" not in shell("--gpu", "t4", "1000x1000x1000")[1]


def test_a_batch_is_so_many_products(shell: Shell) -> None:
    one = shell.json("--gpu", "h100", "512x512x512")["products"][0]["expected"]
    many = shell.json("--gpu", "h100", "--batch", "64", "512x512x512")["products"][0]
    assert many["batch"] == 64
    assert many["expected"]["tflops"] > 2 * one["tflops"]
    assert many["expected"]["operations_per_byte"] == pytest.approx(one["operations_per_byte"])
    assert one["microseconds"] < many["expected"]["microseconds"] < 64 * one["microseconds"]


def test_attention_fused_and_separate(shell: Shell) -> None:
    found = shell.json("--gpu", "h100", "--dtype", "bf16", "--attention", "4,16,4096,128")["attentions"][0]
    expected = found["expected"]
    assert expected["operations_per_byte"] == pytest.approx(4 * 4096**2 * 128 / (4 * 4096 * 128 * 2))
    # FlashAttention-3's authors measured 648 TFLOPS at 16k and 638 at 4k (H100 SXM5, forward, not causal).
    assert expected["fused"]["tflops"] == pytest.approx(640, rel=0.1)
    assert expected["separate"]["microseconds"] > 2 * expected["fused"]["microseconds"]
    assert [one["words"] for one in expected["separate"]["products"]] == ["Q K^T", "scores x V"]
    code, out, _ = shell("--gpu", "t4", "--attention", "4,16,4096,128")
    assert code == 0
    assert "not known" in out  # nobody published a fused kernel for Turing


def test_a_type_without_units_is_said_not_guessed(shell: Shell) -> None:
    found = shell.json("--gpu", "t4", "--dtype", "bf16", "1024x1024x1024", "--attention", "1,1,64,64")
    for one in (*found["products"], *found["attentions"]):
        assert one["expected"] is None
        assert "no units for bf16" in one["not_known"]
    unknown = shell.json("--gpu", "h20", "--dtype", "fp16", "1024x1024x1024")["products"][0]
    assert "no fp16 peak" in unknown["not_known"]


# ---------------------------------------------------------------- the memory of a model


def test_a_trained_model_takes_18_bytes_a_parameter(shell: Shell) -> None:
    """6 of weights, 4 of gradients, 8 of Adam's states: Hugging Face's anatomy, and NVIDIA's slides."""
    found = shell.json("--model", "7e9", "--precision", "bf16", "--optimizer", "adam")["model"]
    assert found["bytes"] == {
        "weights": 42e9,
        "gradients": 28e9,
        "optimizer": 56e9,
        "activations": None,
        "kv_cache": None,
    }
    assert found["together_bytes"] == 18 * 7e9
    assert len(found["boards"]) == len(boards())
    held = {one["board"]: one for one in found["boards"]}
    assert held["t4"]["fits"] is False
    assert held["t4"]["gpus_at_least"] == 9
    assert held["b300"]["fits"] is None  # activations are not known
    assert held["rtx_4090"]["fits"] is None  # its memory is not known


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--model", "7B"), ("may fit    A16, ", "too small  P100 PCIe 12 GB", "not known  Quadro RTX 6000; ")),
        (("--model", "7B", "--optimizer", "adam"), ("may fit    H200", "too small  RTX PRO 6000 ", "13 more")),
    ],
)
def test_all_boards_are_told_by_whether_the_model_fits(shell: Shell, words: tuple[str, ...], told: Any) -> None:
    code, page, _ = shell(*words)
    assert (code, len(page.splitlines()) < 20) == (0, True), page
    for part in told:
        assert part in page
    assert len(shell(*words, "-v")[1].splitlines()) > len(boards())


@pytest.mark.parametrize(
    ("precision", "optimizer", "each"),
    [
        ("fp32", "adam", 16), ("tf32", "adam", 16), ("fp16", "adam-8bit", 12), ("bf16", "momentum", 14),
        ("fp32", "sgd", 8), ("pure-bf16", "adam", 8), ("fp32", "none", 4), ("bf16", "none", 2),
        ("int8", "none", 1), ("int4", "none", 0.5),
    ],
)  # fmt: skip
def test_bytes_a_parameter(precision: str, optimizer: str, each: float, shell: Shell) -> None:
    found = shell.json("--model", "1B", "--precision", precision, "--optimizer", optimizer)["model"]
    assert found["together_bytes"] == pytest.approx(each * 1e9)


@pytest.mark.parametrize(("recompute", "each"), [("none", 34 + 5 * 96 * 2048 / 12288), ("selective", 34), ("full", 2)])
def test_activations_are_korthikantis(recompute: str, each: float, shell: Shell) -> None:
    """GPT-3 of 175 billion: 5 a s / h is 80."""
    shape = ("--layers", "96", "--hidden", "12288", "--heads", "96", "--sequence", "2048", "--batch", "2")
    found = shell.json("--model", "175e9", "--optimizer", "adam", "--recompute", recompute, *shape)["model"]
    assert found["bytes"]["activations"] == pytest.approx(96 * 2048 * 2 * 12288 * each)


def test_a_model_in_use_keeps_keys_and_values(shell: Shell) -> None:
    shape = ("--layers", "80", "--hidden", "8192", "--heads", "64", "--sequence", "32768")
    found = shell.json("--model", "70B", "--precision", "int8", *shape, "--kv-heads", "8", "--gpu", "h200")["model"]
    assert found["bytes"]["kv_cache"] == 10 * 2**30  # 320 KiB a token
    assert found["boards"][0]["fits"] is True
    assert [one["board"] for one in found["boards"]] == ["h200_sxm", "h200_nvl"]


# ---------------------------------------------------------------- what is wrong is one line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--gpu or --model"),
        (("4096x4096x4096",), "--gpu or --model"),
        (("--gpu", "a1000"), "no such GPU"),
        (("--gpu", "\x1b[2J" * 100), "no such GPU"),
        (("--gpu", "t4", "4096"), "MxNxK"),
        (("--gpu", "t4", "4096x4096x0"), "k is a whole number"),
        (("--gpu", "t4", "1x1x99999999999999999999"), "k is a whole number"),
        (("--gpu", "t4", "-1x1x1"), ""),
        (("--gpu", "t4", "1.5x1x1"), "m is a whole number"),
        (("--gpu", "t4", "٤x٤x٤"), "m is a whole number"),
        (("--gpu", "t4", "--dtype", "fp15", "1x1x1"), "no such data type"),
        (("--gpu", "t4", "--conv", "1,2,3"), "a convolution is"),
        (("--gpu", "t4", "--conv", "1,2,2,8,8,3,3"), "larger than the image"),
        (("--gpu", "t4", "--conv", "2147483647,9999,9999,8,8,3,3"), "larger than"),
        (("--gpu", "t4", "--conv", "1,8,8,8,8,3,3,0"), "stride"),
        (("--gpu", "t4", "--attention", "1,2,3"), "attention is"),
        (("--gpu", "t4", "--batch", "0", "1x1x1"), "--batch"),
        (("--gpu", "t4", "--batch", "4", "--conv", "8,56,56,64,64,3,3"), "--batch 4: is only for products"),
        (("--gpu", "t4", "--batch", "4", "--attention", "1,2,3,4"), "--batch 4: is only for products"),
        (("--gpu", "T4☃", "1x1x1"), "the catalogue has no such GPU"),
        (("--model", "much"), "not a number of parameters"),
        (("--model", "1e99"), "not a number of parameters"),
        (("--model", "nan"), "not a number of parameters"),
        (("--model", "7e9", "--precision", "fp5"), "no such precision"),
        (("--model", "7e9", "--optimizer", "sgdd"), "no such optimizer"),
        (("--model", "7e9", "--precision", "int8", "--optimizer", "adam"), "no source says"),
        (("--model", "7e9", "--layers", "32"), "belong together"),
        (("--model", "7e9", "--layers", "3", "--hidden", "100", "--heads", "7", "--sequence", "9"), "multiple of"),
        (("--gpu", "t4", *["1x1x1"] * 1001), "too many"),
        (("--gpu", "t4", "--layout", "column", "1x1x1"), "--layout"),
        (("--gpu", "t4", "--layout", "tn", "--conv", "8,56,56,64,64,3,3"), "--layout goes with a shape MxNxK"),
        (("--model", "7e9", "--layout", "tn"), "--layout goes with a shape MxNxK"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else None,
)
def test_a_wrong_question_is_one_clear_line(arguments: tuple[str, ...], said: str, shell: Shell) -> None:
    code, out, err = shell(*arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert "\x1b" not in err
    assert len(max(err.splitlines(), key=len)) < 600
    code, out, _ = shell(*arguments, "--json")
    assert code == 2
    assert json.loads(out)["exit_code"] == 2


@pytest.mark.parametrize(
    ("words", "maker"),
    [
        ("MI300X", "AMD"), ("AMD Instinct MI250", "AMD"), ("Radeon Pro W7900", "AMD"), ("1002:74a1", "AMD"),
        ("gfx942", "AMD"), ("Intel Arc A770", "Intel"), ("8086:56a0", "Intel"), ("Gaudi 3", "Intel"),
    ],
)  # fmt: skip
def test_a_gpu_of_another_maker_is_named_and_nothing_near_is_offered(words: str, maker: str, shell: Shell) -> None:
    code, out, err = shell("--gpu", words)
    assert (code, out) == (2, "")
    assert f"a GPU of {maker}" in err
    assert "did you mean" not in err


@pytest.mark.parametrize("words", ["10de:1eb8", "1eb8", "20b2:147f", "0x10de:0x20b2", "T4"])
def test_nvidias_own_ids_are_no_other_makers(shell: Shell, words: str) -> None:
    assert meant(shell, words)


def test_few_sms_at_work_are_why_memory_is_no_limit(shell: Shell) -> None:
    """One number of a million products: far less than a byte needs, and yet it is calculating that takes long."""
    _, page, _ = shell("--gpu", "h200", "1x1x1048576")
    words = " ".join(page.split())
    assert "bound math: 0.5 operations a byte, but 16 of 132 SMs have work, and memory can feed these" in words
    assert "memory is no limit above" in shell("--gpu", "h200", "8192x8192x8192")[1]


def test_a_near_name_is_offered(shell: Shell) -> None:
    _, _, err = shell("--gpu", "h10")
    assert "h100" in err
    offered = shell("--gpu", "rtx 409")[2].partition("did you mean ")[2].partition("?")[0]
    assert offered
    assert all(key in catalogue.models() for key in re.split(r", | or ", offered))
