/* SPDX-License-Identifier: Apache-2.0 */
#include "ppcli/thread.h"

int pp_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg)
{
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);
    if (rc != 0)
        return rc;
    rc = pthread_attr_setstacksize(&attr, PP_THREAD_STACK);
    if (rc == 0)
        rc = pthread_create(out, &attr, run, arg);
    pthread_attr_destroy(&attr);
    return rc;
}
