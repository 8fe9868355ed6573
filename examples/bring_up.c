// SPDX-FileCopyrightText: 2026 The HAAN developers
// SPDX-License-Identifier: Apache-2.0

// Brings haan_axi up: what examples/bring_up.py does, in C.
//
//     haan generate --preset ecp5 -o build/ecp5
//     python examples/bring_up.py build/ecp5/haan_layers.h
//     cc -std=c11 -I build/ecp5 -c examples/bring_up.c

#include <stddef.h>
#include <stdint.h>

#include "haan_layers.h"
#include "haan_registers.h"

#define ADDRESS(member) ((uint32_t)offsetof(haan_t, member))

// The system's own: addresses are bytes from the start of s_axil. A write returns 0, or something else if the answer was SLVERR.
uint32_t haan_read(uint32_t address);
int haan_write(uint32_t address, uint32_t word);

static const uint32_t configuration_hash[8] = {
    HAAN__CONFIGURATION_HASH_0__VALUE_reset, HAAN__CONFIGURATION_HASH_1__VALUE_reset,
    HAAN__CONFIGURATION_HASH_2__VALUE_reset, HAAN__CONFIGURATION_HASH_3__VALUE_reset,
    HAAN__CONFIGURATION_HASH_4__VALUE_reset, HAAN__CONFIGURATION_HASH_5__VALUE_reset,
    HAAN__CONFIGURATION_HASH_6__VALUE_reset, HAAN__CONFIGURATION_HASH_7__VALUE_reset,
};

// Not 0 where the hardware is of another build than haan_registers.h.
int haan_identify(void) {
    if (haan_read(ADDRESS(identity)) != HAAN__IDENTITY__VALUE_reset)
        return -1;
    for (uint32_t i = 0; i < 8; i++)
        if (haan_read(ADDRESS(configuration_hash_0) + 4 * i) != configuration_hash[i])
            return -1;
    return 0;
}

// Gamma, or beta, of a slot: FP32 words, or FP16 in their low halves, as the build's parameter_format says.
int haan_write_parameters(uint32_t slot, uint32_t beta, const uint32_t *words, uint32_t count) {
    int error = haan_write(ADDRESS(parameter_address), slot << HAAN__PARAMETER_ADDRESS__SLOT_bp |
                                                           beta << HAAN__PARAMETER_ADDRESS__BETA_bp);
    for (uint32_t i = 0; i < count && !error; i++)
        error = haan_write(ADDRESS(parameter_data), words[i]);
    return error;
}

// A layer of haan_layers.h. Not 0, and the old entry stays, if the hardware refuses it.
int haan_write_layer(uint32_t number) {
    for (uint32_t i = 0; i < sizeof haan_layers[0] / sizeof haan_layers[0][0]; i++)
        haan_write(ADDRESS(layer) + 4 * i, haan_layers[number][i]);
    return haan_write(ADDRESS(commit), number);
}

// Returns when every row that had begun to come in has left.
void haan_flush(void) {
    haan_write(ADDRESS(control), HAAN__CONTROL__FLUSH_bm);
    while (haan_read(ADDRESS(control)) & HAAN__CONTROL__FLUSH_bm)
        ;
}
