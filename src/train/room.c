/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory is asked for before it is needed: a run that will not fit is refused with a sentence,
 * where it would otherwise be killed by the system in the middle of the night.
 */
#include "room.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ppcli/err.h"
#include "ppcli/file.h"
#include "ppcli/mem.h"
#include "probe.h"
#include "rank.h"

#define GIB (1024.0 * 1024 * 1024)

static void limit(struct room *room, uint64_t bytes, const char *what)
{
    if (bytes < room->bytes) {
        *room = (struct room){bytes, what};
    }
}

/* The number behind `word` at the beginning of a line of a small file ("": of the first line). */
static bool read_number(const char *path, const char *word, uint64_t *out)
{
    char line[256];
    bool found = false;
    FILE *f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof(line), f)) {
        const char *at = line + strlen(word);
        found = strncmp(line, word, strlen(word)) == 0 && at[strspn(at, " ")] >= '0' &&
                at[strspn(at, " ")] <= '9';
        if (found) {
            *out = strtoull(at, NULL, 10);
        } else if (word[0] == '\0') {
            break; /* "max" */
        }
    }
    if (f) {
        fclose(f);
    }
    return found;
}

/* One control group: pages of files that it holds can be given up. */
static void group_limit(struct room *room, const char *dir, const char *max, const char *current,
                        const char *cache)
{
    char path[PP_PATH_MAX];
    uint64_t most = 0, now = 0, files = 0;
    if (pp_path_format(path, "%s/%s", dir, max) < 0 || !read_number(path, "", &most) ||
        pp_path_format(path, "%s/%s", dir, current) < 0 || !read_number(path, "", &now)) {
        return;
    }
    if (pp_path_format(path, "%s/memory.stat", dir) == 0) {
        (void)read_number(path, cache, &files);
    }
    now -= files < now ? files : now;
    limit(room, most > now ? most - now : 0, "the memory limit of its control group");
}

/* A group and all above it; in a container the path may be one of the outside, which is not there.
 */
static void group_limits(struct room *room, const char *base, char *group, bool second)
{
    char dir[PP_PATH_MAX];
    for (;;) {
        if (pp_path_format(dir, "%s%s", base, group) == 0) {
            if (second) {
                group_limit(room, dir, "memory.max", "memory.current", "file ");
            } else {
                group_limit(room, dir, "memory.limit_in_bytes", "memory.usage_in_bytes",
                            "total_cache ");
            }
        }
        char *slash = strrchr(group, '/');
        if (!slash) {
            return;
        }
        *slash = '\0';
    }
}

/* Lines "0::/user.slice" and "4:cpu,memory:/docker/1234". */
static void group_room(struct room *room, const char *root)
{
    char path[PP_PATH_MAX], line[PP_PATH_MAX], base[PP_PATH_MAX];
    FILE *f = pp_path_format(path, "%s/proc/self/cgroup", root) == 0 ? fopen(path, "re") : NULL;
    while (f && fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';
        char *names = strchr(line, ':');
        char *group = names ? strchr(names + 1, ':') : NULL;
        if (!group) {
            continue;
        }
        *group++ = '\0';
        bool second = names[1] == '\0';
        if ((second || strstr(names, "memory")) &&
            pp_path_format(base, "%s/sys/fs/cgroup%s", root, second ? "" : "/memory") == 0) {
            group_limits(room, base, group, second);
        }
    }
    if (f) {
        fclose(f);
    }
}

void room_find(const char *root, struct room *out)
{
    struct room room = {UINT64_MAX, ""};
    char path[PP_PATH_MAX];
    uint64_t n = 0;
    if (pp_path_format(path, "%s/proc/meminfo", root) == 0 &&
        read_number(path, "MemAvailable:", &n) && n < UINT64_MAX / 1024) {
        limit(&room, n * 1024, "what the system has available");
    }
    group_room(&room, root);
    struct rlimit as;
    if (getrlimit(RLIMIT_AS, &as) == 0 && as.rlim_cur != RLIM_INFINITY &&
        pp_path_format(path, "%s/proc/self/statm", root) == 0 && read_number(path, "", &n)) {
        uint64_t used = n * (uint64_t)sysconf(_SC_PAGESIZE);
        limit(&room, as.rlim_cur > used ? as.rlim_cur - used : 0,
              "its limit of address space (ulimit -v)");
    }
    pp_error_clear();
    *out = room;
}

