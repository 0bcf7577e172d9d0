/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what the files of the system tell about the processor, its caches and the memory. */
#include "cores.h"

#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"

#define CACHES_MAX 8

bool pp_mask_has(const struct pp_cpu_mask *mask, int cpu)
{
    return mask->bits[cpu / 8] >> cpu % 8 & 1;
}

void pp_mask_add(struct pp_cpu_mask *mask, int cpu)
{
    mask->bits[cpu / 8] |= (unsigned char)(1 << cpu % 8);
}

int pp_mask_count(const struct pp_cpu_mask *mask)
{
    int n = 0;
    for (size_t i = 0; i < sizeof(mask->bits); i++)
        n += __builtin_popcount(mask->bits[i]);
    return n;
}

bool pp_mask_get(struct pp_cpu_mask *out)
{
    memset(out, 0, sizeof(*out));
    return sched_getaffinity(0, sizeof(out->bits), (void *)out->bits) == 0;
}

void pp_mask_use(const struct pp_cpu_mask *mask)
{
    (void)sched_setaffinity(0, sizeof(mask->bits), (const void *)mask->bits);
}

void pp_mask_use_all(void)
{
    struct pp_cpu_mask all;
    memset(&all, 0xff, sizeof(all)); /* the kernel keeps those that this container may use */
    pp_mask_use(&all);
}

int pp_machine_mask(bool whole_machine, struct pp_cpu_mask *out)
{
    bool known = pp_mask_get(out);
    if (known && whole_machine) {
        struct pp_cpu_mask before = *out;
        pp_mask_use_all();
        if (!pp_mask_get(out))
            *out = before;
        pp_mask_use(&before);
    }
    long there = known ? 0 : sysconf(_SC_NPROCESSORS_ONLN);
    for (int c = 0; !known && (c < there || c == 0) && c < PP_MACHINE_CORES_MAX; c++)
        pp_mask_add(out, c);
    return pp_mask_count(out);
}

static int list_cpus(const struct pp_cpu_mask *mask, int *out, int max)
{
    int n = 0;
    for (int c = 0; c < PP_MACHINE_CORES_MAX && n < max; c++)
        if (pp_mask_has(mask, c))
            out[n++] = c;
    return n;
}

int pp_machine_cores(bool whole_machine, int *out, int max)
{
    struct pp_cpu_mask mask;
    struct pp_quota quota;
    pp_quota_here(pp_machine_mask(whole_machine, &mask), &quota);
    return list_cpus(&mask, out, quota.cores < max ? quota.cores : max);
}

int pp_machine_whole_cores(void)
{
    struct pp_cpu_mask mask;
    struct pp_quota quota;
    int n = pp_machine_mask(false, &mask), cores = 0;
    pp_quota_here(n, &quota);
    PP_OWN_MEMORY struct pp_cpu *cpus = pp_alloc((size_t)n, sizeof(*cpus));
    n = cpus ? pp_topology_read(&mask, cpus) : 0;
    for (int i = 0; i < n; i++)
        cores += cpus[i].sibling == 0;
    return cores > 0 && cores < quota.cores ? cores : quota.cores;
}

/* Writes the numbers of n cores to `out`: as "0-15" if they are consecutive, else as "0, 2, 5". */
static void describe_cores(const int *cores, int n, char *out, size_t bytes)
{
    bool range = n > 2 && cores[n - 1] - cores[0] == n - 1;
    out[0] = '\0';
    if (range)
        snprintf(out, bytes, "%d-%d", cores[0], cores[n - 1]);
    for (int i = 0; i < n && !range && strlen(out) + 16 < bytes; i++)
        pp_text_add(out, bytes, "%s%d", i > 0 ? ", " : "", cores[i]);
}

/* Writes the caches of the first core to `out`, with sizes as the kernel writes them: "L1d 32K, L2
 * 1024K, L3 32768K". */
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

static const char *const limit_names[PP_MEMORY_LIMITS] = {
    "what the system has available",
    "the memory limit of its control group",
    "its limit of address space (ulimit -v)",
};

static void lower_limit(struct pp_memory_left *left, enum pp_memory_limit kind, uint64_t bytes)
{
    if (bytes < left->bytes[kind])
        left->bytes[kind] = bytes;
}

/* Reads a number from a small file: the number after `word` in the line that begins with `word`, or
 * at the start of the file if `word` is "". Returns whether there is one. */
static bool read_number(const char *path, const char *word, uint64_t *out)
{
    char text[64];
    pp_file_value(path, word, text, sizeof(text));
    if (text[0] < '0' || text[0] > '9') /* also refuses "max" */
        return false;
    *out = strtoull(text, NULL, 10);
    return true;
}

/* Lowers the limit to the memory that one control group has left. Cached pages of files count as
 * free, because the kernel can reclaim them. */
