/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that arrive as signals while a run trains. TERM, INT, HUP and USR1: save, then end with
 * exit code 75; a second INT ends the process at once, as INT does elsewhere. USR2: save and go on.
 * A handler can only note; the run looks at the notes where all its ranks meet.
 */
#ifndef PPCLI_CLI_SIGNALS_H
#define PPCLI_CLI_SIGNALS_H

#include <signal.h>

/* From now on, for the whole process. What was ignored on purpose (nohup) stays ignored. */
void signals_catch(void);

const volatile sig_atomic_t *signals_stop(void); /* the number of the first one; 0: none yet */
const volatile sig_atomic_t *signals_save(void); /* how many USR2 there were */

#endif
