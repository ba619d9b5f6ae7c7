"""``tpsim hw``: the machines."""

from __future__ import annotations

import shlex
from functools import partial
from typing import Any

import click

from tpsim.cli import options
from tpsim.cli.main import Suggesting
from tpsim.cli.output import FORMATS, Output, counting, output_options

hw = Suggesting("hw", help="The machines: their constants with sources.")


@hw.command(name="list", short_help="The machines of the library; -v adds their chips.")
@output_options
def list_machines(output: Output) -> None:
    """The machines of the library; -v adds the chips that they are made of."""
    from tpsim.answers.hw import hw_list
    from tpsim.pages.hw import list_page

    result = hw_list()
    output.write(result, list_page)


@hw.command(short_help="Every constant of one machine.")
@click.argument("name", shell_complete=options.machines)
@output_options
def show(name: str, output: Output) -> None:
    r"""Every constant of one machine, with its source; NAME is a library name or a .yaml.

    \b
    tpsim hw show dgx-h100
    """
    from tpsim.answers.hw import hw_show
    from tpsim.pages.hw import page

    result = hw_show(name)
    output.write(result, page)


@hw.command(short_help="Hold profiles against the rules.")
@click.argument("names", metavar="[FILE]...", nargs=-1, shell_complete=options.machines)
@click.option("--strict", is_flag=True, help="Ask of your own profile what those of tpsim must have: source and kind.")
@output_options
def validate(names: tuple[str, ...], strict: bool, output: Output) -> None:
    r"""Hold profiles, or files of chips, against the rules: files or library names; without any, all machines.

    Your own profile may write a bare 45 GB/s, which counts as a guess; those that tpsim ships may not.

    \b
    tpsim hw validate my-cluster.yaml
    """
    from tpsim.answers.hw import hw_validate
    from tpsim.pages.hw import validate_page

    result = hw_validate(names, strict=strict)
    output.write(result, validate_page)


@hw.command(short_help="A profile from what was measured.")
@click.argument("logs", metavar="[LOG]...", nargs=-1, shell_complete=options.files)
@click.option(
    "--runs",
    metavar="FILE",
    shell_complete=options.files,
    help="Measured steps: CSV of scenario, seconds and, if known, memory.",
)
@click.option(
    "--base",
    required=True,
    metavar="MACHINE",
    shell_complete=options.machines,
    help="Library name or .yaml: what logs or runs leave open stays so.",
)
@click.option(
    "--level", metavar="LEVEL", help="Where the ranks lay: nvlink, or nvlink,network. Default: innermost first."
)
@click.option("--name", metavar="NAME", help="Of the new machine. Default: the base's, and -measured.")
@click.option("--ranks", type=click.IntRange(min=2), metavar="N", help="Of logs that do not say theirs, as of OSU.")
@click.option(
    "--collective", metavar="NAME", shell_complete=options.collectives, help="Of logs that do not say theirs."
)
@partial(output_options, formats=(*FORMATS, "yaml"))
def fit(output: Output, **asked: Any) -> None:
    r"""Fit launches, latencies and bandwidths to measured collectives, or shares of peak to measured steps.

    LOG is what nccl-tests or rccl-tests print (debug lines may stand between, time stamps and ranks before each line),
    the JSON that nccl-tests writes with -J, or what the OSU micro-benchmarks print; - is stdin. Two points will do:
    what they cannot determine stays as the base has it. Collectives, rank counts and harnesses are fitted together.

    \b
    tpsim hw fit all_reduce.txt all_gather.txt --base dgx-h100 -o my-h100.yaml

    With --runs, steps move what the chips reach of their peaks in products, memory and fused attention, held by how
    these differ between published runs: one step moves them a little, several more.

    \b
    tpsim hw fit --runs runs.csv --base dgx-h100 -o my-h100.yaml
    """
    from tpsim.calibrate.fit import hw_fit
    from tpsim.pages.fit import page
    from tpsim.question.edits import flag_words

    with output.watched() as show:
        result = hw_fit(**asked, progress=counting(show))
    profile = next((str(file) for file in output.files if file.suffix == ".yaml"), None)
    words = (*asked.pop("logs"), *flag_words(asked), "-o", f"{result.name}.yaml")
    again = "" if "-" in words else shlex.join(["tpsim", "hw", "fit", *words])
    output.write(result, partial(page, profile=profile, level=asked["level"], again=again))
