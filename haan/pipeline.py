# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Where the pipelines may have a register: named cuts, unit by unit, in the order in which a value passes them.

Latencies (`haan.latency`) count the cuts of a configuration; the hardware asks for each by name.
"""

BALANCED: frozenset[str] = frozenset()
PIPELINES: dict[str, frozenset[str]] = {"balanced": BALANCED, "short": BALANCED}
