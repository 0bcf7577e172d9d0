/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/data/dataset.h that only this module uses. */
#ifndef PPCLI_SRC_DATA_FETCH_H
#define PPCLI_SRC_DATA_FETCH_H

#include "ppcli/data/dataset.h"

/* Checks that the file has the pinned content; *out_gz tells whether it is compressed. Errors:
 * PP_EFORMAT (other content), PP_ENOINPUT, PP_EPERM, PP_EIO, PP_ERESOURCE. */
int pp_pin_check(const char *path, const struct pp_pin *pin, bool *out_gz);

#endif