static void lower_by_group(struct pp_memory_left *left, const char *dir, const char *max,
                           const char *current, const char *cache)
{
    char path[PP_PATH_MAX];
    uint64_t most = 0, now = 0, files = 0;
    if (pp_path_format(path, "%s/%s", dir, max) < 0 || !read_number(path, "", &most) ||
        pp_path_format(path, "%s/%s", dir, current) < 0 || !read_number(path, "", &now))
        return;
    if (pp_path_format(path, "%s/memory.stat", dir) == 0)
        (void)read_number(path, cache, &files);
    now -= files < now ? files : now;
    lower_limit(left, PP_MEMORY_GROUP, most > now ? most - now : 0);
}

static void visit_memory_group(void *ctx, const char *dir, bool second)
{
    if (second)
        lower_by_group(ctx, dir, "memory.max", "memory.current", "file ");
    else
        lower_by_group(ctx, dir, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache ");
}

/* ---- control groups */

typedef void (*group_fn)(void *ctx, const char *dir, bool second);

/* Calls `fn` for a control group and for all groups that contain it. In a container the path may be
 * that of the host and not exist. */
static void visit_outer(const char *base, char *group, bool second, group_fn fn, void *ctx)
{
    char dir[PP_PATH_MAX];
    for (;;) {
        if (pp_path_format(dir, "%s%s", base, group) == 0)
            fn(ctx, dir, second);
        char *slash = strrchr(group, '/');
        if (!slash)
            return;
        *slash = '\0';
    }
}

/* Returns whether the comma-separated names contain this name. */
static bool has_name(const char *names, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = names; (p = strstr(p, name)) != NULL; p += n)
        if ((p == names || p[-1] == ',') && (p[n] == ',' || p[n] == '\0'))
            return true;
    return false;
}

/* Calls `fn` for the control groups of this process, which the kernel lists in lines such as
 * "0::/user.slice" and "4:cpu,cpuacct:/docker/1234". Adds each line to *hash, unless `hash` is
 * NULL. */
