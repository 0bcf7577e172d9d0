/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes and threads as the kernel describes them. A pid alone is not enough: it may belong to
 * another machine or container, or be reused. So a record of a process has its machine and its
 * start time too.
 */
#include "ppcli/base/cores.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

volatile sig_atomic_t pp_process_stop, pp_process_save;

/* Reads the first bytes of a small file as text; gives "" if it cannot be read. */
static void read_first_bytes(const char *path, char *out, size_t bytes)
{
    ssize_t n = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        n = read(fd, out, bytes - 1);
        close(fd);
    }
    out[n > 0 ? n : 0] = '\0';
}

/* Reads the state and the start time of a process or thread from its stat file; returns false if
 * there is no such file. Parsing begins after the last bracket, because the name in the file may
 * contain any characters. */
static bool read_stat(const char *path, char *state, uint64_t *started)
{
    char text[1024];
    read_first_bytes(path, text, sizeof(text));
    const char *p = strrchr(text, ')');
    if (!p || p[1] != ' ' || p[2] == '\0')
        return false;
    *state = p[2];
    *started = 0;
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    if (p)
        *started = strtoull(p, NULL, 10);
    return true;
}

static bool read_process(int64_t pid, char *state, uint64_t *started)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%" PRId64 "/stat", pid);
    return read_stat(path, state, started);
}

bool pp_process_lives(int64_t pid)
{
    char state;
    uint64_t started;
    return read_process(pid, &state, &started) && state != 'Z' && state != 'X';
}

struct pp_thread_time pp_thread_time(int64_t pid, int64_t tid)
{
    char path[96], text[128], state;
    uint64_t started;
    struct pp_thread_time t = {0};
    snprintf(path, sizeof(path), "/proc/%" PRId64 "/task/%" PRId64 "/schedstat", pid, tid);
    read_first_bytes(path, text, sizeof(text));
    if (sscanf(text, "%" SCNu64 " %" SCNu64, &t.ran_ns, &t.waited_ns) != 2)
        return (struct pp_thread_time){0};
    snprintf(path, sizeof(path), "/proc/%" PRId64 "/task/%" PRId64 "/stat", pid, tid);
    t.ready = read_stat(path, &state, &started) && state == 'R';
    return t;
}

void pp_process_self(uint64_t *started, uint32_t *machine)
{
    char state;
    if (!read_process(getpid(), &state, started))
        *started = 0;
    char id[128], space[64] = "";
    read_first_bytes("/proc/sys/kernel/random/boot_id", id, sizeof(id));
    ssize_t n = readlink("/proc/self/ns/pid", space, sizeof(space) - 1);
    (void)n;                  /* if it fails, containers of one machine are not distinguished */
    uint32_t h = 2166136261u; /* FNV-1a */
    for (int part = 0; part < 2; part++)
        for (const char *p = part == 0 ? id : space; *p; p++)
            h = (h ^ (uint8_t)*p) * 16777619u;
    *machine = h;
}

enum pp_process pp_process_at(int64_t pid, uint64_t started, uint32_t machine)
{
    uint64_t mine, began;
    uint32_t here;
    char state;
    pp_process_self(&mine, &here);
    if (machine != here)
        return PP_PROCESS_ELSEWHERE;
    if (pid <= 0 || !read_process(pid, &state, &began) || started != began)
        return PP_PROCESS_GONE;
    switch (state) {
    case 'T':
        return PP_PROCESS_STOPPED;
    case 't':
        return PP_PROCESS_TRACED;
    case 'Z':
    case 'X':
        return PP_PROCESS_GONE;
    default:
        return PP_PROCESS_RUNNING;
    }
}
