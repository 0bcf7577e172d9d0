/* SPDX-License-Identifier: Apache-2.0 */
/* The machine that this process is on, as far as a run on its processor is concerned. */
#ifndef PPCLI_MACHINE_H
#define PPCLI_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#define PP_MACHINE_CORES_MAX 8192 /* a Linux kernel has no more */

/* "" and 0 stand for what the system does not tell. */
struct pp_machine {
    char host[64], system[160];  /* "Linux 6.1.0 x86_64" */
    char cpu[128], governor[32]; /* model; what sets its clock: "performance" */
    int cores;                   /* that this process may use: what mask and quota leave ... */
    int cores_there;             /* ... of so many */
    char limit[384];             /* what leaves fewer: "a quota of 1.5 CPUs (FILE)" */
    char binding[128];           /* the numbers of its mask: "0, 1"; "0-15" */
    char caches[128];            /* of the first core: "L1d 32 KiB, L2 1 MiB, L3 32 MiB" */
    uint64_t memory_bytes;       /* of the machine */
    uint64_t room_bytes;         /* what this process may still take; UINT64_MAX: unknown */
    const char *room_what;       /* the nearest limit of it; static storage */
};

#define PP_LIMIT_MASK "the CPU mask of its process, set by taskset or a launcher"

/* A set of processors; cpu_set_t ends at 1,024 of them. */
struct pp_cpu_mask {
    _Alignas(unsigned long) unsigned char bits[PP_MACHINE_CORES_MAX / 8];
};

/* The processors that the calling thread may use. False: the system does not tell; *out is empty. */
bool pp_mask_get(struct pp_cpu_mask *out);
/* Let the calling thread use these; all that its container has. Without effect where it fails. */
void pp_mask_use(const struct pp_cpu_mask *mask);
void pp_mask_use_all(void);

/* The processors that this process may run on; returns how many, at least 1. whole_machine: also
 * those that it is not bound to, as by an MPI launcher; a cpuset still counts. */
int pp_machine_mask(bool whole_machine, struct pp_cpu_mask *out);
bool pp_mask_has(const struct pp_cpu_mask *mask, int cpu);
void pp_mask_add(struct pp_cpu_mask *mask, int cpu);
int pp_mask_count(const struct pp_cpu_mask *mask);

/* How much processor time the control groups of this process allow, in processors. */
struct pp_quota {
    double cpus;    /* the least of all outer groups of both versions; INFINITY: no quota */
    char file[320]; /* where it is */
    bool limits;    /* fewer whole processors than `mask` */
    int cores;      /* what it leaves of them, rounded down: 1 .. mask */
};

/* root: "" or, in tests, a folder with proc/ and sys/ in it. mask: processors without it. Local. */
void pp_quota_find(const char *root, int mask, struct pp_quota *out);
/* Of this process. PPCLI_SYSTEM_ROOT in the environment is the root (for tests). */
void pp_quota_here(int mask, struct pp_quota *out);

/* The first cores that this process may use, ascending, as many as its quota allows; returns how
 * many, at least 1, at most max. whole_machine: as above. */
int pp_machine_cores(bool whole_machine, int *out, int max);

/* As Open MPI counts them where it binds ranks: the hardware threads of a core are one, and only those
 * that this process may use. */
int pp_machine_whole_cores(void);

/* Local; reads files of the system only. */
void pp_machine_describe(bool whole_machine, struct pp_machine *out);

/* ---- how much memory this process may still take */

/* Where a limit stands decides with whom a process shares it. */
enum pp_room_kind {
    PP_ROOM_SYSTEM,  /* all processes of the machine */
    PP_ROOM_GROUP,   /* those of its control group */
    PP_ROOM_ADDRESS, /* nobody */
    PP_ROOM_KINDS
};

struct pp_room {
    uint64_t bytes[PP_ROOM_KINDS]; /* what may still be taken; UINT64_MAX: unknown */
    uint64_t group;                /* equal for processes of one control group */
};

/*
 * Memory available on this machine; what the control groups of this process (both versions, each
 * level) and its address space have left. root: "" or, in tests, a folder with proc/ and sys/ in
 * it. What cannot be read is not a limit. Local.
 */
void pp_room_find(const char *root, struct pp_room *out);

/* The limit that leaves least, and its name ("what the system has available"; static storage). */
enum pp_room_kind pp_room_nearest(const struct pp_room *room, const char **what);

/* A limit in words, for "... are left of". Static storage. */
const char *pp_room_name(enum pp_room_kind kind);

#define PP_HOST_MAX 56 /* bytes of a host's name, its NUL too; a longer one is cut */

/* Of this machine; the same for all processes on it, also in containers, until it restarts. */
uint64_t pp_host_id(void);

/* Its name, as gethostname() has it; "?" when it has none. */
void pp_host_name(char out[PP_HOST_MAX]);

#endif
