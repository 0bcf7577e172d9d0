/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4), so that `sha256sum` can re-check whatever ppcli prints. */
#ifndef PPCLI_SHA256_H
#define PPCLI_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define PP_SHA256_BYTES 32
#define PP_SHA256_HEX 65 /* with the terminating NUL */

struct pp_sha256 {
    uint32_t h[8];
    uint64_t bytes;
    uint8_t block[64];
};

void pp_sha256_init(struct pp_sha256 *s);
void pp_sha256_update(struct pp_sha256 *s, const void *data, size_t bytes);
void pp_sha256_final(struct pp_sha256 *s, uint8_t out[PP_SHA256_BYTES]);

/* Lower-case hex of a digest; returns out. */
char *pp_sha256_hex(const uint8_t digest[PP_SHA256_BYTES], char out[PP_SHA256_HEX]);

#endif
