/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the system tell about the processor, its caches and the memory. */
#include "ppcli/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "ppcli/cpus.h"
#include "ppcli/file.h"
#include "ppcli/rng.h"
#include "ppcli/text.h"

#define CACHES_MAX 8

int pp_machine_cores(bool whole_machine, int *out, int max)
{
    PP_OWN(pp_cpus_fini) struct pp_cpus before = {NULL, 0};
    PP_OWN(pp_cpus_fini) struct pp_cpus all = {NULL, 0};
    int n = 0;
    if (pp_cpus_get(0, &before) && whole_machine) {
        pp_cpus_use_all();
        (void)pp_cpus_get(0, &all);
        pp_cpus_use(&before);
    }
    const struct pp_cpus *cpus = all.set ? &all : &before;
    for (size_t c = 0; c < 8 * cpus->bytes && n < max; c++)
        if (pp_cpus_has(cpus, c))
            out[n++] = (int)c;
    if (n == 0)
        out[n++] = 0;
    return n;
}

int pp_machine_whole_cores(void)
{
    bool seen[PP_MACHINE_CORES_MAX] = {false}; /* as the first hardware thread of a core */
    int cpus[PP_MACHINE_CORES_MAX], n = pp_machine_cores(false, cpus, PP_MACHINE_CORES_MAX);
    int count = 0;
    for (int i = 0; i < n; i++) {
        char path[96], text[32];
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
                 cpus[i]);
        pp_file_value(path, "", text, sizeof(text));
        bool *one = &seen[(unsigned)(text[0] ? atoi(text) : cpus[i]) % PP_MACHINE_CORES_MAX];
        count += !*one;
        *one = true;
    }
    return count;
}

/* "0, 1": where threads are bound to; "0-15" for a whole range. */
static void describe_cores(const int *cores, int n, char *out, size_t bytes)
{
    bool range = n > 2 && cores[n - 1] - cores[0] == n - 1;
    out[0] = '\0';
    if (range)
        snprintf(out, bytes, "%d-%d", cores[0], cores[n - 1]);
    for (int i = 0; i < n && !range && strlen(out) + 16 < bytes; i++)
        pp_text_add(out, bytes, "%s%d", i > 0 ? ", " : "", cores[i]);
}

/* "L1d 32K, L2 1024K, L3 32768K", as the kernel writes sizes. */
static void describe_caches(char *out, size_t bytes)
{
    out[0] = '\0';
    for (int i = 0; i < CACHES_MAX; i++) {
        static const char *const facts[] = {"level", "type", "size"};
        char path[128], of[3][32];
        for (int k = 0; k < 3; k++) {
            snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/%s", i,
                     facts[k]);
            pp_file_value(path, "", of[k], sizeof(of[k]));
        }
        if (!of[0][0] || !of[2][0] || strcmp(of[1], "Instruction") == 0)
            continue;
        pp_text_add(out, bytes, "%sL%s%s %s", out[0] ? ", " : "", of[0],
                    strcmp(of[1], "Data") == 0 ? "d" : "", of[2]);
    }
}

/* ---- memory */

static const char *const limit_names[PP_ROOM_KINDS] = {
    "what the system has available",
    "the memory limit of its control group",
    "its limit of address space (ulimit -v)",
};

static void limit(struct pp_room *room, enum pp_room_kind kind, uint64_t bytes)
{
    if (bytes < room->bytes[kind])
        room->bytes[kind] = bytes;
}

/* The number behind `word` at the beginning of a line of a small file ("": of the first line). */
static bool read_number(const char *path, const char *word, uint64_t *out)
{
    char text[64];
    pp_file_value(path, word, text, sizeof(text));
    if (text[0] < '0' || text[0] > '9') /* "max" */
        return false;
    *out = strtoull(text, NULL, 10);
    return true;
}

/* One control group: pages of files that it holds can be given up. */
static void group_limit(struct pp_room *room, const char *dir, const char *max, const char *current,
                        const char *cache)
{
    char path[PP_PATH_MAX];
    uint64_t most = 0, now = 0, files = 0;
    if (pp_path_format(path, "%s/%s", dir, max) < 0 || !read_number(path, "", &most) ||
        pp_path_format(path, "%s/%s", dir, current) < 0 || !read_number(path, "", &now))
        return;
    if (pp_path_format(path, "%s/memory.stat", dir) == 0)
        (void)read_number(path, cache, &files);
    now -= files < now ? files : now;
    limit(room, PP_ROOM_GROUP, most > now ? most - now : 0);
}

