/* SPDX-License-Identifier: Apache-2.0 */
/* The processors of this machine: what it has, who may use which, and the threads of a rank. */
#ifndef PPCLI_BASE_CORES_H
#define PPCLI_BASE_CORES_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- processes */

/* Processes and threads of this machine, as the kernel describes them. */

/* Number of the signal that asked this process to stop; 0: none. Written by the handler of
 * pp_signals_catch(). Code that waits for long before a run begins has to read it. */
extern volatile sig_atomic_t pp_process_stop;
/* how many times a signal asked it to save and continue */
extern volatile sig_atomic_t pp_process_save;

enum pp_process {
    PP_PROCESS_RUNNING,
    PP_PROCESS_STOPPED,   /* by a signal */
    PP_PROCESS_TRACED,    /* held by a debugger */
    PP_PROCESS_GONE,      /* ended, or its pid now belongs to another process */
    PP_PROCESS_ELSEWHERE, /* on another machine: state unknown */
};

/* Returns the state of the process that recorded these values of pp_process_self(). Local; any
 * process. */
enum pp_process pp_process_at(int64_t pid, uint64_t started, uint32_t machine);

/* Returns whether a process of this machine is running. It is not if there is none with this pid,
 * or if it has ended and its parent has not reaped it. Local. */
bool pp_process_lives(int64_t pid);

/* Times of a thread since its start, from the kernel. A wait for a core is counted in waited_ns
 * only when it is over; until then the thread is ready and ran_ns does not change. */
struct pp_thread_time {
    uint64_t ran_ns, waited_ns;
    bool ready; /* runs or waits for a core */
};

/* Returns the times of a thread of this machine; zeros if the kernel does not provide them.
 * Local. */
struct pp_thread_time pp_thread_time(int64_t pid, int64_t tid);

/* Identifies this process: *started is its start in the kernel's ticks since boot, *machine a
 * number that is equal for processes whose clocks and pids mean the same. Local. */
void pp_process_self(uint64_t *started, uint32_t *machine);

/* ---- machine */

/* The machine that this process runs on, as far as a run on its processor needs it. */

#define PP_MACHINE_CORES_MAX 8192 /* the most that a Linux kernel supports */

/* "" and 0 stand for values that the system does not tell. */
struct pp_machine {
    char host[64], system[160];  /* "Linux 6.1.0 x86_64" */
    char cpu[128], governor[32]; /* cpu: model; governor: clock policy, such as "performance" */
    int cores;                   /* cores that mask and quota let this process use */
    int cores_there;             /* all cores of the machine */
    char limit[384];             /* why there are fewer: "a quota of 1.5 CPUs (FILE)" */
    char binding[128];           /* numbers in the mask: "0, 1"; "0-15" */
    char caches[128];            /* of the first core: "L1d 32 KiB, L2 1 MiB, L3 32 MiB" */
    uint64_t memory_bytes;       /* of the machine */
    uint64_t memory_left;        /* memory that this process may still take; UINT64_MAX: unknown */
    const char *memory_limit;    /* name of the tightest limit; static storage */
};

#define PP_LIMIT_MASK "the CPU mask of its process, set by taskset or a launcher"

/* A set of processors; cpu_set_t ends at 1,024. */
struct pp_cpu_mask {
    _Alignas(unsigned long) unsigned char bits[PP_MACHINE_CORES_MAX / 8];
};

/* Sets *out to the processors that the calling thread may use. Returns false, with an empty *out,
 * if the system does not tell. */
bool pp_mask_get(struct pp_cpu_mask *out);
/* Let the calling thread use these processors, or all that its container has. A failure has no
 * effect. */
void pp_mask_use(const struct pp_cpu_mask *mask);
void pp_mask_use_all(void);

/* Sets *out to the processors that this process may run on; returns how many, at least 1.
 * whole_machine: includes those that it is not bound to, such as by an MPI launcher; a cpuset still
 * counts. */
int pp_machine_mask(bool whole_machine, struct pp_cpu_mask *out);
void pp_mask_add(struct pp_cpu_mask *mask, int cpu);
int pp_mask_count(const struct pp_cpu_mask *mask);

/* The processor time that the control groups of this process allow, in processors. */
struct pp_quota {
    double cpus;    /* least of all outer groups of both versions; INFINITY: no quota */
    char file[320]; /* the file that sets it */
    bool limits;    /* fewer whole processors than `mask` */
    int cores;      /* whole processors that the quota leaves, rounded down: 1 .. mask */
};

