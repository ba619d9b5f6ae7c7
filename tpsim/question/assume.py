"""What a scenario assumes of its run, as its file writes it: figures, each with the kind of knowledge it is."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from tpsim.program.tokens import Counted
from tpsim.quantity.spec import Bytes, OrShort, Seconds, Share, Strict, alone


class ValueFields(Strict):
    """A share of one, and what kind of knowledge it is."""

    noun: ClassVar[str] = "a stated value"

    value: Share
    kind: Literal["stated", "measured", "derived", "guess"] = "guess"
    source: str = ""

    _number = alone("value")


class BytesFields(ValueFields):
    """Bytes, and what kind of knowledge they are."""

    value: Bytes


class LaunchFields(ValueFields):
    """Seconds of a launch, and what kind of knowledge they are."""

    value: Seconds


class Overheads(Strict):
    """What memory holds beside the arrays of a step."""

    noun: ClassVar[str] = "an overhead of memory"

    context: Annotated[BytesFields, OrShort("string")] | None = None
    workspace: Annotated[BytesFields, OrShort("string")] | None = None
    fragmentation: Annotated[ValueFields, OrShort("number", "string")] | None = None

    @property
    def figures(self) -> dict[str, float]:
        """Each by its name with its unit; fragmentation is a share of the arrays."""
        units = {"context": "context_bytes", "workspace": "workspace_bytes"}
        return {units.get(name, name): figure.value if figure else 0 for name, figure in self}

    def beside(self, arrays_bytes: Any) -> Any:
        """Bytes beside arrays of so many bytes."""
        context, workspace, fragmentation = self.figures.values()
        return context + workspace + fragmentation * arrays_bytes


class PriceFields(ValueFields):
    """What something costs, in whatever money, and what kind of knowledge that is."""

    value: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class CopiesFields(Strict):
    """How many nodes, or ranks, the experts of a token lie on; none: as chance has it."""

    noun: ClassVar[str] = "a number of copies"

    node: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = None
    rank: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = None


class RoutingFields(Strict):
    """How tokens choose experts."""

    noun: ClassVar[str] = "a field of routing"

    load: Literal["balanced", "uniform"] | Annotated[float, Field(ge=1, allow_inf_nan=False)] = Field(
        default="balanced", description="rows of the fullest rank over the mean; uniform: as chance has it"
    )
    drop: Literal["none"] | Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        default="none", description="capacity factor: rows of an expert over the mean; what is beyond is dropped"
    )
    copies: Literal["uniform", "bound"] | CopiesFields = Field(
        default="uniform",
        description="nodes and ranks that a token goes to: as chance has it, at most, or so many on average",
    )


class Assume(Strict):
    """What is assumed about the run."""

    noun: ClassVar[str] = "an assumption"

    matmul_efficiency: Annotated[ValueFields, OrShort("number", "string")] | None = None
    memory: Overheads = Field(default_factory=Overheads.model_construct)
    routing: RoutingFields = RoutingFields.model_construct()
    mfu: Counted = Field(
        default="full", description="what shares of peak count of attention: its whole s by s, or what its mask shows"
    )
    price_per_chip_hour: Annotated[PriceFields, OrShort("number")] | None = None
    kernel_launch: Annotated[LaunchFields, OrShort("string")] | None = Field(
        default=None,
        description="seconds in which a host launches a kernel, one after the other; none: it is never waited for",
    )

    @property
    def kernel_launch_s(self) -> float:
        """Seconds of a launch; 0 if nothing waits for any."""
        return self.kernel_launch.value if self.kernel_launch else 0
