/* SPDX-License-Identifier: Apache-2.0 */
/* The record of actions in a run folder, as `ppcli diagnose` looks at it after a crash. */
#include "fuzz.h"
#include "../../src/watch/diagnose.h"
#include "ppcli/sim/trace.h"

static struct fuzz_file file = {-1, ""};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    PP_OWN(pp_ring_destroy) struct pp_ring *ring = NULL;
    int rc = pp_ring_open(fuzz_file(&file, data, size), &ring);
    if (rc < 0) {
        fuzz_refused(rc);
        return 0;
    }
    PP_OWN(pp_diagnosis_fini) struct pp_diagnosis d = {0};
    struct pp_event events[64];
    uint64_t next = 0, lost = 0;
    size_t n = pp_ring_copy(ring, 0, events, 64, &next, &lost);
    pp_assert(n <= 64 && n < ring->head->capacity);

    pp_assert(pp_diagnosis_init(&d, NULL, 0, 1) == 0);
    pp_rank_look(ring, &d.views[0]);
    pp_diagnosis_judge(&d);
    FILE *f = fopen("/dev/null", "w");
    pp_assert(f != NULL);
    pp_diagnosis_print(&d, "", f);
    pp_diagnosis_print_ranks(&d, f);
    pp_diagnosis_print_json(&d, "", "", f);
    fclose(f);
    return 0;
}
