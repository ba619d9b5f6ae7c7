"""How far published runs were from what was predicted of them: a file beside the machines, which a benchmark writes."""

from __future__ import annotations

from functools import cache
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tpsim.quantity import spec

Ratio = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(strict=True, ge=0)]


class BandFields(spec.Strict):
    """Where eight of ten measured steps lie, as a share of the predicted one."""

    noun: ClassVar[str] = "a band"
    generation: str | None = Field(None, description="of chips whose constants rest on several sets; none: any other")
    calibrated: bool = Field(default=False, description="of machines that own runs have moved, of whatever generation")
    low: Ratio
    high: Ratio
    runs: Count
    sets: Count


class SharesFields(spec.Strict):
    """How the shares of peak that chips reach scatter, as runs of one set say beside those of others.

    known                generations whose shares rest on several sets
    between_sets         covariance of their logarithms among sets of one generation
    between_generations  what comes on top from one generation to another
    """

    noun: ClassVar[str] = "a scatter of shares"
    of: list[str]
    known: list[str]
    sets: Count
    between_sets: list[list[float]]
    between_generations: list[list[float]]
    noise: Ratio = Field(description="standard deviation of a run about its set, relative")
    launch: Ratio = Field(description="standard deviation of the logarithm of a launch that is guessed")


class EvidenceFile(spec.Strict):
    """Bands of steps, those of one kind of runs before that of all others; scatter of shares; how many chips waited."""

    noun: ClassVar[str] = "a file of evidence"
    tpsim: Literal["evidence/1"]
    steps: list[BandFields]
    shares: SharesFields
    waited: dict[str, Count] = Field(description="by generation, the most chips of a run that waited for each other")

    def band(self, generation: str, *, calibrated: bool = False) -> BandFields:
        """The first that such a run falls under."""
        return next(
            band for band in self.steps if band.generation in (None, generation) and calibrated >= band.calibrated
        )


@cache
def evidence() -> EvidenceFile:
    """What tpsim ships."""
    return spec.read(spec.shipped("hardware") / "evidence" / "steps.yaml", EvidenceFile)[0]
