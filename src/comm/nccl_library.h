/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL, loaded when it is first needed: a program that was built with it also runs where it is not
 * installed, and no command pays for 200 MB that it does not use.
 */
#ifndef PPCLI_COMM_NCCL_LIBRARY_H
#define PPCLI_COMM_NCCL_LIBRARY_H

#include <nccl.h>

/* The functions, typed as the header declares them: nccl->Send is ncclSend. */
struct nccl_library {
#define NCCL(x) __typeof__(&nccl##x) x;
#include "nccl_library.def"
#undef NCCL
};

/* See struct pp_transport_ops. */
const char *pp_nccl_version(void);
int pp_nccl_probe(char *why, size_t bytes);

/* The library, loaded by the first call of the process and kept. Any thread. Errors: PP_ERESOURCE,
 * with what would work. */
int pp_nccl_load(const struct nccl_library **out);

#endif
