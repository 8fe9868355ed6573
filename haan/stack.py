# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The tensors of a stack of layers, as `haan simulate --layers` reads them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .config import Configuration, ConfigurationError
from .formats import FP16
from .layer import LayerSettings
from .layers import LayerTable
from .tensors import Array, load, parameter_array, rows_array, scalar

KINDS = ("x", "gamma", "beta")
ALLOWED = (
    "x.K, gamma.K and beta.K for layers K; x, gamma and beta of all layers; tokens; one_plus_gamma"
)


@dataclass(frozen=True, eq=False)
class Stack:
    """Rows of every layer of a table, checked against it and against a configuration."""

    table: LayerTable
    x: Mapping[int, NDArray[np.float16]]
    """Layer -> (rows, N); the same rows for all."""
    gamma: Mapping[int, Array]
    """Slot -> (N,), float16 or float32: the build's parameter format."""
    beta: Mapping[int, Array]
    """As gamma."""
    one_plus_gamma: bool
    """gamma is an offset from one."""
    tokens: NDArray[np.int64]
    """(rows,), the token slot of each row."""

    @classmethod
    def read(cls, path: Path, table: LayerTable, configuration: Configuration) -> "Stack":
        """Reads `x.K` (rows, N), `gamma.K` and `beta.K` (N,) for each layer K; or `x` (layers, rows, N), `gamma` and `beta` (layers, N);
        optional `tokens` (rows,) and the scalar `one_plus_gamma`.

        Numbers are as for `Tensors.read`. Raises ConfigurationError with the file's name for anything else.
        """
        table.check(configuration)
        for layer, settings in table.settings.items():
            for name in ("input_format", "output_format"):
                if getattr(settings, name) != FP16.name:
                    raise ConfigurationError(
                        f"{table.origin}: {table.label(layer)}: {name} = {getattr(settings, name)!r}; stacks are simulated in 'fp16' alone"
                    )
        arrays = load(path)
        try:
            return cls._checked(arrays, table, configuration)
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}") from None

    @classmethod
    def _checked(
        cls, arrays: dict[str, Array], table: LayerTable, configuration: Configuration
    ) -> "Stack":
        tokens = arrays.pop("tokens", None)
        one_plus_gamma = bool(
            scalar("one_plus_gamma", arrays.pop("one_plus_gamma", np.array(False)))
        )
        if one_plus_gamma and not configuration.what.one_plus_gamma:
            raise ConfigurationError(
                "one_plus_gamma = true, but this build has one_plus_gamma = false"
            )
        found = _by_layer(arrays, table)
        x = _rows(found["x"], table)
        count = len(next(iter(x.values())))
        width = configuration.what.parameter_format
        gamma, beta = (_by_slot(kind, found[kind], table, width) for kind in ("gamma", "beta"))
        if one_plus_gamma and not gamma:
            raise ConfigurationError("one_plus_gamma = true needs a gamma, but no layer has one")
        slots = configuration.what.token_slots
        return cls(table, x, gamma, beta, one_plus_gamma, _tokens(tokens, count, slots))


def uses(settings: LayerSettings, kind: str) -> bool:
    """Whether a layer asks for "gamma" or "beta"."""
    return kind in settings.affine.split("+")


def _by_layer(arrays: Mapping[str, Array], table: LayerTable) -> dict[str, dict[int, Array]]:
    """Kind -> layer -> its array."""
    found: dict[str, dict[int, Array]] = {kind: {} for kind in KINDS}
    for name, array in arrays.items():
        match = re.fullmatch(r"(x|gamma|beta)\.(0|[1-9][0-9]{0,2})", name)
        if match:
            kind, layer = match[1], int(match[2])
            if layer not in table.settings:
                raise ConfigurationError(f"array {name!r}: {table.origin} has no layer {layer}")
            if kind in arrays:
                raise ConfigurationError(f"{kind} and {name} are both there; allowed is either")
            if kind != "x" and not uses(table.settings[layer], kind):
                raise ConfigurationError(
                    f"array {name!r}: {table.label(layer)} has affine = {table.settings[layer].affine!r}"
                )
            found[kind][layer] = array
        elif name in KINDS:
            found[name] = _split(name, array, table)
        else:
            raise ConfigurationError(f"array {name!r} is not known; there are: {ALLOWED}")
    return found


