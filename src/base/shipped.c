/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the files that come with ppcli. The program does not contain the path where it was built,
 * so that two builds have the same bytes and an installed program does not search there. A build
 * folder has a file that names its source.
 */
#include "ppcli/base/base.h"
#include "ppcli/base/files.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "prefix.h"

#define UP_MOST 4 /* levels from a test program to the root of its build folder */

/* Removes the last name of a path and the slash before it; leaves "" of a path without a slash. */
static void cut_last_name(char *path)
{
    char *slash = strrchr(path, '/');
    path[slash ? slash - path : 0] = '\0';
}

/* Finds the source folder that belongs to the build folder with the program `exe`; returns false if
 * `exe` is not in a build folder. */
static bool find_source(const char *exe, char out[PP_PATH_MAX])
{
    char folder[PP_PATH_MAX], file[PP_PATH_MAX];
    snprintf(folder, sizeof(folder), "%s", exe);
    for (int up = 0; up < UP_MOST && folder[0]; up++, cut_last_name(folder)) {
        int fd = pp_path_format(file, "%s/source-folder.txt", folder) < 0
                     ? -1
                     : open(file, O_RDONLY | O_CLOEXEC); /* allocates no memory */
        ssize_t n = fd < 0 ? 0 : read(fd, out, PP_PATH_MAX - 1);
        if (fd >= 0)
            close(fd);
        out[n > 0 ? n : 0] = '\0';
        out[strcspn(out, "\n")] = '\0';
        if (out[0] == '/')
            return true;
    }
    return false;
}

int pp_shipped_folders(const char *below, char out[PP_SHIPPED_MAX][PP_PATH_MAX])
{
    char exe[PP_PATH_MAX] = "", up[PP_PATH_MAX], meson[PP_PATH_MAX], source[PP_PATH_MAX];
    int n = 0;
    if (readlink("/proc/self/exe", exe, sizeof(exe) - 1) < 0)
        exe[0] = '\0';
    cut_last_name(exe);
    strcpy(up, exe);
    cut_last_name(up);
    bool beside = pp_path_format(meson, "%s/meson.build", up) == 0 && access(meson, F_OK) == 0;
    n += exe[0] && pp_path_format(out[n], "%s/share/ppcli/%s", up, below) == 0;
    n += exe[0] && pp_path_format(out[n], "%s/share/ppcli/%s", exe, below) == 0;
    n += exe[0] && pp_path_format(out[n], "%s/%s", exe, below) == 0;
    n += beside && pp_path_format(out[n], "%s/%s", up, below) == 0;
    n += pp_path_format(out[n], PP_DATA_FOLDER "/%s", below) == 0;
    n += find_source(exe, source) && pp_path_format(out[n], "%s/%s", source, below) == 0;
    pp_error_clear(); /* a path that is too long is skipped */
    return n;
}
