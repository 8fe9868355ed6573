# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The hardware: Amaranth modules, and the functions that turn a configuration into Verilog."""
