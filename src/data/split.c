/* SPDX-License-Identifier: Apache-2.0 */
/* Division of one file or folder into a training and a test set, sample by sample. */
#include "ppcli/base/base.h"
#include "ops.h"

bool pp_split_is_test(const struct pp_config *cfg, const void *key, size_t bytes)
{
    struct pp_sha256 s;
    uint8_t digest[PP_SHA256_BYTES];
    uint64_t word = 0;
    if (cfg->data.split <= 0)
        return false;
    pp_sha256_init(&s);
    pp_sha256_update(&s, key, bytes);
    pp_sha256_final(&s, digest);
    for (int i = 0; i < 8; i++)
        word = word << 8 | digest[i];
    return (double)(word >> 11) * 0x1p-53 < cfg->data.split;
}
