# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Layer records and parameters as register writes."""

from collections.abc import Mapping

from ..config import Configuration
from ..registers import register_map
from .jobs import BusAccess
from .rows import ParameterVector, parameter_elements


def layer_writes(
    configuration: Configuration, layer: int, record: Mapping[str, int]
) -> list[BusAccess]:
    """Makes a record (`haan.layer.LayerSettings.record`) that of a layer."""
    registers = register_map(configuration)
    shadow = [
        BusAccess(registers[name].address, word)
        for name, word in registers.layer_words(record).items()
    ]
    return [*shadow, BusAccess(registers["commit"].address, layer)]


def parameter_writes(configuration: Configuration, vector: ParameterVector) -> list[BusAccess]:
    """Writes a vector to its slot."""
    registers = register_map(configuration)
    elements = parameter_elements(configuration, [vector])
    start = registers["parameter_address"].pack(
        slot=vector.slot, beta=int(vector.kind == "beta"), one_plus=int(vector.one_plus)
    )
    data = registers["parameter_data"].address
    return [
        BusAccess(registers["parameter_address"].address, start),
        *(BusAccess(data, value) for _, _, _, value, _ in elements),
    ]