/* Finds the quota of this process. PPCLI_SYSTEM_ROOT in the environment replaces the root (for
 * tests). */
void pp_quota_here(int mask, struct pp_quota *out);

/* Lists the first cores that this process may use, ascending, as many as its quota allows; returns
 * how many, at least 1 and at most `max`. whole_machine: as in pp_machine_mask(). */
int pp_machine_cores(bool whole_machine, int *out, int max);

/* Counts cores as Open MPI does when it binds ranks: the hardware threads of a core count as one,
 * and only those that this process may use. */
int pp_machine_whole_cores(void);

/* Describes the machine. Local; reads files of the system only. */
void pp_machine_describe(bool whole_machine, struct pp_machine *out);

/* ---- memory that this process may still take */

/* The scope of a limit: the processes that share it. */
enum pp_memory_limit {
    PP_MEMORY_SYSTEM,  /* all processes of the machine */
    PP_MEMORY_GROUP,   /* the processes of its control group */
    PP_MEMORY_ADDRESS, /* this process alone */
    PP_MEMORY_LIMITS
};

struct pp_memory_left {
    uint64_t bytes[PP_MEMORY_LIMITS]; /* memory that may still be taken; UINT64_MAX: unknown */
    uint64_t group;                   /* equal for processes of one control group */
};

/*
 * Finds the memory available on this machine, and what the control groups of this process (both
 * versions, each level) and its address space have left. root: "" or, in tests, a folder with proc/
 * and sys/ in it. What cannot be read is not a limit. Local.
 */
void pp_memory_left_find(const char *root, struct pp_memory_left *out);

/* Returns the limit that leaves the least memory, and sets *what to its name, such as "what the
 * system has available", in static storage. */
enum pp_memory_limit pp_memory_left_least(const struct pp_memory_left *left, const char **what);

/* Returns the name of a limit, which follows "... are left of" in messages. Static storage. */
const char *pp_memory_limit_name(enum pp_memory_limit kind);

#define PP_HOST_MAX 56 /* bytes of a host's name with its NUL; a longer name is cut */

/* Returns a number that is the same for all processes on this machine, also in containers, until it
 * restarts. */
uint64_t pp_host_id(void);

/* Sets `out` to the host name, as gethostname() has it; "?" if there is none. */
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
    int number;                 /* number in the system */
    int at;                     /* index in the machine's order, in which neighbours share much */
    int core;                   /* number of the first hardware thread of its core */
    int sibling;                /* 0: the first of its core in the mask */
    int speed;                  /* kind of core: a higher one is faster */
    int share[PP_SHARE_LEVELS]; /* equal for processors that share it */
};

/* Reads the processors of `mask` into out[count of mask], in the machine's order; returns how many.
 * Without hwloc they are in ascending order, with the siblings that the system tells. Local. */
int pp_topology_read(const struct pp_cpu_mask *mask, struct pp_cpu *out);

/* Formats a picture of the cores row by row: the cores from *from on that share a last-level cache
 * (if each has its own, a NUMA node) and are of one kind, such as "0+8 1+9", with + between the
 * hardware threads of a core. Moves *from past the row. Returns false if there are no more rows. */
bool pp_topology_row(const struct pp_cpu *cpus, int n, int *from, char *out, size_t bytes);

/* Returns the name of the library that reads the topology, "hwloc, API 2.8", or why there is none.
 * Static storage. */
const char *pp_topology_source(void);

/* ---- threads and programs */

/* Starts threads and programs. ppcli starts all of them here. */

/*
 * As pthread_create(), with a stack of PP_THREAD_STACK bytes whatever `ulimit -s` says: a small
 * limit is meant for the first thread, and libraries need more. Returns 0, or the errno value; *out
 * is then untouched. Local.
 */
#define PP_THREAD_STACK ((size_t)8 << 20)
int pp_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg);

/* Pauses a loop between two reads of a word that another thread writes. */
static inline void pp_thread_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#endif
}

/* Binds the calling thread to one processor. A failure has no effect: the kernel then places it.
 * Local. */
void pp_thread_pin(int cpu);

