/* SPDX-License-Identifier: Apache-2.0 */
/* The plain defaults as a backend of their own: an empty table. Slow, and the judge of the others.
 */

#include "ppcli/backend.h"

static int probe(char *why, size_t bytes)
{
    snprintf(why, bytes, "plain loops in double precision");
    return 0;
}

const struct pp_backend_ops backend_reference = {
    .name = "reference",
    .help = "plain loops in double precision: slow, the judge of the others",
    .probe = probe,
};
