/* SPDX-License-Identifier: Apache-2.0 */
/* A result of `ppcli bench` beside itself. */
#include "fuzz.h"
#include "ppcli/bench/bench.h"

static struct fuzz_file file = {-1, ""};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file(&file, data, size);
    FILE *f = fopen("/dev/null", "w");
    pp_assert(f != NULL);
    int rc = pp_bench_compare(path, path, f);
    fclose(f);
    if (rc < 0 && rc != PP_ECHECK)
        fuzz_refused(rc);
    return 0;
}
