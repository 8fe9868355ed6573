# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""`python -m haan` is `haan`."""

import sys

from .cli import main

sys.exit(main())