static void visit_groups(const char *root, const char *controller, group_fn fn, void *ctx,
                         uint64_t *hash)
{
    char path[PP_PATH_MAX], line[PP_PATH_MAX], base[PP_PATH_MAX];
    FILE *f = pp_path_format(path, "%s/proc/self/cgroup", root) == 0 ? fopen(path, "re") : NULL;
    while (f && fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';
        if (hash)
            *hash = pp_rng_stream(line, *hash);
        char *names = strchr(line, ':');
        char *group = names ? strchr(names + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        names++;
        bool second = names[0] == '\0';
        if (!second && !has_name(names, controller))
            continue;
        /* version 1 is mounted under the name of one controller or of all its controllers */
        int rc = pp_path_format(base, "%s/sys/fs/cgroup%s%s", root, second ? "" : "/", names);
        if (rc == 0 && !second && access(base, F_OK) != 0)
            rc = pp_path_format(base, "%s/sys/fs/cgroup/%s", root, controller);
        if (rc == 0)
            visit_outer(base, group, second, fn, ctx);
    }
    if (f)
        fclose(f);
}

/* Lowers the quota to that of one control group. Version 2 has one file, "150000 100000" or "max
 * 100000" (no quota); version 1 has two files, with -1 for no quota. */
static void visit_quota_group(void *ctx, const char *dir, bool second)
{
    struct pp_quota *q = ctx;
    char path[PP_PATH_MAX], text[64];
    uint64_t quota, period = 0;
    if (pp_path_format(path, "%s/%s", dir, second ? "cpu.max" : "cpu.cfs_period_us") < 0)
        return;
    if (second) {
        pp_file_value(path, "", text, sizeof(text));
        if (sscanf(text, "%" SCNu64 " %" SCNu64, &quota, &period) != 2)
            return;
    } else if (!read_number(path, "", &period) ||
               pp_path_format(path, "%s/cpu.cfs_quota_us", dir) < 0 ||
               !read_number(path, "", &quota)) {
        return;
    }
    if (period > 0 && quota > 0 && (double)quota / (double)period < q->cpus) {
        q->cpus = (double)quota / (double)period;
        snprintf(q->file, sizeof(q->file), "%.*s", (int)sizeof(q->file) - 1, path);
    }
}

void pp_quota_find(const char *root, int mask, struct pp_quota *out)
{
    struct pp_error before = *pp_error_get();
    *out = (struct pp_quota){.cpus = INFINITY, .cores = mask};
    visit_groups(root, "cpu", visit_quota_group, out, NULL);
    (void)pp_error_adopt(&before);
    out->limits = out->cpus < mask;
    if (out->limits)
        out->cores = out->cpus < 1 ? 1 : (int)out->cpus;
}

void pp_quota_here(int mask, struct pp_quota *out)
{
    const char *root = getenv("PPCLI_SYSTEM_ROOT");
    pp_quota_find(root ? root : "", mask, out);
}

enum pp_memory_limit pp_memory_left_least(const struct pp_memory_left *left, const char **what)
{
    enum pp_memory_limit nearest = PP_MEMORY_SYSTEM;
    for (int k = 0; k < PP_MEMORY_LIMITS; k++)
        nearest = left->bytes[k] < left->bytes[nearest] ? (enum pp_memory_limit)k : nearest;
    *what = limit_names[nearest];
    return nearest;
}

void pp_memory_left_find(const char *root, struct pp_memory_left *out)
{
    struct pp_memory_left left = {.bytes = {UINT64_MAX, UINT64_MAX, UINT64_MAX}};
    struct pp_error before = *pp_error_get(); /* a path that is too long is not a failure here */
    char path[PP_PATH_MAX];
    uint64_t n = 0;
    if (pp_path_format(path, "%s/proc/meminfo", root) == 0 &&
        read_number(path, "MemAvailable:", &n) && n < UINT64_MAX / 1024)
        lower_limit(&left, PP_MEMORY_SYSTEM, n * 1024);
    visit_groups(root, "memory", visit_memory_group, &left, &left.group);
    struct rlimit as;
    if (getrlimit(RLIMIT_AS, &as) == 0 && as.rlim_cur != RLIM_INFINITY &&
        pp_path_format(path, "%s/proc/self/statm", root) == 0 && read_number(path, "", &n)) {
        uint64_t used = n * (uint64_t)sysconf(_SC_PAGESIZE);
        lower_limit(&left, PP_MEMORY_ADDRESS, as.rlim_cur > used ? as.rlim_cur - used : 0);
    }
    (void)pp_error_adopt(&before);
    *out = left;
}

const char *pp_memory_limit_name(enum pp_memory_limit kind)
{
    return limit_names[kind];
}

/* ---- description of the machine */

/* Describes the processors, and the tightest limit if this process may use fewer than the machine
 * has. */
static void describe_cpus(bool whole_machine, struct pp_machine *out)
{
    struct pp_cpu_mask mask, open;
    struct pp_quota quota;
    int cpus[PP_MACHINE_CORES_MAX], n = pp_machine_mask(whole_machine, &mask);
    int widest = pp_machine_mask(true, &open);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    pp_quota_here(n, &quota);
    out->cores = quota.cores;
    out->cores_there = online > n ? (int)online : n;
    describe_cores(cpus, list_cpus(&mask, cpus, PP_MACHINE_CORES_MAX), out->binding,
                   sizeof(out->binding));
    if (quota.limits) {
        snprintf(out->limit, sizeof(out->limit), "a quota of %.4g CPU%s (%s)", quota.cpus,
                 quota.cpus == 1 ? "" : "s", quota.file);
    } else if (n < widest) {
        snprintf(out->limit, sizeof(out->limit), PP_LIMIT_MASK);
    } else if (n < out->cores_there) {
        snprintf(out->limit, sizeof(out->limit), "the cpuset of its control group");
    }
}

void pp_machine_describe(bool whole_machine, struct pp_machine *out)
{
    char text[64];
    struct utsname name;
    struct pp_memory_left left;
    memset(out, 0, sizeof(*out));
    (void)gethostname(out->host, sizeof(out->host) - 1);
    if (uname(&name) == 0) {
        snprintf(out->system, sizeof(out->system), "%.40s %.70s %.40s", name.sysname, name.release,
                 name.machine);
    }
    pp_file_value("/proc/cpuinfo", "model name", out->cpu, sizeof(out->cpu));
    pp_file_value("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "", out->governor,
                  sizeof(out->governor));
    describe_cpus(whole_machine, out);
    describe_caches(out->caches, sizeof(out->caches));
    pp_file_value("/proc/meminfo", "MemTotal", text, sizeof(text));
    out->memory_bytes = strtoull(text, NULL, 10) * 1024;
    pp_memory_left_find("", &left);
    out->memory_left = left.bytes[pp_memory_left_least(&left, &out->memory_limit)];
}

uint64_t pp_host_id(void)
{
    char id[256] = "";
    pp_file_value("/proc/sys/kernel/random/boot_id", "", id, sizeof(id));
    if (!id[0])
        (void)gethostname(id, sizeof(id) - 1);
    return pp_rng_stream(id, 0); /* a hash */
}

void pp_host_name(char out[PP_HOST_MAX])
{
    if (gethostname(out, PP_HOST_MAX) != 0 || out[0] == '\0')
        snprintf(out, PP_HOST_MAX, "?");
    out[PP_HOST_MAX - 1] = '\0';
}