def _split(kind: str, array: Array, table: LayerTable) -> dict[int, Array]:
    """An array of all layers, in their order, as one for each layer that uses it."""
    axes = "(layers, rows, N)" if kind == "x" else "(layers, N)"
    count = len(table.settings)
    if array.ndim != axes.count(",") + 1 or len(array) != count:
        raise ConfigurationError(
            f"{kind} has shape {array.shape}, but must be {axes} with the {count} layers of {table.origin}"
        )
    layers = zip(table.settings.items(), array, strict=True)
    return {
        layer: each for (layer, settings), each in layers if kind == "x" or uses(settings, kind)
    }


def _rows(given: Mapping[int, Array], table: LayerTable) -> dict[int, NDArray[np.float16]]:
    found: dict[int, NDArray[np.float16]] = {}
    for layer, settings in table.settings.items():
        if layer not in given:
            raise ConfigurationError(
                f"array x.{layer} (rows, N) is missing, and {table.origin} has {table.label(layer)}"
            )
        x = found[layer] = rows_array(f"x.{layer}", given[layer])
        first = next(iter(found))
        if x.shape[1] != settings.n:
            raise ConfigurationError(
                f"x.{layer} has rows of {x.shape[1]} elements, but {table.label(layer)} has n = {settings.n}"
            )
        if len(x) != len(found[first]):
            raise ConfigurationError(
                f"x.{layer} has {len(x)} rows, but x.{first} has {len(found[first])}; allowed is the same number for all layers"
            )
    return found


def _by_slot(
    kind: str, given: Mapping[int, Array], table: LayerTable, parameter_format: str
) -> dict[int, Array]:
    """Slot -> its vector."""
    found: dict[int, Array] = {}
    giver: dict[int, int] = {}
    for layer, array in given.items():
        settings = table.settings[layer]
        vector = parameter_array(f"{kind}.{layer}", array, settings.n, parameter_format)
        other = giver.setdefault(settings.slot, layer)
        first = found.setdefault(settings.slot, vector)
        if first.tobytes() != vector.tobytes():
            raise ConfigurationError(
                f"{kind}.{layer} is not {kind}.{other}, but both layers have slot = {settings.slot}; "
                "allowed are equal vectors, or different slots"
            )
    for layer, settings in table.settings.items():
        if not uses(settings, kind):
            continue
        if settings.slot not in found:
            raise ConfigurationError(
                f"array {kind}.{layer} (N,) is missing, and {table.label(layer)} has affine = {settings.affine!r}"
            )
        size = len(found[settings.slot])
        if size != settings.n:
            raise ConfigurationError(
                f"{kind}.{giver[settings.slot]} has {size} elements, but {table.label(layer)} of the same slot has n = {settings.n}"
            )
    return found


def _tokens(given: Array | None, rows: int, slots: int) -> NDArray[np.int64]:
    if given is None:
        if rows > slots:
            raise ConfigurationError(
                f"there are {rows} rows, but this build has token_slots = {slots}; allowed is a slot for each row"
            )
        return np.arange(rows)
    if given.shape != (rows,) or given.dtype.kind not in "iu":
        raise ConfigurationError(
            f"tokens is {given.dtype} of shape {given.shape}, but must be integers of shape ({rows},): a slot for each row"
        )
    for place, token in enumerate(given.tolist()):
        if not 0 <= token < slots:
            raise ConfigurationError(
                f"tokens[{place}] = {token}, but this build has token slots 0 to {slots - 1}"
            )
        if token in given[:place]:
            raise ConfigurationError(
                f"tokens[{place}] = {token} is there already; allowed is a slot of its own for each row"
            )
    return given.astype(np.int64)
