"""A server as the budget, the energy account and the bill see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from firstlight import catalog, optics
from firstlight.errors import ScenarioError

if TYPE_CHECKING:
    from firstlight.catalog import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server; powers at the server's plug [W].

    Attributes:
        id: Catalog id.
        kind: What computes in it.
        device: Catalog id of its GPU; the engine's id for an optical server.
        accelerators: GPUs, or optical engines.
        floor_w: Accelerators' idle floor, all together.
        host_idle_w: CPUs, memory, fans, NICs and supply loss, idle.
        host_peak_w: The same at full load.
        peak_w: Whole server at full load, measured where known.
        supply_factor: Power at the plug over power at the accelerators, where it is apart from
            `host_peak_w`; 1 for GPU servers, whose measured host power contains it.
        price_usd: Purchase price [usd].
        nic_bytes_per_s: Network bandwidth per direction, whole server [byte/s].
        mem_bytes: Memory that holds KV beside the accelerators' own (optical servers) [byte].
        engine: The optical engine, None for GPU servers.
        facts: The catalog facts these come from, by field.
    """

    id: str
    kind: Literal["gpu", "optical"]
    device: str
    accelerators: int
    floor_w: float
    host_idle_w: float
    host_peak_w: float
    peak_w: float
    supply_factor: float
    price_usd: float
    nic_bytes_per_s: float
    mem_bytes: float
    engine: optics.EngineSpec | None
    facts: dict[str, Fact]

    @property
    def idle_w(self) -> float:
        """Power at the plug when nothing runs [W]."""
        return self.floor_w + self.host_idle_w


def load(server_id: str, *, overrides: dict[str, float], usd_per_peak_w: float) -> Server:
    """Return a server of the catalog.

    Args:
        server_id: Catalog id.
        overrides: Engine fields that the scenario assumes otherwise; ignored by GPU servers.
        usd_per_peak_w: Price of an optical server per provisioned watt [usd/W].

    Raises:
        CatalogError: The server is unknown or incomplete.
        ScenarioError: An override is out of range.
    """
    record = catalog.get(server_id, kind="server")
    if "engine" in record:
        return _optical(record, overrides=overrides, usd_per_peak_w=usd_per_peak_w)
    return _gpu(record)


def is_optical(server_id: str) -> bool:
    """Return whether a server of the catalog computes with light.

    Raises:
        CatalogError: The server is unknown.
    """
    return "engine" in catalog.get(server_id, kind="server")


def weight_bits(server_id: str, overrides: dict[str, float]) -> int:
    """Return the bits at which an optical server's memory keeps weights."""
    engine = catalog.get(server_id, kind="server").text("engine")
    bits = optics.EngineSpec.preset(engine, **overrides).weight_stream_bits
    return int(bits)


def _gpu(record: catalog.Record) -> Server:
    device = record.text("device")
    count = record.count("device_count")
    floor_w = catalog.get(device, kind="device").value("idle_w") * count
    idle_w, peak_w = record.value("idle_w"), record.value("peak_w")
    return Server(
        id=record.id,
        kind="gpu",
        device=device,
        accelerators=count,
        floor_w=min(floor_w, idle_w),
        host_idle_w=max(idle_w - floor_w, 0.0),
        host_peak_w=record.value("host_peak_w"),
        peak_w=peak_w,
        supply_factor=1.0,
        price_usd=record.value("price_usd"),
        nic_bytes_per_s=record.value("nic_bytes_per_s"),
        mem_bytes=0.0,
        engine=None,
        facts=dict(record.facts),
    )


def _optical(
    record: catalog.Record, *, overrides: dict[str, float], usd_per_peak_w: float
) -> Server:
    if not usd_per_peak_w > 0:
        raise ScenarioError(f"optical price of {usd_per_peak_w!r} $/W; allowed: above 0")
    preset = record.text("engine")
    spec = optics.EngineSpec.preset(preset, **overrides)
    power = optics.server_power(spec)
    engine = catalog.get(preset, kind="engine")
    host_w = spec.host_power_w
    # The supply's loss on what the engines draw above their floor is charged with that draw.
    loss_idle = (power.psu_factor - 1.0) * (host_w + power.engine_idle_w)
    return Server(
        id=record.id,
        kind="optical",
        device=preset,
        accelerators=spec.engines,
        floor_w=power.engine_idle_w,
        host_idle_w=host_w + loss_idle,
        host_peak_w=host_w + loss_idle,
        peak_w=power.peak_w,
        supply_factor=power.psu_factor,
        price_usd=usd_per_peak_w * power.peak_w,
        nic_bytes_per_s=record.value("nic_bytes_per_s"),
        mem_bytes=record.value("mem_bytes"),
        engine=spec,
        facts={**engine.facts, **record.facts},
    )
