/* SPDX-License-Identifier: Apache-2.0 */
#include "last_words.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "ppcli/err.h"
#include "ppcli/log.h"

void last_words_before_abort(void)
{
    fprintf(stderr, "ppcli: error: %s\n", pp_error_get()->text);
}

/* Several lines in one write, and none at all when nobody takes them: the box must not hang too. */
void last_words_lost(void *ctx, const char *text)
{
    void (*const *leave)(int rc) = ctx;
    struct pollfd err = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (text && poll(&err, 1, 200) == 1 && (err.revents & POLLOUT))
        dprintf(STDERR_FILENO, "%sppcli: error: %s", pp_term_live(STDERR_FILENO) ? "\n" : "", text);
    (*leave)(PP_ELOST);
}
