/* SPDX-License-Identifier: Apache-2.0 */
/* state.json of a checkpoint: what is accepted prints as what is read as the same. */
#include "fuzz.h"
#include "../../src/ckpt/impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct pp_ckpt_state a, b;
    char *first = NULL, *second = NULL;
    size_t n_first = 0, n_second = 0;
    int rc = state_parse("state.json", (const char *)data, size, &a);
    if (rc < 0) {
        fuzz_refused(rc);
        return 0;
    }
    pp_assert(state_print(&a, &first, &n_first) == 0);
    pp_assert(state_parse("state.json", first, n_first, &b) == 0);
    pp_assert(state_print(&b, &second, &n_second) == 0);
    pp_assert(n_first == n_second && memcmp(first, second, n_first) == 0);
    free(first);
    free(second);
    return 0;
}
