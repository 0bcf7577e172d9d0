/* SPDX-License-Identifier: Apache-2.0 */
/* Processes and threads of this machine, as the kernel describes them. */
#ifndef PPCLI_PROCESS_H
#define PPCLI_PROCESS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* The number of the signal that asked this process to stop; 0: none has. Written by the handler of
 * pp_signals_catch(). Whatever waits for a long time before a run begins has to read it. */
extern volatile sig_atomic_t pp_process_stop;
extern volatile sig_atomic_t pp_process_save; /* how many times it was asked to save and continue */

enum pp_process {
    PP_PROCESS_RUNNING,
    PP_PROCESS_STOPPED,   /* by a signal */
    PP_PROCESS_TRACED,    /* held by a debugger */
    PP_PROCESS_GONE,      /* ended, or its pid belongs to another one now */
    PP_PROCESS_ELSEWHERE, /* on another machine: unknown */
};

/* Of a process that wrote down pp_process_self(). Local; any process. */
enum pp_process pp_process_at(int64_t pid, uint64_t started, uint32_t machine);

/* Whether a process of this machine is at work: not when there is none of this pid, nor when it has
 * ended and its parent has not asked how. Local. */
bool pp_process_lives(int64_t pid);

/* What the kernel tells of a thread's time since its start. A wait for a core is in waited_ns only
 * when it is over; until then the thread is ready and ran_ns stands still. */
struct pp_thread_time {
    uint64_t ran_ns, waited_ns;
    bool ready; /* it runs or waits for a core */
};

/* Of a thread of this machine; zeroed when the kernel does not tell. Local. */
struct pp_thread_time pp_thread_time(int64_t pid, int64_t tid);

/* Who this is: when it began, in the kernel's ticks since boot, and a number that is equal where clocks
 * and pids mean the same. Local. */
void pp_process_self(uint64_t *started, uint32_t *machine);

#endif
