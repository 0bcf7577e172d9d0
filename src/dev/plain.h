/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plain default of every compute op, with the signatures of struct pp_backend_ops. Host memory
 * only. Only the compute entries of the table are filled.
 */
#ifndef PPCLI_DEV_PLAIN_H
#define PPCLI_DEV_PLAIN_H

#include "ppcli/backend.h"

extern const struct pp_backend_ops pp_plain_ops;

#endif
