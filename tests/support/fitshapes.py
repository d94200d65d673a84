"""Grows the trees of gpuprep/catalogue/learned from measured products, and says how good they are.

    pip install lightgbm scikit-learn       in any environment; gpuprep itself needs neither
    python tests/support/fitshapes.py [DTYPE ...]      writes the trees and errors.yml, prints the tables of explain.md
    python tests/support/fitshapes.py --check FOUND.csv  what measureshapes.py found beside predictions; writes nothing

What PyTorch got on an H200, cold and warm, is what the trees are for; the fastest algorithms of an H100 are further
examples, told apart by a feature (learned.Way). Each product of PyTorch is also predicted by trees that have not seen
it (FOLDS parts, each by trees of the others): the errors of the cold ones are told. Readings that swing are left out of
the fit and of its errors, not of --check.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from drawshapes import KINDS
from places import TESTS

from gpuprep.catalogue import boards, productmodel
from gpuprep.performance import learned, predict
from gpuprep.performance.operations import Operation
from gpuprep.records import Missing

FASTEST = TESTS / "cases/shapes/h100_sxm5.csv.gz"
TORCH = TESTS / "cases/shapes/h200_torch.csv.gz"
TORCH_BOARD = "h200_sxm"
JUDGES = "judge-"  # recordings that nothing is learned from
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
# Boards start a kernel not equally fast: on the eighth recording's all products take about 0.16 us longer than on the
# others. What explain expects lies in the middle.
LATER_US = 0.08
NEAR = 0.1  # of the logarithm: a larger error weighs no more on the first trees
GROWN = {
    "learning_rate": 0.05, "subsample": 0.7, "subsample_freq": 1, "colsample_bytree": 0.7, "reg_lambda": 1.0, "seed": 1,
    "verbose": -1, "n_jobs": 1, "force_col_wise": True, "deterministic": True,
}  # fmt: skip
# Another draw, or another machine, has a little more: what is said must hold there for nine in ten, too.
SURELY_NINE_IN_TEN = 0.93
DIGITS = 6


class Way(NamedTuple):
    """How trees are grown. The first mind what is far off, and the others forget it: where the library may choose one
    of two kernels, the usual one is to be met, not their mean.
    """

    far: bool  # the first trees follow also what is ten times as slow as the formula has it
    first: int  # trees
    then: tuple[tuple[float, int], ...]  # (error of the logarithm from which on a product counts less and less, trees)
    leaves: int
    least: int  # products of a leaf


USUAL = Way(far=False, first=100, then=((0.15, 700),), leaves=63, least=8)
# A third of int8's products of few tiles and long k get a kernel that is 2 to 6 times as slow: a kind of its own, which
# trees find if they may follow it.
WAYS = {
    "half": USUAL._replace(leaves=127),
    "tf32": USUAL._replace(leaves=127),
    "int8": Way(far=True, first=100, then=((0.3, 100), (0.2, 100), (0.12, 500)), leaves=63, least=8),
}


class Row(NamedTuple):
    recording: str
    dtype: str
    kind: str
    m: int
    n: int
    k: int
    microseconds: float
    spread_percent: float
    board: str
    way: learned.Way

    @property
    def operation(self) -> Operation:
        return Operation("product", "", self.m, self.n, self.k, rows=learned.LAYOUT)


def rows(path: Path) -> list[Row]:
    """Of PyTorch's products those in its own layout, each cold and warm: column-major its m is n."""
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text(encoding="utf-8")
    found = []
    for one in csv.DictReader(text.splitlines()):
        m, n, k, spread = int(one["m"]), int(one["n"]), int(one["k"]), float(one["spread_percent"] or 0)
        what = one.get("recording", ""), one["dtype"], one["kind"]
        if "cold_us" not in one:
            board, way = productmodel.measured().board, learned.Way(first=False)
            found.append(Row(*what, m, n, k, float(one["microseconds"]), spread, board, way))
        elif one["layout"] == "kkn":
            found += [
                Row(*what, n, m, k, float(one[column]), spread, TORCH_BOARD, learned.Way(warm=warm))
                for column, warm in (("cold_us", False), ("warm_us", True))
            ]
    return found


def _forgets(scale: float) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Welsch's loss."""

    def objective(truth: Any, found: Any) -> tuple[Any, Any]:
        error = found - truth
        weight = np.exp(-((error / scale) ** 2) / 2)
        return error * weight, np.maximum(weight, 0.05)

    return objective


def _follows(truth: Any, found: Any) -> tuple[Any, Any]:
    """Huber's loss. Its curvature falls with the error, so that a leaf goes all the way to its products; LightGBM's own
    moves 0.005 a tree at most, and never meets what is far off.
    """
    error = found - truth
    return np.clip(error, -NEAR, NEAR), np.minimum(1.0, NEAR / np.maximum(np.abs(error), 1e-9))


