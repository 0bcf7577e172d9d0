/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks what mpirun needs on this machine to start ranks. Open MPI reports most missing things
 * with a page of text or not at all, so ppcli checks them before it starts mpirun.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "hosts.h"

#define MIB (1ull << 20)
#define SEGMENT_BYTES (4 * MIB + 65536) /* shared memory per rank: btl_vader_segment_size */
#define SESSION_BYTES (MIB / 4)         /* mpirun's folder, with its own sockets and names */
/* Measured with Open MPI 4.1.4 and 2 and 4 ranks: with less, no rank starts. */
#define FILES_MIN 24
#define FILES_OF_RANK 5
#define TASKS_MIN 5
#define TASKS_OF_RANK 7
#define INSTEAD "use --launch threads to run the ranks as threads"

/* Checks that mpirun and the ranks can write to a folder, and that it has space for `bytes` bytes
 * and `files` files. */
static int check_folder(const char *path, const char *what, unsigned long long bytes,
                        unsigned long long files, const char *remedy)
{
    struct statvfs fs;
    if (statvfs(path, &fs) != 0 || access(path, W_OK | X_OK) != 0)
        return pp_fail(PP_ERESOURCE, "mpirun needs %s in %s (%s): %s, or " INSTEAD, what, path,
                       strerror(errno), remedy);
    unsigned long long left = (unsigned long long)fs.f_bavail * fs.f_frsize;
    if (left < bytes) {
        return pp_fail(PP_ERESOURCE,
                       "mpirun needs %.1f MiB for %s in %s, but %.1f MiB are free: %s, or " INSTEAD,
                       (double)bytes / (double)MIB, what, path, (double)left / (double)MIB, remedy);
    }
    if (fs.f_files > 0 && fs.f_favail < files) {
        return pp_fail(PP_ERESOURCE,
                       "mpirun needs %llu files for %s in %s, but only %llu can be created: %s, "
                       "or " INSTEAD,
                       files, what, path, (unsigned long long)fs.f_favail, remedy);
    }
    return 0;
}

/* Checks that the loopback interface is up: mpirun and its ranks communicate over it, also on one
 * machine. */
static int check_loopback(void)
{
    struct ifaddrs *all = NULL;
    bool up = getifaddrs(&all) != 0; /* unknown: assume it is up */
    for (const struct ifaddrs *i = all; i; i = i->ifa_next)
        up |= (i->ifa_flags & IFF_LOOPBACK) && (i->ifa_flags & IFF_UP);
    freeifaddrs(all);
    return up ? 0
              : pp_fail(PP_ERESOURCE, "mpirun needs the loopback interface, which is down: "
                                      "ip link set lo up, or " INSTEAD);
}

/* Counts the processes and threads of this user, as the kernel does for the limit of processes. */
static unsigned long long count_tasks(void)
{
    PP_OWN(pp_closedir_at) DIR *d = opendir("/proc");
    unsigned long long n = 0;
    char path[PP_PATH_MAX], text[64];
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] < '1' || e->d_name[0] > '9' ||
            pp_path_format(path, "/proc/%s/status", e->d_name) < 0)
            continue;
        pp_file_value(path, "Uid", text, sizeof(text));
        if (!text[0] || strtoul(text, NULL, 10) != getuid())
            continue;
        pp_file_value(path, "Threads", text, sizeof(text));
        n += strtoul(text, NULL, 10);
    }
    return n;
}

static int check_limits(unsigned long long ranks)
{
    struct rlimit files, tasks;
    unsigned long long open = FILES_MIN + FILES_OF_RANK * ranks, more = 0;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < open) {
        return pp_fail(PP_ERESOURCE,
                       "mpirun needs %llu open files for %llu ranks, but %llu are allowed: ulimit "
                       "-n 1024, or " INSTEAD,
                       open, ranks, (unsigned long long)files.rlim_cur);
    }
    bool limited =
        geteuid() != 0 && getrlimit(RLIMIT_NPROC, &tasks) == 0 && tasks.rlim_cur != RLIM_INFINITY;
    if (limited)
        more = count_tasks() + TASKS_MIN + TASKS_OF_RANK * ranks;
    if (limited && more > tasks.rlim_cur) {
        return pp_fail(PP_ERESOURCE,
                       "mpirun and %llu ranks need a limit of %llu processes and threads of this "
                       "user, but it is %llu (ulimit -u): raise it, or " INSTEAD,
                       ranks, more, (unsigned long long)tasks.rlim_cur);
    }
    return 0;
}

int pp_mpirun_can_start(int ranks)
{
    const char *folder = getenv("TMPDIR");
    unsigned long long n = (unsigned long long)ranks;
    PP_TRY(check_folder(folder && folder[0] ? folder : "/tmp", "its session folder", SESSION_BYTES,
                        4 * n + 8, "name another one in TMPDIR"));
    PP_TRY(check_folder("/dev/shm", "shared memory of the ranks", n * SEGMENT_BYTES, n + 1,
                        "make it larger (mount -o remount,size=1g /dev/shm; docker run "
                        "--shm-size=1g)"));
    PP_TRY(check_limits(n));
    return check_loopback();
}
