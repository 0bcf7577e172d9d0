/* SPDX-License-Identifier: Apache-2.0 */
#include "leftovers.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ppcli/base/cores.h"
#include "ppcli/base/files.h"

static unsigned killed_job; /* its number, which is part of file names */

static int remove_leftover(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind;
    (void)sscanf(path + at->base, "smdataseg-%u-", &killed_job);
    (void)remove(path);
    return 0;
}

void leftovers_remove_folder(const char *program, pid_t pid)
{
    const char *tmp = getenv("TMPDIR");
    char path[PP_PATH_MAX];
    if (pp_path_format(path, "%s/%s.%ld", tmp ? tmp : "/tmp", program, (long)pid) == 0)
        (void)nftw(path, remove_leftover, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

void leftovers_remove_files(const char *kind, long number)
{
    const char *tmp = getenv("TMPDIR");
    char host[PP_HOST_MAX], path[PP_PATH_MAX], segments[PP_HOST_MAX + 64];
    pp_host_name(host);
    if (pp_path_format(path, "%s/ompi.%s.%ld/%s.%ld", tmp ? tmp : "/tmp", host, (long)geteuid(),
                       kind, number) < 0)
        return;
    killed_job = 0;
    (void)nftw(path, remove_leftover, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    *strrchr(path, '/') = '\0';
    (void)rmdir(path); /* fails if other jobs are there */
    snprintf(segments, sizeof(segments), "vader_segment.%s.%ld.%x.", host, (long)geteuid(),
             killed_job);
    PP_OWN(pp_closedir_at) DIR *d = killed_job != 0 ? opendir("/dev/shm") : NULL;
    for (struct dirent *e; d && (e = readdir(d));)
        if (strncmp(e->d_name, segments, strlen(segments)) == 0)
            (void)unlinkat(dirfd(d), e->d_name, 0);
}