/* A group and all above it; in a container the path may be the host's and not exist.
 */
static void group_limits(struct pp_room *room, const char *base, char *group, bool second)
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
        if (!slash)
            return;
        *slash = '\0';
    }
}

/* Lines "0::/user.slice" and "4:cpu,memory:/docker/1234". */
static void group_room(struct pp_room *room, const char *root)
{
    char path[PP_PATH_MAX], line[PP_PATH_MAX], base[PP_PATH_MAX];
    FILE *f = pp_path_format(path, "%s/proc/self/cgroup", root) == 0 ? fopen(path, "re") : NULL;
    while (f && fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';
        room->group = pp_rng_stream(line, room->group); /* a hash */
        char *names = strchr(line, ':');
        char *group = names ? strchr(names + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        bool second = names[1] == '\0';
        if ((second || strstr(names, "memory")) &&
            pp_path_format(base, "%s/sys/fs/cgroup%s", root, second ? "" : "/memory") == 0)
            group_limits(room, base, group, second);
    }
    if (f)
        fclose(f);
}

enum pp_room_kind pp_room_nearest(const struct pp_room *room, const char **what)
{
    enum pp_room_kind nearest = PP_ROOM_SYSTEM;
    for (int k = 0; k < PP_ROOM_KINDS; k++)
        nearest = room->bytes[k] < room->bytes[nearest] ? (enum pp_room_kind)k : nearest;
    *what = limit_names[nearest];
    return nearest;
}

void pp_room_find(const char *root, struct pp_room *out)
{
    struct pp_room room = {.bytes = {UINT64_MAX, UINT64_MAX, UINT64_MAX}};
    struct pp_error before = *pp_error_get(); /* a path that is too long is no failure here */
    char path[PP_PATH_MAX];
    uint64_t n = 0;
    if (pp_path_format(path, "%s/proc/meminfo", root) == 0 &&
        read_number(path, "MemAvailable:", &n) && n < UINT64_MAX / 1024)
        limit(&room, PP_ROOM_SYSTEM, n * 1024);
    group_room(&room, root);
    struct rlimit as;
    if (getrlimit(RLIMIT_AS, &as) == 0 && as.rlim_cur != RLIM_INFINITY &&
        pp_path_format(path, "%s/proc/self/statm", root) == 0 && read_number(path, "", &n)) {
        uint64_t used = n * (uint64_t)sysconf(_SC_PAGESIZE);
        limit(&room, PP_ROOM_ADDRESS, as.rlim_cur > used ? as.rlim_cur - used : 0);
    }
    (void)pp_error_adopt(&before);
    *out = room;
}

const char *pp_room_name(enum pp_room_kind kind)
{
    return limit_names[kind];
}

/* ---- all of it */

void pp_machine_describe(bool whole_machine, struct pp_machine *out)
{
    int cores[PP_MACHINE_CORES_MAX];
    char text[64];
    struct utsname name;
    struct pp_room room;
    memset(out, 0, sizeof(*out));
    (void)gethostname(out->host, sizeof(out->host) - 1);
    if (uname(&name) == 0) {
        snprintf(out->system, sizeof(out->system), "%.40s %.70s %.40s", name.sysname, name.release,
                 name.machine);
    }
    pp_file_value("/proc/cpuinfo", "model name", out->cpu, sizeof(out->cpu));
    pp_file_value("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "", out->governor,
                  sizeof(out->governor));
    out->cores = pp_machine_cores(whole_machine, cores, PP_MACHINE_CORES_MAX);
    describe_cores(cores, out->cores, out->binding, sizeof(out->binding));
    long there = sysconf(_SC_NPROCESSORS_ONLN);
    out->cores_there = there > out->cores ? (int)there : out->cores;
    describe_caches(out->caches, sizeof(out->caches));
    pp_file_value("/proc/meminfo", "MemTotal", text, sizeof(text));
    out->memory_bytes = strtoull(text, NULL, 10) * 1024;
    pp_room_find("", &room);
    out->room_bytes = room.bytes[pp_room_nearest(&room, &out->room_what)];
}
