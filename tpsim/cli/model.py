"""``tpsim model``: the models."""

from __future__ import annotations

import click

from tpsim.cli import options
from tpsim.cli.main import Suggesting
from tpsim.cli.output import Output, output_options

model = Suggesting("model", help="The models: their sizes and parameters as read.")


@model.command(name="list")
@output_options
def list_models(output: Output) -> None:
    """The models of the library."""
    from tpsim.answers.model import model_list
    from tpsim.pages.model import list_page

    result = model_list()
    output.write(result, list_page)


@model.command(short_help="What was read from one model.")
@click.argument("name", shell_complete=options.models)
@output_options
def show(name: str, output: Output) -> None:
    r"""What was read from a library model, a .yaml, or a Hugging Face config.json.

    \b
    tpsim model show llama-3-8b
    """
    from tpsim.answers.model import model_show
    from tpsim.pages.model import page

    result = model_show(name)
    output.write(result, page)
