/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes that talk through a socket: what a transport needs of an inner one, for tests on
 * machines without MPI. No channels of its own.
 */
#ifndef PPCLI_TESTS_GPU_PAIR_H
#define PPCLI_TESTS_GPU_PAIR_H

#include "ppcli/comm/transport.h"

/* rank 0 or 1; fd: this one's end of a connected stream socket, which is the transport's from here
 * on. Errors: PP_ERESOURCE. */
int pair_open(int rank, int fd, struct pp_transport **out);

#endif
