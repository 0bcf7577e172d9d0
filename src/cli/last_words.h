/* SPDX-License-Identifier: Apache-2.0 */
/* What a command lets a run call when its end is not the usual one: see struct pp_train_options. */
#ifndef PPCLI_CLI_LAST_WORDS_H
#define PPCLI_CLI_LAST_WORDS_H

/* before_abort: prints this thread's error record to stderr. Local. */
void last_words_before_abort(void);

/* lost: prints `text`, unless nobody takes it or it is NULL, and ends the process with PP_ELOST.
 * ctx: the address of what pp_cli_leave() gave to the command, not NULL. Any thread. */
void last_words_lost(void *ctx, const char *text);

#endif