/* Runs args[0] (NULL-terminated words) as a child in a process group of its own: signals of the
 * terminal go to this process, and the child ends with it. in (-1: empty), out, err: its
 * standard streams; mask: the signals it blocks. Errors: PP_ENOINPUT (no such program),
 * PP_ERESOURCE. Local. */
int pp_child_start(const char *const *args, int in, int out, int err, const sigset_t *mask,
                   pid_t *out_pid);

/*
 * Starts a guard: a child that outlives this process, and that signals to all do not end. When this
 * process ends before pp_guard_end(), the guard calls after() with the long that was written to
 * *out_fd; if none was written it does nothing. A process that has threads may only use an after()
 * that is safe after fork(). -1: no guard was started. Local.
 */
#define PP_GUARD_NAME "ppcli-guard" /* the kernel's name of the process */
pid_t pp_guard_start(void (*after)(long number), int *out_fd);
void pp_guard_end(pid_t guard, int fd);

/* ---- places of ranks */

/* Which processors of this machine the ranks of a run compute on, and the threads of each. */

struct pp_places {
    int ranks;      /* ranks on this machine that share these processors */
    int processors; /* for each rank: at most its threads, at least 1 */
    int cores;      /* for all ranks: what mask and quota leave */
    bool crowded;   /* other processes need the processors too: waits must not spin */
    bool siblings;  /* some threads share a core */
    bool shared;    /* other ppcli runs hold the cores that this one would need */
    bool fewer;     /* with threads = 0: other runs hold cores that this one would use */
    int *cpus;      /* [ranks][processors]; NULL: the system places the ranks */
    int *locks;     /* locks of the cores in cpus; owned, as cpus */
    int n_locks;
};

/* Divides the processors of `mask` among `ranks` ranks of `threads` threads each. With a quota
 * below the mask nothing is pinned: a quota does not say which processors are free. Local. Errors:
 * PP_ERESOURCE. The caller owns what is in *out: pp_places_fini(). */
struct pp_places_spec {
    int ranks;
    /* 0: as many as there are free cores for each rank, at least 1 */
    int threads;
    const struct pp_cpu_mask *mask; /* NULL: the mask of this process */
    bool unpinned;                  /* count only, pin nothing */
    bool locks; /* use only cores that no other run has locked; lock them until pp_places_fini() */
};
int pp_places_make(const struct pp_places_spec *spec, struct pp_places *out);
void pp_places_fini(struct pp_places *places);

/* Returns the processors of one rank, [processors]; NULL if the system places the rank. */
const int *pp_places_of(const struct pp_places *places, int rank);

/* ---- teams of threads */

/*
 * The threads of one rank. A kernel's outputs are divided into pieces, never its sums, so the bits
 * are the same for any number of threads. Member 0 is the calling thread; the others wait for it:
 * they spin for some microseconds, then sleep.
 *
 * A piece belongs to the member with its number. A member that is done with its own piece takes one
 * that is not begun, so no one waits for a member that has no processor just now.
 */

struct pp_team;

/* The units from .. to - 1 that a kernel computes. */
struct pp_piece {
    size_t from, to;
    int member; /* the member that computes it: 0 .. threads - 1; one piece at a time */
};

typedef void (*pp_piece_fn)(const void *args, const struct pp_piece *piece);

/* A kernel: fn computes any of `units`, which are independent of each other. */
struct pp_work {
    pp_piece_fn fn;
    size_t units, grain; /* a piece begins at a multiple of grain (0: 1) */
    double cost;         /* estimated nanoseconds on one thread */
};

struct pp_team_spec {
    int threads;     /* most pieces of a kernel; >= 2 */
    int processors;  /* processors for its members: no more threads than these are started */
    const int *cpus; /* [threads] processor of each member but 0; NULL: the caller's mask */
    bool crowded; /* other processes need the processors too: sleep at once instead of spinning */
    void (*begin)(void); /* called first in each new thread; may be NULL */
};

/* Starts a team. Errors: PP_ERESOURCE. Local. The caller owns *out; what spec points to must
 * outlive it. */
int pp_team_create(const struct pp_team_spec *spec, struct pp_team **out);
void pp_team_destroy(struct pp_team **team);

/* Runs all units and returns when they are done. If team is NULL, or the work is too small to pay
 * for threads, this thread runs it alone, as one piece. Allocates nothing; makes no system call
 * while the members are awake. Local, only from the thread that created the team. */
void pp_team_run(struct pp_team *team, const struct pp_work *work, const void *args);

#endif
