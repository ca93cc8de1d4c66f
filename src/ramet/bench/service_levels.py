"""Service-level targets, and the requests that meet them."""

from __future__ import annotations

from dataclasses import dataclass

from ramet.bench.targets import Outcome
from ramet.lang.base.errors import UsageError


@dataclass(frozen=True, slots=True)
class ServiceLevels:
    """Upper limits of a request's times in seconds; None: no limit.

    Goodput counts only the requests that keep all of them.
    """

    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None

    @classmethod
    def parse(cls, text: str) -> ServiceLevels:
        """Reads ``ttft=0.5,tpot=0.05``.

        Raises:
            UsageError: it has another form, or an unknown name.
        """
        limits: dict[str, float] = {}
        for part in text.split(","):
            name, _, value = part.partition("=")
            try:
                limits[name.strip()] = float(value)
            except ValueError:
                raise UsageError(f"{part!r} is not a target: write ttft=0.5,tpot=0.05") from None
        if unknown := limits.keys() - set(cls.__slots__):
            raise UsageError(f"unknown target {min(unknown)!r}; available: ttft, tpot, e2e")
        if not all(value > 0 for value in limits.values()):
            raise UsageError("a target must be above 0 seconds")
        return cls(**limits)

    def are_met_by(self, outcome: Outcome) -> bool:
        """Whether a request ended well within all limits."""
        if outcome.error is not None:
            return False
        measured = ((self.ttft, outcome.ttft_s), (self.tpot, outcome.tpot_s or 0.0),
                    (self.e2e, outcome.total_s))  # fmt: skip
        return all(limit is None or value <= limit for limit, value in measured)

    def __str__(self) -> str:
        limits = ((name, getattr(self, name)) for name in self.__slots__)
        return ", ".join(f"{name} ≤ {value:g} s" for name, value in limits if value is not None)
