/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of a process that cannot return to main(). */
#include "command.h"

#include <poll.h>
#include <unistd.h>

#include "ppcli/base/base.h"

void last_words_before_abort(void)
{
    fprintf(stderr, "ppcli: error: %s\n", pp_error_get()->text);
}

/* Prints several lines in one write and ends the process. It prints nothing if stderr would block,
 * so that the process can still exit. */
void last_words_lost(const char *text)
{
    struct pollfd err = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (text && pp_last_words_first() && poll(&err, 1, 200) == 1 && (err.revents & POLLOUT))
        dprintf(STDERR_FILENO, "%sppcli: error: %s", pp_term_live(STDERR_FILENO) ? "\n" : "", text);
    pp_launcher_end();
    pp_process_leave(PP_ELOST);
}

struct pp_train_options pp_cli_train_options(void)
{
    return (struct pp_train_options){.out = stdout,
                                     .before_abort = last_words_before_abort,
                                     .lost = pp_process_leave ? last_words_lost : NULL};
}

int pp_cli_end(struct pp_start *s, struct pp_config *cfg, int rc)
{
    if (s->open)
        pp_world_close(&s->world);
    return s->speaks ? pp_cli_config_verdict(cfg, rc) : rc;
}
