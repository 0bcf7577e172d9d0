/* SPDX-License-Identifier: Apache-2.0 */
#include "ppcli/room.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ppcli/file.h"
#include "ppcli/rng.h"

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
    char line[256];
    bool found = false;
    FILE *f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof(line), f)) {
        const char *at = line + strlen(word);
        found = strncmp(line, word, strlen(word)) == 0 && at[strspn(at, " ")] >= '0' &&
                at[strspn(at, " ")] <= '9';
        if (found)
            *out = strtoull(at, NULL, 10);
        else if (word[0] == '\0')
            break; /* "max" */
    }
    if (f)
        fclose(f);
    return found;
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

/* A group and all above it; in a container the path may be one of the outside, which is not there.
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
    struct pp_error before =
        *pp_error_get(); /* a path that is too long is no failure of the caller */
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
