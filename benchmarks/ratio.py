"""One measured ratio and the bound it should keep."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """How much of the reference something takes."""

    name: str
    measured: float
    bound: float
    detail: str = ""

    @property
    def kept(self) -> bool:
        """Whether the bound holds."""
        return self.measured <= self.bound

    def __str__(self) -> str:
        verdict = "ok  " if self.kept else "OVER"
        return f"{verdict} {self.name}: {self.measured:.2f} (at most {self.bound:g})  {self.detail}".rstrip()
