/* SPDX-License-Identifier: Apache-2.0 */
/* Starting threads and programs. Every one that ppcli starts is started here. */
#ifndef PPCLI_THREAD_H
#define PPCLI_THREAD_H

#include <pthread.h>
#include <signal.h>

/*
 * As pthread_create(), with a stack of PP_THREAD_STACK bytes whatever `ulimit -s` says: a small
 * limit is meant for the first thread, and libraries we call want more. Returns 0, or the errno
 * value; *out is then untouched. Local.
 */
#define PP_THREAD_STACK ((size_t)8 << 20)
int pp_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg);

/* What a loop does between two looks at a word that another thread writes. */
static inline void pp_thread_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#endif
}

/* Put the calling thread on one processor. Failing is harmless: the kernel places it then. Local. */
void pp_thread_pin(int cpu);

/* Run args[0] (NULL-terminated words) as a child in a process group of its own: what the terminal sends is
 * for this process, with which it ends. in (-1: nothing), out, err: its standard streams; mask: the
 * signals it blocks. Errors: PP_ENOINPUT (no such program), PP_ERESOURCE. Local. */
int pp_child_start(const char *const *args, int in, int out, int err, const sigset_t *mask,
                   pid_t *out_pid);

/*
 * A guard is a child that outlives this process, and that signals to all do not end. When this process ends
 * before pp_guard_end(), the guard calls after() with the long that was written to *out_fd; without one it
 * does nothing. A process that has threads may only use an after() that is safe after fork(). -1: there is
 * no guard. Local.
 */
#define PP_GUARD_NAME "ppcli-guard" /* the kernel's name of the process */
pid_t pp_guard_start(void (*after)(long number), int *out_fd);
void pp_guard_end(pid_t guard, int fd);

#endif
