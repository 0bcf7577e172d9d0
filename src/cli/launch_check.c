/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What mpirun needs of this machine to start ranks on it. Open MPI answers most of these lacks with
 * a page of text, or with none at all, so they are looked for before it is started.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "start.h"

#define MIB (1ull << 20)
#define SEGMENT_BYTES (4 * MIB + 65536) /* of shared memory for each rank: btl_vader_segment_size */
#define SESSION_BYTES (MIB / 4) /* of mpirun's folder, where its own sockets and names are */
#define INSTEAD "leave out --launch mpirun to run the ranks as threads"

/* A folder that mpirun and the ranks write to. */
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
                       "mpirun needs %llu files for %s in %s, but it has room for %llu: %s, "
                       "or " INSTEAD,
                       files, what, path, (unsigned long long)fs.f_favail, remedy);
    }
    return 0;
}

/* mpirun and its ranks talk over it, also on one machine. */
static int check_loopback(void)
{
    struct ifaddrs *all = NULL;
    bool up = getifaddrs(&all) != 0; /* nothing known */
    for (const struct ifaddrs *i = all; i; i = i->ifa_next)
        up |= (i->ifa_flags & IFF_LOOPBACK) && (i->ifa_flags & IFF_UP);
    freeifaddrs(all);
    return up ? 0
              : pp_fail(PP_ERESOURCE, "mpirun needs the loopback interface, which is down: "
                                      "ip link set lo up, or " INSTEAD);
}

int launch_check_machine(int ranks)
{
    const char *folder = getenv("TMPDIR");
    unsigned long long n = (unsigned long long)ranks;
    PP_TRY(check_folder(folder && folder[0] ? folder : "/tmp", "its session folder", SESSION_BYTES,
                        4 * n + 8, "name another one in TMPDIR"));
    PP_TRY(check_folder("/dev/shm", "shared memory of the ranks", n * SEGMENT_BYTES, n + 1,
                        "make it larger (mount -o remount,size=1g /dev/shm; docker run "
                        "--shm-size=1g)"));
    return check_loopback();
}
