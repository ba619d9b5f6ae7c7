"""``tpsim scenario``: the questions of the library."""

from __future__ import annotations

from tpsim.cli.main import Suggesting
from tpsim.cli.output import Output, output_options

scenario = Suggesting("scenario", help="The scenarios: questions that plan, search and others take by name.")


@scenario.command(name="list", short_help="The scenarios of the library; -v adds their meshes.")
@output_options
def list_scenarios(output: Output) -> None:
    """The scenarios of the library; -v adds their meshes."""
    from tpsim.answers.scenario import scenario_list
    from tpsim.pages.scenario import list_page

    result = scenario_list()
    output.write(result, list_page)
