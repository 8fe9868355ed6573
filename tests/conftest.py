# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""What all tests share: which of them need Icarus Verilog, and the settings of hypothesis."""

import shutil

import hypothesis
import pytest

# The same examples in every run, and no deadline: the machine may be busy.
hypothesis.settings.register_profile("haan", derandomize=True, database=None, deadline=None)
hypothesis.settings.load_profile("haan")


def pytest_addoption(parser):
    parser.addoption(
        "--require-tools",
        action="store_true",
        help="run tests whose external tool is missing, so that they fail, in place of skipping them",
    )


def pytest_collection_modifyitems(config, items):
    """A test needs Icarus Verilog if it is marked so, or if it has the parameter "icarus"."""
    if config.getoption("--require-tools") or shutil.which("iverilog"):
        return
    missing = pytest.mark.skip(reason="Icarus Verilog is missing: apt-get install iverilog")
    for item in items:
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        marked = item.get_closest_marker("icarus") is not None
        if marked or any(value == "icarus" for value in parameters if isinstance(value, str)):
            item.add_marker(missing)
