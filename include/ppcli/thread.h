/* SPDX-License-Identifier: Apache-2.0 */
/* Starting threads. Every thread that ppcli starts is started here. */
#ifndef PPCLI_THREAD_H
#define PPCLI_THREAD_H

#include <pthread.h>

/*
 * As pthread_create(), with a stack of PP_THREAD_STACK bytes whatever `ulimit -s` says: a small
 * limit is meant for the first thread, and libraries we call want more. Returns 0, or the errno
 * value; *out is then untouched. Local.
 */
#define PP_THREAD_STACK ((size_t)8 << 20)
int pp_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg);

#endif
