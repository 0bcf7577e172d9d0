/* SPDX-License-Identifier: Apache-2.0 */
/* How a run without summary.json ended, if it did: what the rings of its ranks tell. */
#include "ppcli/diagnose.h"
#include "ppcli/err.h"
#include "report.h"

enum report_end report_read_end(const struct pp_report *r)
{
    struct pp_diagnosis d;
    if (pp_diagnosis_open(&d, NULL, r->dir) < 0) {
        pp_error_clear();
        return REPORT_END_UNKNOWN;
    }
    int n[PP_RANK_FAILED + 1] = {0};
    for (int i = 0; i < d.ranks; i++) {
        n[d.views[i].state]++;
    }
    pp_diagnosis_fini(&d);
    if (n[PP_RANK_RUNNING] + n[PP_RANK_STOPPED] + n[PP_RANK_TRACED] > 0) {
        return REPORT_RUNNING;
    }
    if (n[PP_RANK_GONE] > 0) {
        return REPORT_KILLED;
    }
    return n[PP_RANK_FAILED] > 0     ? REPORT_FAILED
           : n[PP_RANK_FINISHED] > 0 ? REPORT_STOPPED
                                     : REPORT_END_UNKNOWN;
}
