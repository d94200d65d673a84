"""Where an expected product will lose speed, by the factors with which measured products are explained. Pure."""

from __future__ import annotations

from dataclasses import replace

from gpuprep.performance import attribution
from gpuprep.performance.attribution import Factor
from gpuprep.performance.predict import Prediction
from gpuprep.records import Missing
from gpuprep.records.evidence.gemm import Algorithm, Product


def losses(prediction: Prediction) -> tuple[Factor, ...]:
    """Clock, bound, tile, wave, alignment, kernel; () for what is no single product."""
    operation, tiled = prediction.operation, prediction.tiled
    if operation.kind != "product" or operation.batch > 1:
        return ()
    algorithm = Algorithm(tile_m=tiled.tile_m, tile_n=tiled.tile_n, split_k=tiled.split_k)
    explained = attribution.explain(
        Product(
            dtype=prediction.dtype,
            m=operation.m,
            n=operation.n,
            k=operation.k,
            tflops=prediction.tflops,
            graphics_clock_mhz=prediction.clock_mhz,
            algorithm=algorithm,
        ),
        prediction.board,
        rows="" if prediction.aligned_gain is None else operation.rows,
    )
    if isinstance(explained, Missing):
        return ()
    own = {"clock": f"the clock under this load ({prediction.clock_mhz:.0f} of {prediction.peak.clock_mhz:.0f} MHz)"}
    if prediction.bound == "launch":
        own["kernel"] = "the start of the kernel"
    return tuple(replace(factor, words=own.get(factor.name, factor.words)) for factor in explained.factors)


def words(prediction: Prediction) -> str:
    """ "167 of 1071 TFLOPS: 152 lost to the clock …" """
    factors = losses(prediction)
    return attribution.words(prediction.dtype, prediction.tflops, prediction.peak.tflops, factors) if factors else ""
