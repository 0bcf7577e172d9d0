/* SPDX-License-Identifier: Apache-2.0 */
/* What this ppcli was built with, for `version` and `env`. */
#ifndef PPCLI_CLI_BUILD_FACTS_H
#define PPCLI_CLI_BUILD_FACTS_H

struct build_fact {
    const char *what, *text; /* "zlib", "1.2.13"; text "no...": is not in this build */
};

/* what NULL ends them. Static storage. */
const struct build_fact *build_facts(void);

#endif
