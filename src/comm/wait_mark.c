/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting on the host for a device: looking again and again, never a call that could block for
 * ever. */
#include "wait.h"

#include <time.h>

#include "ppcli/backend.h"
#include "ppcli/clock.h"
#include "ppcli/err.h"

#define NAP_NS 20000

int pp_wait_mark(const struct pp_waiter *how, struct pp_backend *be, void *mark,
                 uint64_t timeout_ns)
{
    struct pp_backoff b = {.crowded = how->crowded};
    uint64_t start = 0;
    for (;;) {
        bool reached = false;
        PP_TRY(pp_backend_mark_reached(be, mark, &reached));
        if (reached) {
            return 0;
        }
        if (how->stop && atomic_load_explicit(&how->stop->value, memory_order_relaxed) != 0) {
            return pp_fail(PP_ELOST, "stopped: another rank failed");
        }
        if (pp_backoff_pause(&b)) {
            continue;
        }
        uint64_t now = pp_clock_ns();
        start = start > 0 ? start : now;
        if (timeout_ns > 0 && now - start > timeout_ns) {
            return pp_fail(PP_ELOST, "%s has not finished its work for %.3g s", be->description,
                           (double)timeout_ns * 1e-9);
        }
        pp_show_wait(how->waited_ns);
        const struct timespec nap = {.tv_sec = 0, .tv_nsec = NAP_NS};
        nanosleep(&nap, NULL);
    }
}
