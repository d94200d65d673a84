"""Grows the trees of gpuprep/catalogue/learned from measured products, and says how good they are.

    pip install lightgbm scikit-learn       in any environment; gpuprep itself needs neither
    python tests/fitshapes.py [DTYPE ...]          writes the trees and errors.yml, prints the tables of explain.md
    python tests/fitshapes.py --check FOUND.csv    what measureshapes.py found beside predictions; writes nothing

Each product is also predicted by trees that have not seen it (FOLDS parts, each by trees of the others): these errors
are told. Readings that swing are left out of the fit and of its errors, not of --check.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from drawshapes import KINDS

from gpuprep.catalogue import boards, productlearned, productmodel
from gpuprep.performance import predict
from gpuprep.performance.operations import Operation
from gpuprep.records import Missing

MEASURED = Path(__file__).parent / "cases/shapes/h100_sxm5.csv.gz"
GROUPS = {
    "fp64": ("fp64",),
    "fp32": ("fp32",),
    "tf32": ("tf32",),
    "half": ("bf16", "fp16"),
    "int8": ("int8",),
    "fp8": ("fp8",),
}
FOLDS = 4
MOST_SPREAD = 40.0  # per cent: above it another program, or a clock that changed, was measured
# The first trees mind what is far off, and the others forget it: where the library may choose one of two kernels, the
# usual one is to be met, not their mean.
FIRST, THEN = 100, 500
FORGET = 0.15  # of the logarithm: an error from which on a product counts less and less
GROWN = {
    "learning_rate": 0.05, "num_leaves": 31, "min_child_samples": 8, "subsample": 0.7, "subsample_freq": 1,
    "colsample_bytree": 0.7, "reg_lambda": 1.0, "seed": 1, "verbose": -1, "n_jobs": 1,
    "force_col_wise": True, "deterministic": True,
}  # fmt: skip
DIGITS = 6


class Row(NamedTuple):
    recording: str
    dtype: str
    kind: str
    m: int
    n: int
    k: int
    microseconds: float
    spread_percent: float

    @property
    def operation(self) -> Operation:
        return Operation("product", "", self.m, self.n, self.k)


def rows(path: Path) -> list[Row]:
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text(encoding="utf-8")
    return [
        Row(
            one.get("recording", ""), one["dtype"], one["kind"], int(one["m"]), int(one["n"]), int(one["k"]),
            float(one["microseconds"]), float(one["spread_percent"] or 0),
        )
        for one in csv.DictReader(text.splitlines())
    ]  # fmt: skip


def _objective(truth: Any, found: Any) -> tuple[Any, Any]:
    """Welsch's loss."""
    error = found - truth
    weight = np.exp(-((error / FORGET) ** 2) / 2)
    return error * weight, np.maximum(weight, 0.05)


def grown(inputs: Any, wanted: Any) -> productlearned.Trees:
    import lightgbm

    first = lightgbm.LGBMRegressor(objective="huber", alpha=0.1, n_estimators=FIRST, **GROWN).fit(inputs, wanted)
    then = lightgbm.LGBMRegressor(objective=_objective, n_estimators=THEN, **GROWN)
    then.fit(inputs, wanted, init_score=first.predict(inputs))
    trees = []
    for model in (first, then):
        trees += [_flat(one["tree_structure"]) for one in model.booster_.dump_model()["tree_info"]]
    return productlearned.Trees(0.0, tuple(trees))


def _flat(root: dict[str, Any]) -> tuple[list[int], list[float], list[int], list[int], list[float]]:
    feature: list[int] = []
    threshold: list[float] = []
    left: list[int] = []
    right: list[int] = []
    leaves: list[float] = []

    def add(node: dict[str, Any]) -> int:
        if "leaf_value" in node:
            leaves.append(round(node["leaf_value"], DIGITS))
            return ~(len(leaves) - 1)
        here = len(feature)
        feature.append(node["split_feature"])
        threshold.append(float(f"{node['threshold']:.{DIGITS}g}"))
        left.append(0)
        right.append(0)
        left[here], right[here] = add(node["left_child"]), add(node["right_child"])
        return here

    if "leaf_value" in root:  # nothing more to split: one node, both ways alike
        return [0], [0.0], [~0], [~0], [round(root["leaf_value"], DIGITS)]
    add(root)
    return feature, threshold, left, right, leaves


