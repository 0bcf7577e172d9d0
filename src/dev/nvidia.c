/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for an NVIDIA GPU in /proc and /dev, so that a run can say that it does not use it. */
#include "nvidia.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns whether CUDA_VISIBLE_DEVICES hides all devices: "", "-1" and Slurm's "NoDevFiles" do. */
static bool is_hidden(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return visible && !strchr("0123456789", visible[0] ? visible[0] : '-') &&
           strncmp(visible, "GPU-", 4) != 0 && strncmp(visible, "MIG-", 4) != 0;
}

/* Returns whether the NVIDIA driver has a device; it makes a folder for each. */
static bool driver_has_device(void)
{
    DIR *folder = opendir("/proc/driver/nvidia/gpus");
    bool found = false;
    for (const struct dirent *e; folder && !found && (e = readdir(folder)) != NULL;)
        found = e->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return found;
}

bool nvidia_is_here(void)
{
    /* the last path: Windows' subsystem for Linux, whose devices have no files of their own */
    return !is_hidden() && (driver_has_device() || access("/dev/nvidia0", F_OK) == 0 ||
                            access("/usr/lib/wsl/lib/libcuda.so.1", F_OK) == 0);
}
