/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/dev/devices.h that only this module uses. */
#ifndef PPCLI_SRC_DEV_DEVICES_H
#define PPCLI_SRC_DEV_DEVICES_H

#include "ppcli/dev/devices.h"

/* Finds devices as pp_devices_find() does, in a list devices[n]; `wanted` is what run.devices asks
 * for. Errors: PP_ERESOURCE. */
int pp_devices_pick(const struct pp_device *devices, int n, const int *wanted, int n_wanted,
                    struct pp_device out[PP_DEVICES_MAX], int *n_out);

#endif
