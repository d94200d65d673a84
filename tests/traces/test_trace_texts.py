"""Texts of a profile at the door: folders of the user, control characters, and texts that were made to take long."""

from __future__ import annotations

import time

import pytest
import tracesteps


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/alice/secret/train.py(12): main", "train.py(12): main"),
        ("/usr/lib/python3.11/threading.py(975): run", "threading.py(975): run"),
        ("/opt/v/lib/python3.12/site-packages/torch/nn/modules/linear.py(114): forward",
         "torch/nn/modules/linear.py(114): forward"),
        ("C:\\\\Users\\\\alice\\\\train.py(3): f".replace("\\\\", "\\"), "train.py(3): f"),
        ("C:\\Python\\Lib\\site-packages\\torch\\x.py(1): f", "torch\\x.py(1): f"),
        ("kernel</home/alice/k.cu>", "kernel<k.cu>"),
        ("aten::add", "aten::add"),
        ("ResNet_0/Sequential_1/Conv2d_3", "ResNet_0/Sequential_1/Conv2d_3"),
        ("https://pytorch.org/docs/x", "https://pytorch.org/docs/x"),
        ("a/b", "a/b"),
        ("train.py(12): main", "train.py(12): main"),
        ("../train.py(12): main", "../train.py(12): main"),
        ("<built-in method mm of type object at 0x7f>", "<built-in method mm of type object at 0x7f>"),
    ],
)  # fmt: skip
def test_folders_are_left_out_and_what_tells_the_module_stays(text: str, shown: str) -> None:
    assert tracesteps.shown(text) == shown


@pytest.mark.parametrize("piece", ["/a", "/", "a/", " /a", "\\a", "C:/", "/a/site-packages", "/ ", "//a"])
def test_no_text_takes_long(piece: str) -> None:
    began = time.process_time()
    tracesteps.shown(piece * 20_000)
    assert time.process_time() - began < 20  # of this process: a tenth of a second where nothing is quadratic