/* Bytes of the data that this process reads itself. */
static uint64_t data_bytes(const struct pp_run *run, const struct pp_train_options *options,
                           int rank)
{
    const struct pp_layout *l = run->layout;
    uint64_t row = 0;
    int at = rank % l->stages;
    row += rank < 0 || l->rank_of[0] == at ? (uint64_t)run->model->inputs : 0;
    row += rank < 0 || l->rank_of[l->n_virtual - 1] == at ? 1 : 0;
    uint64_t rows = (uint64_t)l->train_n + (uint64_t)l->test_n;
    return options->probe && options->probe->data[0] ? 0 : rows * row; /* 31 + 24 bits at most */
}

/* What all ranks on rank r's device will take of its memory. */
static int device_bytes(const struct pp_run *run, int r, size_t *out)
{
    const struct pp_layout *l = run->layout;
    size_t sum = 0;
    for (int i = 0; i < l->ranks; i++) {
        struct pp_exec_spec spec = {.layout = l, .rank = i, .caps.shared_slots = !run->mpi};
        struct pp_exec_bytes bytes;
        if (pp_seat_same_device(&run->seats[i], &run->seats[r])) {
            PP_TRY(pp_exec_predict(&spec, &bytes));
            PP_TRY(pp_size_add(sum, bytes.total, &sum));
        }
    }
    *out = sum;
    return 0;
}

/* Ranks with devices: each device by itself. */
static int devices_check(const struct pp_run *run, int rank)
{
    for (int r = 0; r < run->layout->ranks; r++) {
        const struct pp_seat *s = &run->seats[r];
        size_t needed = 0;
        bool first = rank < 0 || r == rank; /* one rank speaks for its device */
        for (int i = 0; rank < 0 && i < r && first; i++) {
            first = !pp_seat_same_device(&run->seats[i], s);
        }
        if (!first || s->device.number < 0) {
            continue;
        }
        PP_TRY(device_bytes(run, r, &needed));
        if (needed > s->free_bytes && s->free_bytes > 0) {
            return pp_fail(
                PP_ERESOURCE,
                "the %d rank%s on device %d (%s) need %.2f GiB of its memory, but %.2f of %.2f GiB "
                "are free: lower model.sizes or train.batch_size, use more micro-batches (see "
                "ppcli explain) or more devices; run.force_memory = on tries it all the same",
                s->sharing, s->sharing == 1 ? "" : "s", s->device.number, s->device.name,
                (double)needed / GIB, (double)s->free_bytes / GIB, (double)s->device.bytes / GIB);
        }
    }
    return 0;
}

int room_check(const struct pp_run *run, const struct pp_train_options *options, int rank)
{
    const struct pp_layout *l = run->layout;
    struct room room;
    size_t ranks = 0;
    if (!run->cfg->run.force_memory) {
        PP_TRY(devices_check(run, rank));
    }
    for (int r = 0; r < l->ranks; r++) {
        struct pp_exec_spec spec = {.layout = l, .rank = r, .caps.shared_slots = rank < 0};
        struct pp_exec_bytes bytes;
        if (rank >= 0 && r != rank) {
            continue;
        }
        if (run->seats[r].device.number < 0) {
            PP_TRY(pp_exec_predict(&spec, &bytes));
            PP_TRY(pp_size_add(ranks, bytes.total, &ranks));
        }
        PP_TRY(pp_size_add(ranks, rank_ring_bytes(l, options), &ranks));
    }
    uint64_t data = data_bytes(run, options, rank);
    room_find("", &room);
    if (run->cfg->run.force_memory || (ranks <= room.bytes && data <= room.bytes - ranks)) {
        return 0;
    }
    return pp_fail(
        PP_ERESOURCE,
        "this run needs %.2f GiB of memory (ranks %.2f, data %.2f), but %.2f GiB are left "
        "of %s: lower model.sizes or train.batch_size, or use more micro-batches (see "
        "ppcli explain); run.force_memory = on tries it all the same",
        ((double)ranks + (double)data) / GIB, (double)ranks / GIB, (double)data / GIB,
        (double)room.bytes / GIB, room.what);
}