def written(trees: productlearned.Trees, path: Path) -> None:
    text = json.dumps({"start": trees.start, "trees": trees.trees}, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def within_10(errors: Sequence[float]) -> float:
    return sum(error <= 0.10 for error in errors) / len(errors)


def nine_in_ten(errors: Sequence[float]) -> float:
    return float(np.quantile(errors, 0.9))


def fit(group: str, everything: list[Row]) -> tuple[dict[str, Any], list[str]]:
    """(its entries of errors.yml, lines of the table by kind)."""
    board = boards()[productmodel.measured().board]
    chosen = [one for one in everything if one.dtype in GROUPS[group] and one.spread_percent <= MOST_SPREAD]
    found = [predict.learned_features(board, one.operation, one.dtype) for one in chosen]
    inputs = np.array([features for features, _ in found])
    wanted = np.array([math.log(row.microseconds / us) for row, (_, us) in zip(chosen, found, strict=True)])
    chance = random.Random(1)
    fold = np.array([chance.randrange(FOLDS) for _ in chosen])
    unseen = np.zeros(len(chosen))
    for number in range(FOLDS):
        trees = grown(inputs[fold != number], wanted[fold != number])
        for i in np.flatnonzero(fold == number):
            unseen[i] = trees.value(found[i][0])
    written(grown(inputs, wanted), productlearned.FOLDER / f"{group}.json.gz")
    entries: dict[str, Any] = {}
    lines = []
    for dtype in GROUPS[group]:
        bands, kinds = defaultdict(list), defaultdict(list)
        for row, one, log, (_, us) in zip(chosen, unseen, wanted, found, strict=True):
            if row.dtype != dtype:
                continue
            error = abs(math.exp(log - one) - 1)  # of TFLOPS
            aligned = predict.alignment(row.operation, dtype)
            bands[predict.kind_of(row.operation, dtype, us * math.exp(one) / 1e6, aligned)].append(error)
            if row.kind:
                kinds[row.kind].append(error)
        entries[dtype] = {
            kind: {
                "shapes": len(errors),
                "percent": math.ceil(100 * nine_in_ten(errors)),
                "within_10": round(within_10(errors), 2),
            }
            for kind, errors in sorted(bands.items())
        }
        lines.append(_line(dtype, kinds))
    return entries, lines


def _line(dtype: str, kinds: dict[str, list[float]]) -> str:
    """The kinds in equal parts."""
    parts = [within_10(kinds[kind]) for kind in KINDS]
    cells = [f"{100 * one:.0f} %" for one in (sum(parts) / len(parts), *parts)]
    return f"| {dtype} | {sum(map(len, kinds.values()))} | {' | '.join(cells)} |"


def check(path: Path) -> list[str]:
    board = boards()[productmodel.measured().board]
    kinds: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    every: dict[str, list[float]] = defaultdict(list)
    for row in rows(path):
        found = predict.predict(board, row.operation, row.dtype)
        if isinstance(found, Missing):
            print(f"{row}: {found.detail}", file=sys.stderr)
            continue
        error = abs(found.tflops * row.microseconds * 1e6 / row.operation.operations - 1)
        kinds[row.dtype][row.kind].append(error)
        every[row.dtype].append(error)
    return [
        f"| {dtype} | {len(errors)} | {100 * within_10(errors):.1f} % | {100 * nine_in_ten(errors):.1f} % | "
        + ", ".join(f"{kind} {100 * within_10(one):.0f} %" for kind, one in sorted(kinds[dtype].items()))
        + " |"
        for dtype, errors in every.items()
    ]


def table(entries: dict[str, Any]) -> Iterable[str]:
    for dtype, kinds in entries.items():
        for kind, one in kinds.items():
            yield f"| {dtype}, {kind} | {one['shapes']} | {100 * one['within_10']:.0f} % | {one['percent']} % |"


def errors_written(entries: dict[str, Any]) -> None:
    lines = [
        "# Errors of products that trees without them had to predict (tests/fitshapes.py writes this).",
        "# short: expected below short_us of productmodel.yml; skinny: one dimension up to 128.",
    ]
    for dtype, kinds in entries.items():
        lines.append(f"{dtype}:")
        for kind, one in kinds.items():
            words = ", ".join(f"{key}: {value}" for key, value in one.items())
            lines.append(f"  {kind}: {{{words}}}")
    (productlearned.FOLDER / "errors.yml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    if sys.argv[1:2] == ["--check"]:
        print("\n".join(check(Path(sys.argv[2]))))
        return
    productlearned.FOLDER.mkdir(exist_ok=True)
    everything = rows(MEASURED)
    path = productlearned.FOLDER / "errors.yml"
    entries = productlearned.errors() if path.is_file() else {}
    entries = dict(entries)
    lines = []
    for group in GROUPS:
        if sys.argv[1:] and not set(GROUPS[group]) & set(sys.argv[1:]):
            continue
        more, told = fit(group, everything)
        entries |= more
        lines += told
        print("\n".join(told), flush=True)
    errors_written({dtype: entries[dtype] for types in GROUPS.values() for dtype in types if dtype in entries})
    print("\n".join(table(entries)))


if __name__ == "__main__":
    main()
