"""Estimates the time of an update on several devices, and the hours and price of a run."""

from __future__ import annotations

import dataclasses

from keras_attention.utils.checks import check_integer, check_number

BYTES = 4  # of a gradient, float32


@dataclasses.dataclass(frozen=True)
class ScalingEstimate:
    """The result of `scaling_estimate`.

    Attributes:
        devices: Number of devices n.
        compute_seconds: Computation of an update on each device.
        communication_seconds: Summing the gradients of an update over the devices.
        efficiency: Speed divided by n times the speed of one device, from 0 to 1.
        hours: Hours of all updates, or None if their number is not known.
        cost: Price of all devices for these hours, or None without a price.
    """

    devices: int
    compute_seconds: float
    communication_seconds: float
    efficiency: float
    hours: float | None
    cost: float | None

    @property
    def update_seconds(self) -> float:
        """Seconds of an update: computation, then summing; they do not overlap."""
        return self.compute_seconds + self.communication_seconds

    def __str__(self) -> str:
        text = (
            f"{self.devices} device(s): {self.update_seconds:.3g} s an update, of which "
            f"{self.communication_seconds:.3g} s communication; {self.efficiency:.0%} efficient"
        )
        text += "" if self.hours is None else f"; {self.hours:,.1f} hours"
        return text + ("" if self.cost is None else f", {self.cost:,.2f} in all")


def scaling_estimate(
    flops: float,
    parameters: int,
    devices: int,
    device_flops: float,
    bandwidth: float,
    steps: int | None = None,
    price: float | None = None,
) -> ScalingEstimate:
    """Estimate an update on n devices that each compute a share of its batch.

    Time is `flops / (n * device_flops) + 2 (n - 1) / n * 4 * parameters / bandwidth`: a ring sums the
    float32 gradients, and each device sends and receives 2 (n - 1) / n of them (Patarasuk and Yuan 2009,
    "Bandwidth optimal all-reduce algorithms for clusters of workstations").

    Args:
        flops: Counted FLOPs of an update.
        parameters: Weights of the model.
        devices: Number of devices n.
        device_flops: FLOP/s that a device reaches in training: measured, or its peak times a share
            such as 0.4.
        bandwidth: Bytes per second between two devices, on the slowest link.
        steps: Updates of the run.
        price: Price of a device per hour, in any currency.

    Raises:
        ValueError: If a number is not positive.

    Example:

    The base model on 8 machines with 25 Gbit/s between them:

    >>> estimate = scaling_estimate(9.45e12, 63_000_000, 8, 4e14, 25e9 / 8, steps=100_000, price=3.0)
    >>> print(estimate)
    8 device(s): 0.144 s an update, of which 0.141 s communication; 2% efficient; 4.0 hours, 96.05 in all
    """
    check_integer("parameters", parameters, 1)
    check_integer("devices", devices, 1)
    for name, value in (("flops", flops), ("device_flops", device_flops), ("bandwidth", bandwidth)):
        check_number(name, value, above=0)
    if steps is not None:
        check_integer("steps", steps, 1)
    if price is not None:
        check_number("price", price, least=0)
    alone = flops / device_flops
    compute = alone / devices
    communication = 2 * (devices - 1) / devices * BYTES * parameters / bandwidth
    seconds = compute + communication
    hours = None if steps is None else steps * seconds / 3600
    cost = None if hours is None or price is None else hours * devices * price
    return ScalingEstimate(
        devices, compute, communication, alone / (devices * seconds), hours, cost
    )
