# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""cocotb bench for units without handshake: drives inputs from a table and records outputs, cycle by cycle."""

from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from haan.sim import jobs

RESET_CYCLES = 4


@cocotb.test()
async def vectors(dut: Any) -> None:
    """Inputs change at the falling edge. Outputs are read there too, before: so they are what the last rising edge left."""
    job: jobs.VectorsJob = jobs.load()
    inputs = [(getattr(dut, name), iter(values)) for name, values in job.inputs.items()]
    outputs = [(getattr(dut, name), list[int]()) for name in job.outputs]
    for port, _ in inputs:
        port.value = 0
    dut.rst.value = 1
    Clock(dut.clk, 2, unit="ns").start()
    edge = FallingEdge(dut.clk)
    for _ in range(RESET_CYCLES):
        await edge
    dut.rst.value = 0
    driven: list[int | None] = [None] * len(inputs)
    for _ in range(job.cycles):
        for port, record in outputs:
            value = port.value
            record.append(int(value) if value.is_resolvable else -1)
        for index, (port, values) in enumerate(inputs):
            value = next(values, driven[index])
            if value != driven[index]:
                port.value = driven[index] = value
        await edge
    jobs.store({name: record for name, (_, record) in zip(job.outputs, outputs, strict=True)})
