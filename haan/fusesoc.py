# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The core file, by which FuseSoC finds the generated Verilog and knows what to do with it."""

from . import __version__
from .config import Configuration

TOP = "haan_axi"
"""The top module of what `haan generate` writes."""
VERILOG = f"{TOP}.v"
CORE = "haan.core"
WAIVED = ("DECLFILENAME", "PROCASSINIT", "UNUSEDSIGNAL", "WIDTHEXPAND")
"""Warnings of Verilator that the way in which Yosys writes Verilog brings about. All others stand for a fault."""


def core_name(configuration: Configuration) -> str:
    """Vendor, library, name and version."""
    return f"haan:accelerator:{configuration.name}:{__version__}"


def core_file(configuration: Configuration) -> str:
    """Text of the core file (CAPI2): the target `default` for those who instantiate the accelerator, and `lint`."""
    options = ", ".join(["-Wall", *(f"-Wno-{name}" for name in WAIVED)])
    return f"""CAPI=2:
name: {core_name(configuration)}
description: LayerNorm and RMSNorm accelerator, {configuration.how.p_n} elements a cycle

filesets:
  rtl:
    files: [{VERILOG}]
    file_type: verilogSource

targets:
  default: &default
    filesets: [rtl]
    toplevel: {TOP}
  lint:
    <<: *default
    flow: lint
    flow_options:
      tool: verilator
      verilator_options: [{options}]
"""
