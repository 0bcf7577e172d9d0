/* SPDX-License-Identifier: Apache-2.0 */
/* Plain IDX: what is accepted is exactly its header and its data. */
#include "fuzz.h"
#include "ppcli/base/base.h"
#include "../../src/data/ops.h"

static struct fuzz_file file = {-1, ""};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pp_array head = {0}, idx = {0};
    PP_OWN_MEMORY uint8_t *bytes = NULL;
    const char *path = fuzz_file(&file, data, size);
    int rc_head = pp_idx_read(path, &head, NULL);
    int rc = pp_idx_read(path, &idx, (void **)&bytes);
    if (rc < 0) {
        fuzz_refused(rc);
        return 0;
    }
    bool gz = size > 1 && data[0] == 0x1F && data[1] == 0x8B; /* fuzz_gzip.c knows more of these */
    size_t begin = 4 + 4 * (size_t)idx.n_dims;
    pp_assert(rc_head == 0 && head.n == idx.n);
    pp_assert((uint64_t)idx.dims[0] * idx.dims[1] * idx.dims[2] * idx.dims[3] == idx.n);
    const bool unsigned_bytes = size > 2 && data[2] == 0x08;
    pp_assert(gz || !unsigned_bytes ||
              (size == begin + idx.n && memcmp(bytes, data + begin, idx.n) == 0));
    return 0;
}
