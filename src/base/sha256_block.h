/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes whole blocks in two ways. Local to base/. */
#ifndef PPCLI_BASE_SHA256_BLOCK_H
#define PPCLI_BASE_SHA256_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern const uint32_t sha256_k[64];

/* Add n blocks of 64 bytes to the hash state h. The plain version is the reference. */
void sha256_blocks_plain(uint32_t h[8], const uint8_t *p, size_t n);

/* Adds blocks as the plain version does, with the processor's SHA instructions; returns false and
 * does nothing if it has none. */
bool sha256_blocks_fast(uint32_t h[8], const uint8_t *p, size_t n);

#endif
