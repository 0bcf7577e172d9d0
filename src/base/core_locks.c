/* SPDX-License-Identifier: Apache-2.0 */
#include "core_locks.h"
#include "cores.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ppcli/base/base.h"
#include "ppcli/base/files.h"

#define GATE_NAP_NS 10000000
#define GATE_TRIES 200

/* Opens the folder of the lock files and returns its descriptor, or -1 if the folder does not
 * belong to this user: another user may have made a folder of this name in /tmp. */
static int open_folder(void)
{
    char path[PP_PATH_MAX];
    struct stat st;
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    int n = runtime && runtime[0] == '/'
                ? snprintf(path, sizeof(path), "%s/ppcli", runtime)
                : snprintf(path, sizeof(path), "/tmp/ppcli-%u", (unsigned)geteuid());
    if (n >= (int)sizeof(path))
        return -1;
    (void)mkdir(path, 0700);
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder >= 0 && (fstat(folder, &st) != 0 || st.st_uid != geteuid())) {
        close(folder);
        folder = -1;
    }
    return folder;
}

static int open_locked(int folder, const char *name, int how)
{
    int fd = openat(folder, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 && flock(fd, how) != 0) {
        int e = errno;
        close(fd);
        errno = e;
        fd = -1;
    }
    return fd;
}

/* Locks the file `gate` and returns its descriptor; waits up to two seconds for another run, which
 * normally holds the lock for milliseconds. If it is still locked then, opens the file without a
 * lock. */
static int lock_gate(int folder)
{
    int fd = -1;
    for (int k = 0; k < GATE_TRIES && fd < 0; k++) {
        fd = open_locked(folder, "gate", LOCK_EX | LOCK_NB);
        if (fd < 0 && errno != EWOULDBLOCK)
            return -1;
        if (fd < 0)
            pp_clock_nap(GATE_NAP_NS);
    }
    return fd >= 0 ? fd : open_locked(folder, "gate", LOCK_UN);
}

bool core_locks_begin(struct core_locks *out)
{
    *out = (struct core_locks){.folder = open_folder(), .gate = -1};
    if (out->folder >= 0)
        out->gate = lock_gate(out->folder);
    if (out->gate < 0)
        core_locks_end(out);
    return out->gate >= 0;
}

int core_locks_take(const struct core_locks *locks, int core)
{
    char name[32];
    snprintf(name, sizeof(name), "core-%d", core);
    return open_locked(locks->folder, name, LOCK_EX | LOCK_NB);
}

void core_locks_end(struct core_locks *locks)
{
    if (locks->gate >= 0)
        close(locks->gate);
    if (locks->folder >= 0)
        close(locks->folder);
    *locks = (struct core_locks){-1, -1};
}

int core_locks_filter(const struct core_locks *locks, struct pp_cpu *cpus, int n)
{
    struct pp_cpu_mask taken = {0};
    int left = 0;
    for (int i = 0; i < n; i++) {
        int fd = cpus[i].sibling == 0 ? core_locks_take(locks, cpus[i].core) : -1;
        if (fd >= 0)
            close(fd);
        else if (cpus[i].sibling == 0)
            pp_mask_add(&taken, cpus[i].core);
    }
    for (int i = 0; i < n; i++)
        if (!pp_mask_has(&taken, cpus[i].core))
            cpus[left++] = cpus[i];
    return left;
}
