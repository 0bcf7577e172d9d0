/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic time for durations, UTC for people. */
#include "ppcli/base/base.h"

#include <stdio.h>
#include <time.h>

static uint64_t read_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t pp_clock_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

void pp_clock_nap(uint64_t ns)
{
    const struct timespec t = {.tv_sec = (time_t)(ns / 1000000000),
                               .tv_nsec = (long)(ns % 1000000000)};
    nanosleep(&t, NULL);
}

uint64_t pp_clock_cpu_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

int64_t pp_clock_waited_ns(void)
{
    long long ran, waited = -1;
    FILE *f = fopen("/proc/thread-self/schedstat", "re");
    if (f) {
        waited = fscanf(f, "%lld %lld", &ran, &waited) == 2 ? waited : -1;
        fclose(f);
    }
    return waited;
}

char *pp_clock_utc(char *out, size_t bytes)
{
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(out, bytes, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return out;
}

char *pp_clock_duration(double seconds, char *out, size_t bytes)
{
    long s = seconds > 0 ? (long)(seconds + 0.5) : 0;
    if (s >= 3600)
        snprintf(out, bytes, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, bytes, "%02ld:%02ld", s / 60, s % 60);
    return out;
}
