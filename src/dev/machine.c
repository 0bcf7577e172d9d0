/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the system tell about the processor, its caches and the memory. */
#include "ppcli/machine.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "ppcli/err.h"
#include "ppcli/room.h"

#define CACHES_MAX 8

/* The value of the first line of a file that begins with `key`, "" when there is none. */
static void read_value(const char *path, const char *key, char *out, size_t bytes)
{
    char line[512];
    FILE *f = fopen(path, "re");
    out[0] = '\0';
    while (f && out[0] == '\0' && fgets(line, sizeof(line), f)) {
        if (strncmp(line, key, strlen(key)) == 0) {
            const char *colon = key[0] ? strchr(line, ':') : NULL;
            const char *value = colon ? colon + 1 : line;
            value += strspn(value, " \t");
            snprintf(out, bytes, "%.*s", (int)strcspn(value, "\n"), value);
        }
    }
    if (f)
        fclose(f);
}

int pp_machine_cores(bool whole_machine, int *out, int max)
{
    cpu_set_t before, set;
    int n = 0;
    if (sched_getaffinity(0, sizeof(before), &before) != 0) {
        out[0] = 0;
        return 1;
    }
    set = before;
    if (whole_machine) {
        memset(&set, 0xff, sizeof(set)); /* the kernel leaves what this container may use */
        if (sched_setaffinity(0, sizeof(set), &set) != 0 ||
            sched_getaffinity(0, sizeof(set), &set) != 0)
            set = before;
        (void)sched_setaffinity(0, sizeof(before), &before);
    }
    for (int c = 0; c < CPU_SETSIZE && n < max; c++)
        if (CPU_ISSET(c, &set))
            out[n++] = c;
    pp_assert(n > 0);
    return n;
}

int pp_machine_whole_cores(void)
{
    cpu_set_t first;
    int cpus[PP_MACHINE_CORES_MAX], n = pp_machine_cores(false, cpus, PP_MACHINE_CORES_MAX);
    CPU_ZERO(&first);
    for (int i = 0; i < n; i++) {
        char path[96], text[32];
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
                 cpus[i]);
        read_value(path, "", text, sizeof(text));
        CPU_SET((unsigned)(text[0] ? atoi(text) : cpus[i]) % CPU_SETSIZE, &first);
    }
    return CPU_COUNT(&first);
}

/* "0, 1": where threads are bound to; "0-15" for a whole range. */
static void describe_cores(const int *cores, int n, char *out, size_t bytes)
{
    bool range = n > 2 && cores[n - 1] - cores[0] == n - 1;
    size_t used = 0;
    if (range) {
        snprintf(out, bytes, "%d-%d", cores[0], cores[n - 1]);
        return;
    }
    out[0] = '\0';
    for (int i = 0; i < n && used + 16 < bytes; i++)
        used += (size_t)snprintf(out + used, bytes - used, "%s%d", i > 0 ? ", " : "", cores[i]);
}

/* "L1d 32K, L2 1024K, L3 32768K", as the kernel writes sizes. */
static void describe_caches(char *out, size_t bytes)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < CACHES_MAX && used < bytes; i++) {
        char path[128], level[8], type[32], size[32];
        static const char *const folder = "/sys/devices/system/cpu/cpu0/cache/index";
        snprintf(path, sizeof(path), "%s%d/level", folder, i);
        read_value(path, "", level, sizeof(level));
        snprintf(path, sizeof(path), "%s%d/type", folder, i);
        read_value(path, "", type, sizeof(type));
        snprintf(path, sizeof(path), "%s%d/size", folder, i);
        read_value(path, "", size, sizeof(size));
        if (!level[0] || !size[0] || strcmp(type, "Instruction") == 0)
            continue;
        used += (size_t)snprintf(out + used, bytes - used, "%sL%s%s %s", used > 0 ? ", " : "",
                                 level, strcmp(type, "Data") == 0 ? "d" : "", size);
    }
}

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
    read_value("/proc/cpuinfo", "model name", out->cpu, sizeof(out->cpu));
    read_value("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "", out->governor,
               sizeof(out->governor));
    out->cores = pp_machine_cores(whole_machine, cores, PP_MACHINE_CORES_MAX);
    describe_cores(cores, out->cores, out->binding, sizeof(out->binding));
    long there = sysconf(_SC_NPROCESSORS_ONLN);
    out->cores_there = there > out->cores ? (int)there : out->cores;
    describe_caches(out->caches, sizeof(out->caches));
    read_value("/proc/meminfo", "MemTotal", text, sizeof(text));
    out->memory_bytes = strtoull(text, NULL, 10) * 1024;
    pp_room_find("", &room);
    out->room_bytes = room.bytes[pp_room_nearest(&room, &out->room_what)];
}
