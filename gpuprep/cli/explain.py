"""gpuprep explain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from gpuprep.cli import options
from gpuprep.cli.console import page_width
from gpuprep.cli.output import Output, as_output

F = TypeVar("F", bound=Callable[..., Any])

# Options that belong to one kind of question.
OF_ONE_KIND = (
    "dtype", "batch", "layout", "precision", "optimizer", "layers", "hidden", "heads", "kv_heads", "sequence",
    "recompute",
)  # fmt: skip


def _size(name: str, most: int, help_text: str) -> Callable[[F], F]:
    return click.option(name, type=click.IntRange(1, most), help=help_text)


@click.command()
@click.argument("shapes", metavar="[MxNxK...]", nargs=-1)
@click.option("--gpu", metavar="NAME", help="A model or board: t4, a100_pcie_40, 'A100 PCIe 40 GB', or a PCI id.")
@click.option(
    "--dtype",
    metavar="TYPE",
    multiple=True,
    callback=options.names,
    help="Data type: fp64, fp32, tf32, bf16, fp16, fp8 or int8; may be repeated. Default: fp16.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 2**31 - 1),
    default=1,
    help="How many products of each shape; with --model: sequences at a time.",
)
@click.option(
    "--layout",
    type=click.Choice(["row", "nn", "nt", "tn", "tt"], case_sensitive=False),
    default="row",
    help="How the matrices of MxNxK lie in memory: row, as x(MxK) @ w(NxK).T of PyTorch and NumPy; or column-major as "
    "BLAS names it, t for a transposed operand. Default: row.",
)
@click.option(
    "--conv",
    metavar="N,H,W,C,K,R,S[,STRIDE,PAD]",
    multiple=True,
    help="A convolution: N images of HxW with C channels, K filters of RxS.",
)
@click.option(
    "--attention", metavar="BATCH,HEADS,SEQUENCE,SIZE", multiple=True, help="Attention; SIZE is that of a head."
)
@click.option("--model", metavar="PARAMETERS", help="Memory of a model of so many parameters: 7e9, 7B, 350M.")
@click.option(
    "--precision",
    metavar="NAME",
    help="With --model: fp32, tf32, bf16, fp16, pure-bf16, fp8, int8 or int4. Default: bf16.",
)
@click.option(
    "--optimizer",
    metavar="NAME",
    help="With --model: trained with adam, adam-8bit, momentum or sgd. Default: none, the model is not trained.",
)
@_size("--layers", 10**6, "With --model: layers of the transformer.")
@_size("--hidden", 10**7, "With --model: hidden size.")
@_size("--heads", 10**6, "With --model: attention heads.")
@_size("--kv-heads", 10**6, "With --model: heads of keys and values. Default: as many as --heads.")
@_size("--sequence", 10**9, "With --model: tokens of a sequence.")
@click.option(
    "--recompute",
    type=click.Choice(["none", "selective", "full"]),
    default="selective",
    help="With --model: which activations are calculated again in training. Default: selective, the attention scores.",
)
@as_output(options.output)
def explain(
    shapes: tuple[str, ...],
    gpu: str | None,
    dtype: tuple[str, ...],
    batch: int,
    layout: str,
    conv: tuple[str, ...],
    attention: tuple[str, ...],
    model: str | None,
    precision: str | None,
    optimizer: str | None,
    layers: int | None,
    hidden: int | None,
    heads: int | None,
    kv_heads: int | None,
    sequence: int | None,
    recompute: str,
    output: Output,
) -> None:
    """Show what a GPU can do, without a machine.

    With shapes, convolutions or attentions: how fast they will be on this GPU, what limits them, and which shape near
    them is faster. With --model: how much memory the model takes, and which boards hold it. With --gpu alone: what is
    known of the board. A product MxNxK is C (MxN) = A (MxK) B (KxN).
    """
    from gpuprep.reports import explained
    from gpuprep.workflows import explain as questions

    typed = click.get_current_context()
    given = tuple(
        f"--{name.replace('_', '-')}"
        for name in OF_ONE_KIND
        if typed.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    )
    asked = questions.Question(
        gpu=gpu,
        dtypes=tuple(name.lower() for name in dtype) or ("fp16",),
        batch=batch,
        layout=layout,
        shapes=shapes,
        convolutions=conv,
        attentions=attention,
        model=None
        if model is None
        else questions.ModelQuestion(
            model, precision, optimizer, layers, hidden, heads, kv_heads, sequence, batch, recompute
        ),
        given=given,
    )
    answer = questions.answer(asked)
    if output.as_json:
        from gpuprep.reports import documents

        output.write(documents.document(documents.Explained(**explained.document(answer), exit_code=0)))
    else:
        output.write(explained.page(answer, page_width(), whole=output.verbose))