def grown(inputs: Any, wanted: Any, way: Way = USUAL) -> productmodel.Trees:
    import lightgbm

    common = {**GROWN, "num_leaves": way.leaves, "min_child_samples": way.least}
    first = {"objective": _follows} if way.far else {"objective": "huber", "alpha": NEAR}
    stages = [(first, way.first), *(({"objective": _forgets(scale)}, count) for scale, count in way.then)]
    so_far = np.zeros(len(wanted))
    trees = []
    for number, (objective, count) in enumerate(stages):
        model = lightgbm.LGBMRegressor(n_estimators=count, **objective, **common)
        model.fit(inputs, wanted, init_score=so_far if number else None)
        so_far += model.predict(inputs)
        trees += [_flat(one["tree_structure"]) for one in model.booster_.dump_model()["tree_info"]]
    return productmodel.Trees(0.0, tuple(trees))


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


def written(trees: productmodel.Trees, path: Path) -> None:
    text = json.dumps({"start": trees.start, "trees": trees.trees}, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def within_10(errors: Sequence[float]) -> float:
    return sum(error <= 0.10 for error in errors) / len(errors)


def nine_in_ten(errors: Sequence[float]) -> float:
    return float(np.quantile(errors, 0.9))


def fit(group: str, everything: list[Row]) -> tuple[dict[str, Any], list[str]]:
    """(its entries of errors.yml, lines of the table by kind)."""
    chosen = [
        one for one in everything
        if one.dtype in GROUPS[group] and one.spread_percent <= MOST_SPREAD and not one.recording.startswith(JUDGES)
    ]  # fmt: skip
    found = [predict.learned_features(boards()[one.board], one.operation, one.dtype, one.way) for one in chosen]
    inputs = np.array([features for features, _ in found])
    logs = np.array([math.log(row.microseconds / us) for row, (_, us) in zip(chosen, found, strict=True)])
    later = [0.0 if row.way.first else LATER_US for row in chosen]
    wanted = logs + np.array([math.log1p(us / row.microseconds) for us, row in zip(later, chosen, strict=True)])
    way = WAYS.get(group, USUAL)
    chance = random.Random(1)
    folds: dict[tuple[int, int, int], int] = {}  # cold and warm in one
    fold = np.array([folds.setdefault((one.m, one.n, one.k), chance.randrange(FOLDS)) for one in chosen])
    unseen = np.zeros(len(chosen))
    for number in range(FOLDS):
        trees = grown(inputs[fold != number], wanted[fold != number], way)
        for i in np.flatnonzero(fold == number):
            unseen[i] = trees.value(found[i][0])
    written(grown(inputs, wanted, way), productmodel.FOLDER / f"{group}.json.gz")
    entries: dict[str, Any] = {}
    lines = []
    for dtype in GROUPS[group]:
        bands, kinds = defaultdict(list), defaultdict(list)
        for row, one, log, (_, us) in zip(chosen, unseen, logs, found, strict=True):
            if row.dtype != dtype or not row.way.first or row.way.warm:
                continue
            error = abs(math.exp(log - one) - 1)  # of TFLOPS
            aligned = predict.alignment(row.operation, dtype)
            bands[predict.kind_of(row.operation, dtype, us * math.exp(one) / 1e6, aligned)].append(error)
            if row.kind:
                kinds[row.kind].append(error)
        entries[dtype] = {
            kind: {
                "shapes": len(errors),
                "percent": math.ceil(100 * float(np.quantile(errors, SURELY_NINE_IN_TEN))),
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
    kinds: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    every: dict[str, list[float]] = defaultdict(list)
    for row in rows(path):
        if row.way.warm or (row.way.first and not row.recording.startswith(JUDGES)):
            continue
        found = predict.predict(boards()[row.board], row.operation, row.dtype)
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
        "# Errors of products that trees without them had to predict (tests/support/fitshapes.py writes this).",
        "# short: expected below short_us of productmodel.yml; skinny: one dimension up to 128.",
    ]
    for dtype, kinds in entries.items():
        lines.append(f"{dtype}:")
        for kind, one in kinds.items():
            words = ", ".join(f"{key}: {value}" for key, value in one.items())
            lines.append(f"  {kind}: {{{words}}}")
    (productmodel.FOLDER / "errors.yml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    if sys.argv[1:2] == ["--check"]:
        print("\n".join(check(Path(sys.argv[2]))))
        return
    productmodel.FOLDER.mkdir(exist_ok=True)
    everything = [*rows(FASTEST), *rows(TORCH)]
    path = productmodel.FOLDER / "errors.yml"
    entries = productmodel.errors() if path.is_file() else {}
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
