/* SPDX-License-Identifier: Apache-2.0 */
/* Declaration of ppcli/base/files.h that only this module and its tests use. */
#ifndef PPCLI_SRC_BASE_ZIP_H
#define PPCLI_SRC_BASE_ZIP_H

#include "ppcli/base/files.h"

/* Opens an archive in memory, which must stay: data[bytes]. `path` is for messages. */
int pp_zip_parse(const char *path, const void *data, size_t bytes, struct pp_zip **out);

#endif
