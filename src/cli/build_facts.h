/* SPDX-License-Identifier: Apache-2.0 */
/* What this ppcli was built with, for `version` and `env`. */
#ifndef PPCLI_CLI_BUILD_FACTS_H
#define PPCLI_CLI_BUILD_FACTS_H

#define BUILD_FACTS_MAX 32

struct build_fact {
    const char *what, *text; /* "zlib", "1.2.13"; text "no...": is not in this build */
    const char *missing;     /* a sentence more about that; NULL: none */
};

/* what NULL ends them. Static storage. */
const struct build_fact *build_facts(void);

#endif
