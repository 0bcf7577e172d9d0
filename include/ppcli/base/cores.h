/* SPDX-License-Identifier: Apache-2.0 */
/* The processors of this machine: what it has, who may use which, and the threads of a rank. */
#ifndef PPCLI_BASE_CORES_H
#define PPCLI_BASE_CORES_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- process */

/* Processes and threads of this machine, as the kernel describes them. */

/* The number of the signal that asked this process to stop; 0: none has. Written by the handler of
 * pp_signals_catch(). Whatever waits for a long time before a run begins has to read it. */
extern volatile sig_atomic_t pp_process_stop;
extern volatile sig_atomic_t pp_process_save; /* how many times it was asked to save and continue */

enum pp_process {
    PP_PROCESS_RUNNING,
    PP_PROCESS_STOPPED,   /* by a signal */
    PP_PROCESS_TRACED,    /* held by a debugger */
    PP_PROCESS_GONE,      /* ended, or its pid belongs to another one now */
    PP_PROCESS_ELSEWHERE, /* on another machine: unknown */
};

/* Of a process that wrote down pp_process_self(). Local; any process. */
enum pp_process pp_process_at(int64_t pid, uint64_t started, uint32_t machine);

/* Whether a process of this machine is at work: not when there is none of this pid, nor when it has
 * ended and its parent has not asked how. Local. */
bool pp_process_lives(int64_t pid);

/* What the kernel tells of a thread's time since its start. A wait for a core is in waited_ns only
 * when it is over; until then the thread is ready and ran_ns stands still. */
struct pp_thread_time {
    uint64_t ran_ns, waited_ns;
    bool ready; /* it runs or waits for a core */
};

/* Of a thread of this machine; zeroed when the kernel does not tell. Local. */
struct pp_thread_time pp_thread_time(int64_t pid, int64_t tid);

/* Who this is: when it began, in the kernel's ticks since boot, and a number that is equal where clocks
 * and pids mean the same. Local. */
void pp_process_self(uint64_t *started, uint32_t *machine);

/* ---- machine */

/* The machine that this process is on, as far as a run on its processor is concerned. */

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
void pp_mask_add(struct pp_cpu_mask *mask, int cpu);
int pp_mask_count(const struct pp_cpu_mask *mask);

/* How much processor time the control groups of this process allow, in processors. */
struct pp_quota {
    double cpus;    /* the least of all outer groups of both versions; INFINITY: no quota */
    char file[320]; /* where it is */
    bool limits;    /* fewer whole processors than `mask` */
    int cores;      /* what it leaves of them, rounded down: 1 .. mask */
};

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

/* ---- topology */

/* What the processors of this machine share, from hwloc, which is loaded when it is first needed. */

enum pp_share {
    PP_SHARE_CACHE, /* the last level */
    PP_SHARE_NUMA,
    PP_SHARE_PACKAGE,
    PP_SHARE_LEVELS
};

struct pp_cpu {
    int number;                 /* the system's */
    int at;                     /* place in the machine's order: what is near shares much */
    int core;                   /* the number of the first hardware thread of its core */
    int sibling;                /* 0: the first of its core in the mask */
    int speed;                  /* kind of core: a higher one is faster */
    int share[PP_SHARE_LEVELS]; /* equal for those that share it */
};

/* The processors of mask, in the machine's order; returns how many. Without hwloc: ascending, with
 * the siblings that the system tells. out: [count of mask]. Local. */
int pp_topology_read(const struct pp_cpu_mask *mask, struct pp_cpu *out);

/* A picture, row by row: the cores from *from on that share a last-level cache (where each has its
 * own, a NUMA node) and are of one kind, "0+8 1+9", + between hardware threads. False: no more. */
bool pp_topology_row(const struct pp_cpu *cpus, int n, int *from, char *out, size_t bytes);

/* Which hwloc reads it: "hwloc, API 2.8"; or why none does. Static storage. */
const char *pp_topology_source(void);

/* ---- thread */

/* Starting threads and programs. Every one that ppcli starts is started here. */

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

/* ---- places */

/* Which processors of this machine the ranks of a run compute on, and the threads of each. */

struct pp_places {
    int ranks;      /* of this machine that share these processors */
    int processors; /* that each rank may use: at most its threads, at least 1 */
    int cores;      /* that all of them may use: what mask and quota leave */
    bool crowded;   /* others need the processors too: waits must not spin */
    bool siblings;  /* some threads share a core */
    bool shared;    /* other runs have the cores that this one would need */
    bool fewer;     /* with threads = 0: other runs have cores that this one would use */
    int *cpus;      /* [ranks][processors]; NULL: the system places the ranks */
    int *locks;     /* of the cores of cpus; owned, as cpus */
    int n_locks;
};

/* Divide the processors of `mask` among `ranks` ranks of `threads` threads each. A quota that allows
 * less than the mask pins nothing: it does not say which processors are free.
 * Local. Errors: PP_ERESOURCE. The caller owns what is in *out: pp_places_fini(). */
struct pp_places_spec {
    int ranks;
    int threads;                    /* 0: each as many as there are free cores for it, at least 1 */
    const struct pp_cpu_mask *mask; /* NULL: that of this process */
    bool unpinned;                  /* only count */
    bool locks; /* use only cores that no other run has locked; lock them until pp_places_fini() */
};
int pp_places_make(const struct pp_places_spec *spec, struct pp_places *out);
void pp_places_fini(struct pp_places *places);

/* Those of one rank, [processors]; NULL: the system places it. */
const int *pp_places_of(const struct pp_places *places, int rank);

/* ---- team */

/*
 * The threads of one rank. A kernel's outputs are divided into pieces, never its sums, so the bits
 * are the same for any number of threads. Member 0 is the thread that calls; the others wait for
 * it: they spin for some microseconds, then sleep.
 *
 * A piece belongs to the member of its number. Whoever is done with its own piece takes one that
 * nobody has begun, so a member that has no processor just now is not waited for.
 */

struct pp_team;

/* Units from .. to - 1 of what a kernel computes. */
struct pp_piece {
    size_t from, to;
    int member; /* who computes it: 0 .. threads - 1; no two pieces of one member run at a time */
};

typedef void (*pp_piece_fn)(const void *args, const struct pp_piece *piece);

/* A kernel: fn on each of `units`, which are independent of each other. */
struct pp_work {
    pp_piece_fn fn;
    size_t units, grain; /* pieces begin at multiples of grain (0: 1) */
    double cost;         /* about the nanoseconds that one thread takes */
};

struct pp_team_spec {
    int threads;    /* pieces of a kernel at most; >= 2 */
    int processors; /* that its members may use: no more threads than these are started */
    const int
        *cpus;    /* [threads] where each member but 0 is pinned to; NULL: as the caller's mask */
    bool crowded; /* others need the processors too: sleep at once instead of spinning */
    void (*begin)(void); /* called first in each new thread; NULL: nothing */
};

/* Errors: PP_ERESOURCE. Local. The caller owns *out; what spec points to must outlive it. */
int pp_team_create(const struct pp_team_spec *spec, struct pp_team **out);
void pp_team_destroy(struct pp_team **team);

/* Do all of it; done when it returns. team NULL, or less work than threads pay for: in this thread
 * alone, as one piece. Allocates nothing; no system call while the members are awake. Local, only
 * from the thread that created the team. */
void pp_team_run(struct pp_team *team, const struct pp_work *work, const void *args);

#endif
