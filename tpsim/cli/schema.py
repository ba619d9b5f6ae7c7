"""``tpsim schema``: the JSON Schema of a file format or of an output."""

from __future__ import annotations

from dataclasses import replace

import click
from click.core import ParameterSource

from tpsim.cli import options
from tpsim.cli.output import Output, output_options


@click.command(context_settings={"default_map": {"form": "json"}})
@click.argument("name", required=False, shell_complete=options.schemas)
@output_options
@click.pass_context
def schema(ctx: click.Context, name: str | None, output: Output) -> None:
    r"""The JSON Schema of a file format or of an output; without NAME, which there are.

    A schema is printed as JSON, for editors; -f table shows its fields, -v also what they mean.

    \b
    tpsim schema hardware -o hardware.json
    tpsim schema plan -f table
    """
    from tpsim.answers import schema as verb
    from tpsim.pages.schema import list_page, page

    if name is not None:
        result = verb.schema(name)
        return output.write(result, page)
    asked = ctx.get_parameter_source("form") is ParameterSource.COMMANDLINE
    listed = verb.SchemaListResult()
    output = output if asked else replace(output, format="table")
    return output.write(listed, list_page)
