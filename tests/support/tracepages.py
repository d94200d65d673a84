"""Pages of invented profiles for the tests of the page: two GPUs, modules, stacks, hostile names."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import browser
from synthetic import Kineto, training

from gpuprep.trace.document import Advice, Gain, RoofLine
from gpuprep.trace.opening import Opened, Wish, open_trace
from gpuprep.trace.page import html

if TYPE_CHECKING:
    from playwright.sync_api import Page

# What a program may call its ops. Each would set window.evil, or look like something else, if it were not inert.
EVIL = (
    '<img src=x onerror="window.evil=1">',
    "</script><script>window.evil=1</script>",
    "\"'><svg onload=window.evil=1>",
    "{{7*7}}${window.evil=1}`",
    '=HYPERLINK("http://evil.example","x")',
    "safe\u202egnp.exe\x1b[2J",
    "javascript:window.evil=1",
)
LONG = "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_256x128_32x3_tn_align8>" + "(params)" * 20
STEPS = 5


def busy_trace() -> Kineto:
    """Five steps on two GPUs; step 3 is slow. Names of ops, kernels and modules are hostile or long."""
    trace = training(steps=STEPS, layers=4)
    for step in range(STEPS):
        zero = step * 1_000_000
        trace.python(f"nn.Module: Net{EVIL[0]}_0", zero + 640_000, 250_000)
        trace.python(f"train.py(12): step {EVIL[1]}", zero + 641_000, 249_000)
        trace.python("model.py(34): forward", zero + 642_000, 248_000)
        for number, name in enumerate(EVIL):
            at = zero + 645_000 + number * 30_000
            trace.op(name, at, 25_000, shapes=[[4096, 4096], [4096, 4097 + number]], dtypes=["c10::Half", "c10::Half"])
            trace.launch(
                at + 2_000, f"{name}_kernel" if number else LONG, at + 8_000, 9_000 + number, device=1, stream=20
            )
    trace.top |= {"record_shapes": 1, "with_stack": 1}
    return trace


ADVICE = (
    Advice(
        "amp", "problem", f"3 matrix products run in FP32 {EVIL[0]}", "Use torch.autocast with bfloat16.",
        "https://pytorch.org/docs/stable/amp.html", (1, 2, 3), (), "ops",
        Gain(1234.5, "half the time of these kernels"),
        {"ops": 3.0},
    ),
    Advice("kernels-too", "hint", "Two kernels are slow", "Look at them.", "", (), (0, 1), "kernels", None, {}),
    Advice("bad-link", "hint", "A link that is none", "Do nothing.", "javascript:window.evil=1", (), (), "", None, {}),
    Advice("no-shapes", "missing", "No shapes in the trace", "Record with record_shapes.", "", (), (), "", None, {}),
)  # fmt: skip
ROOFS = (
    RoofLine(
        1, "aten::mm", "m=4096 n=4096 k=4097", "bf16", 10, 120.5, 90.0, 312.0, "catalogue", 28.8,
        "alignment", "3.1 times faster with K padded from 4097 to 4104", 80.0,
    ),
)  # fmt: skip


@cache
def opened() -> Opened:
    with tempfile.TemporaryDirectory() as folder:
        found = open_trace(
            busy_trace().write(Path(folder) / "train.pt.trace.json"), Wish(profile_name="My <b>profile</b>")
        )
    return dataclasses.replace(found, document=dataclasses.replace(found.document, advice=ADVICE, roofs=ROOFS))


@cache
def text() -> str:
    return html(opened().profile, opened().document)


@cache
def alone() -> str:
    """The page of a profile with one GPU."""
    with tempfile.TemporaryDirectory() as folder:
        found = open_trace(training().write(Path(folder) / "one.json.gz"))
    return html(found.profile, found.document)


def write(folder: Path, content: str = "") -> str:
    """The page as a file; its address."""
    path = folder / "page.html"
    path.write_text(content or text(), encoding="utf-8")
    return path.as_uri()


def look(
    chromium: browser.Chromium,
    folder: Path,
    view: str = "dashboard",
    do: Callable[[Page], Any] | None = None,
    *,
    content: str = "",
    **options: Any,
) -> browser.Visit:
    """A view of the page, with all that is wrong with it; `do` works with it once it is drawn."""

    def ready(page: Page) -> Any:
        page.wait_for_selector("#content h1")
        answer = do(page) if do else None
        assert page.evaluate("window.evil === undefined"), "a name of the profile ran"
        return answer

    return chromium.visit(f"{write(folder, content)}#/{view}", do=ready, **options)
