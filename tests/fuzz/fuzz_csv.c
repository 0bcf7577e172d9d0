/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of schedules: one that is accepted is proved, and prints as one that gives the same plan.
 */
#include "fuzz.h"
#include "../../src/sched/plan.h"

static char *print(const struct pp_plan *plan, size_t *out_bytes)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, out_bytes);
    pp_assert(f != NULL && pp_plan_print_csv(plan, f) == 0);
    fclose(f);
    return text;
}

static int read_table(const void *data, size_t size, struct pp_plan **out)
{
    FILE *f = size ? fmemopen((void *)(uintptr_t)data, size, "r") : fopen("/dev/null", "r");
    pp_assert(f != NULL);
    int rc = pp_plan_read_csv(f, "table", out);
    fclose(f);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pp_plan *a = NULL, *b = NULL;
    int rc = read_table(data, size, &a);
    if (rc < 0) {
        fuzz_refused(rc);
        return 0;
    }
    size_t bytes = 0, bytes_again = 0;
    char *text = print(a, &bytes);
    pp_assert(pp_plan_prove(a) == 0 && read_table(text, bytes, &b) == 0);
    char *again = print(b, &bytes_again);
    pp_assert(bytes == bytes_again && memcmp(text, again, bytes) == 0);
    free(text);
    free(again);
    pp_plan_destroy(&a);
    pp_plan_destroy(&b);
    return 0;
}
