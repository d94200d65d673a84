"""Words of the page that not everybody knows, as docs/glossary.md explains them (a test compares)."""

from __future__ import annotations

WORDS = {
    "peak": "The speed by the data sheet: units × operations a clock × boost clock. No real program reaches it",
    "boost clock": "The highest clock that NVIDIA names for a GPU. Peaks are calculated with it",
    "floor": "The lowest figure that passes, in per cent of the GPU's peak",
    "long run": "The same product for about twenty seconds, until power limit and heat act. Other figures are short",
    "clock": "How fast the GPU's units tick. A power limit, heat or a setting holds it below the boost clock",
    "memory bound": "Loading the matrices takes longer than calculating, so memory sets the speed",
    "tiles": "A product is cut into tiles of a fixed size. Where the matrix ends inside a tile, its rest is wasted",
    "last wave": "The GPU calculates as many tiles at once as it has room for: a wave. In the last one, much of that"
    " room may stay empty",
    "alignment": "Rows that do not begin at multiples of 16 bytes slow the Tensor Cores",
    "kernel": "The program that calculates the product on the GPU; here: lost speed that clock, memory,"
    " tiles and waves do not explain",
    "roofline": "How fast memory and units allow a product to be, by how much it calculates for each loaded byte",
    "session": "One FFmpeg process at work. Several at once fill all video engines",
    "stream": "One video in real time: 1080p30 is 1920×1080 at 30 frames a second",
    "triad": "Reads two arrays and writes a third, as STREAM does",
    "PSNR": "How close a picture is to the original, in dB. More is better; above 40 dB eyes see no difference",
}
