/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failpoints for tests: what goes wrong, where, on which rank and at which time. Linked into test
 * programs only (with -Wl,--wrap), so that the program itself holds nothing of it.
 *
 *     PPCLI_FAIL=SITE@RANK:COUNT=ACTION[,...]
 *
 *   SITE    a kind of action as pp_event_name() says it: start F I W recv slot send release reduce
 *           vote clip update meet save report; or one of the phases outside the actions: settle
 * data init resume test commit finish finalize, see phases.c RANK    transport rank, or * COUNT the
 * how many-th such action of the rank, from 1; or *: every one ACTION  hang        stay in it for
 * ever sleep:MS    take so much longer kill        kill -9 of the process stop        SIGSTOP of
 * the process hold        stay in it until this process notes a signal of its user nan, inf    the
 * numbers of F, I or W become that, see numbers.c flip:BIT    bit BIT of one of them, 31 is its
 * sign
 *
 * It happens when the action has been recorded as begun and before anything of it is done. A word
 * that is none of these ends the program with 64. The file PPCLI_FAIL_NOTE, when that is set, gets
 * a line with the process id whenever something goes wrong.
 */
#ifndef PPCLI_TESTS_FAULT_H
#define PPCLI_TESTS_FAULT_H

#include "ppcli/sim/trace.h"

/* Sites behind those that are actions. */
enum fault_phase {
    FAULT_SETTLE = PP_EVENT_KINDS,
    FAULT_DATA,
    FAULT_INIT,
    FAULT_RESUME,
    FAULT_TEST,
    FAULT_COMMIT,
    FAULT_FINISH,
    FAULT_FINALIZE,
    FAULT_SITES
};

/* Whatever is to go wrong at this site of the calling thread's rank does. */
void fault_at(int site);

/* A row of numbers of the action that the calling thread is in, in memory of the host: they become
 * wrong if they are to. */
void fault_numbers(float *row, int n);

/* Every action begins here. */
void __real_pp_ring_begin(struct pp_ring *ring, const struct pp_event *e);
void __wrap_pp_ring_begin(struct pp_ring *ring, const struct pp_event *e);

#endif
