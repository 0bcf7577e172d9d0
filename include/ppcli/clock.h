/* SPDX-License-Identifier: Apache-2.0 */
/* Time: durations always from the monotonic clock, dates only for people and logs. */
#ifndef PPCLI_CLOCK_H
#define PPCLI_CLOCK_H

#include <stddef.h>
#include <stdint.h>

uint64_t pp_clock_ns(void);     /* CLOCK_MONOTONIC, nanoseconds */
uint64_t pp_clock_cpu_ns(void); /* what this thread has computed, without the time of others */

void pp_clock_nap(uint64_t ns); /* this thread sleeps so long, or until a signal */

/* How long this thread was ready to run but had no core, so far; -1: the system does not tell. */
int64_t pp_clock_waited_ns(void);

/* ISO 8601 UTC, "2026-01-31T12:00:00Z"; returns out. bytes >= 21. */
char *pp_clock_utc(char *out, size_t bytes);

/* "00:08", "1:02:03"; returns out. bytes >= 16. */
char *pp_clock_duration(double seconds, char *out, size_t bytes);

#endif
