"""How far the shipped tables are from measured rows that none of them has seen."""

from __future__ import annotations

from dataclasses import dataclass

from firstlight.roofline.calibration import calibration


@dataclass(frozen=True, slots=True, kw_only=True)
class TableError:
    """Residual error of one table on the rows kept out of it.

    Attributes:
        kernel: Kernel family; names ending in ``_power`` are board power, the rest are times.
        device: Catalog id of the device.
        format: Number format of the kernel.
        rows: Rows measured.
        held_out: Rows kept out of the table and scored.
        median_frac: Median relative error.
        p90_frac: Relative error that nine rows in ten stay below.
    """

    kernel: str
    device: str
    format: str
    rows: int
    held_out: int
    median_frac: float
    p90_frac: float

    @property
    def status(self) -> str:
        """``measured`` when the median error is at most a tenth, else ``estimate``."""
        return "measured" if self.median_frac <= MEASURED_FRAC else "estimate"


MEASURED_FRAC = 0.10


def errors() -> tuple[TableError, ...]:
    """Return the residual error of every table, in the order they were distilled."""
    return tuple(
        TableError(
            kernel=row["kernel"],
            device=row["device"],
            format=row["format"],
            rows=row["rows"],
            held_out=row["held_out"],
            median_frac=row["median"],
            p90_frac=row["p90"],
        )
        for row in calibration().errors
    )


def error_table() -> str:
    """Return `errors` as a Markdown table."""
    lines = [
        "| kernel | device | format | rows | scored | median | p90 | status |",
        "|---|---|---|--:|--:|--:|--:|---|",
    ]
    lines += [
        f"| {e.kernel} | {e.device} | {e.format} | {e.rows} | {e.held_out} | "
        f"{100 * e.median_frac:.1f} % | {100 * e.p90_frac:.1f} % | {e.status} |"
        for e in errors()
    ]
    return "\n".join(lines)
