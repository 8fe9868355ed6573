# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""HAAN: a generator of normalization accelerators (LayerNorm and RMSNorm) for FPGAs."""

__version__ = "0.1.0"
