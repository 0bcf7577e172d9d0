/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring of a rank's actions: one mapping, a head and a power of two of records. A file mapping
 * needs no dump: the kernel keeps what the rank wrote, however the rank ended.
 */
#include "ppcli/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ppcli/mem.h"

static const char magic[8] = "ppring\0\2";

#define CAPACITY_MAX ((uint64_t)1 << 32)
#define RECORD sizeof(struct pp_event)

_Static_assert(sizeof(struct pp_event) == 4 * sizeof(uint64_t), "a record is four words");
_Static_assert(sizeof(struct pp_ring_head) == 128, "records start on a cache line");
_Static_assert(offsetof(struct pp_ring_head, waited_ns) == 64, "waiting has its own cache line");

static const struct kind {
    const char *name;
    bool computes;
} kinds[PP_EVENT_KINDS] = {
    [PP_EVENT_F] = {"F", true},
    [PP_EVENT_I] = {"I", true},
    [PP_EVENT_W] = {"W", true},
    [PP_EVENT_RECV] = {"recv", false},
    [PP_EVENT_SLOT] = {"slot", false},
    [PP_EVENT_SEND] = {"send", false},
    [PP_EVENT_RELEASE] = {"release", false},
    [PP_EVENT_REDUCE] = {"reduce", false},
    [PP_EVENT_CLIP] = {"clip", false},
    [PP_EVENT_UPDATE] = {"update", true},
    [PP_EVENT_MEET] = {"meet", false},
    [PP_EVENT_START] = {"start", false},
    [PP_EVENT_SAVE] = {"save", false},
    [PP_EVENT_REPORT] = {"report", false},
    [PP_EVENT_LAUNCH] = {"launch", false},
    [PP_EVENT_VOTE] = {"vote", false},
    [PP_EVENT_G] = {"G", true},
    [PP_EVENT_T] = {"T", true},
    [PP_EVENT_R] = {"R", true},
    [PP_EVENT_GATHER] = {"gather", false},
};

const char *pp_event_name(int kind)
{
    return kind > PP_EVENT_NONE && kind < PP_EVENT_KINDS ? kinds[kind].name : "?";
}

bool pp_event_computes(int kind)
{
    return kind > PP_EVENT_NONE && kind < PP_EVENT_KINDS && kinds[kind].computes;
}

static void attach(struct pp_ring *ring, void *map, uint64_t capacity, size_t bytes)
{
    ring->head = map;
    ring->words = (uint64_t *)(void *)((char *)map + sizeof(struct pp_ring_head));
    ring->mask = capacity - 1;
    ring->bytes = bytes;
}

/* A file of that size, every byte of it really there: a full disk must show now, not as SIGBUS in
 * the middle of a step. */
static int map_new_file(const char *path, size_t bytes, void **out)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return pp_fail_errno(errno == EACCES ? PP_EPERM : PP_EIO, "cannot create %s", path);
    int e;
    do {
        e = posix_fallocate(fd, 0, (off_t)bytes);
    } while (e == EINTR);
    void *map = e == 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    int rc = e != 0              ? pp_fail(PP_EIO, "cannot write %s: %s", path, strerror(e))
             : map == MAP_FAILED ? pp_fail_errno(PP_EIO, "cannot map %s", path)
                                 : 0;
    close(fd);
    PP_TRY_UNDO(rc, unlink(path));
    *out = map;
    return 0;
}

int pp_ring_create(const char *path, int rank, int ranks, uint64_t capacity, struct pp_ring **out)
{
    pp_assert(capacity > 0 && capacity < CAPACITY_MAX);
    uint64_t n = 2;
    while (n < capacity + 1)
        n *= 2;
    size_t bytes = sizeof(struct pp_ring_head) + (size_t)n * RECORD;
    struct pp_ring *ring;
    PP_ALLOC(ring, 1);
    void *map = MAP_FAILED;
    int rc = 0;
    if (path) {
        rc = map_new_file(path, bytes, &map);
    } else {
        map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (map == MAP_FAILED)
            rc = pp_fail_errno(PP_ERESOURCE, "no memory for the record of actions");
    }
    PP_TRY_UNDO(rc, pp_free(ring));
    memset(map, 0, bytes); /* touch every page now */
    attach(ring, map, n, bytes);
    ring->head->rank = rank;
    ring->head->ranks = ranks;
    ring->head->pid = getpid();
    ring->head->capacity = n;
    ring->head->opened_ns = pp_clock_ns();
    (void)gethostname(ring->head->host, sizeof(ring->head->host) - 1);
    pp_process_self(&ring->head->started, &ring->head->machine);
    /* Last: whoever opens the file meanwhile finds nothing, or all of it. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(ring->head->magic, magic, sizeof(magic));
    *out = ring;
    return 0;
}

void pp_ring_destroy(struct pp_ring **ring)
{
    if (*ring) {
        munmap((*ring)->head, (*ring)->bytes);
        pp_free(*ring);
        *ring = NULL;
    }
}

void pp_ring_close(struct pp_ring *ring, enum pp_ring_end how)
{
    __atomic_store_n(&ring->head->ended, (uint32_t)how, __ATOMIC_RELEASE);
}

/* Whole words, so that a reader elsewhere never sees half of one. */
void pp_ring_begin(struct pp_ring *ring, const struct pp_event *e)
{
    union {
        struct pp_event event;
        uint64_t word[4];
    } u = {.event = *e};
    uint64_t number = ring->head->begun;
    uint64_t *to = &ring->words[(number & ring->mask) * 4];
    for (int w = 0; w < 4; w++)
        __atomic_store_n(&to[w], u.word[w], __ATOMIC_RELAXED);
    __atomic_store_n(&ring->head->begun, number + 1, __ATOMIC_RELEASE);
}

/* The head says nothing that the size of the file does not confirm. */
static int check_head(const char *path, const struct pp_ring_head *head, size_t bytes)
{
    uint64_t n = head->capacity;
    if (memcmp(head->magic, magic, sizeof(magic)) != 0)
        return pp_fail(PP_EFORMAT, "%s: not a record of actions", path);
    if (n < 2 || n > CAPACITY_MAX || (n & (n - 1)) != 0 ||
        bytes != sizeof(*head) + (size_t)n * RECORD) {
        return pp_fail(PP_EFORMAT, "%s: %zu bytes do not hold %llu records", path, bytes,
                       (unsigned long long)n);
    }
    return 0;
}

int pp_ring_open(const char *path, struct pp_ring **out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return pp_fail_errno(errno == EACCES ? PP_EPERM : PP_ENOINPUT, "cannot open %s", path);
    struct stat st;
    bool good = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
                st.st_size >= (off_t)sizeof(struct pp_ring_head);
    size_t bytes = good ? (size_t)st.st_size : 0;
    void *map = good ? mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    int rc = !good               ? pp_fail(PP_EFORMAT, "%s: not a record of actions", path)
             : map == MAP_FAILED ? pp_fail_errno(PP_EIO, "cannot map %s", path)
                                 : 0;
    close(fd);
    PP_TRY(rc);
    struct pp_ring *ring = NULL;
    rc = check_head(path, map, bytes);
    if (rc == 0 && !(ring = pp_alloc(1, sizeof(*ring))))
        rc = PP_ERESOURCE;
    PP_TRY_UNDO(rc, munmap(map, bytes));
    attach(ring, map, ((struct pp_ring_head *)map)->capacity, bytes);
    *out = ring;
    return 0;
}

size_t pp_ring_copy(const struct pp_ring *ring, uint64_t from, struct pp_event *out, size_t max,
                    uint64_t *next, uint64_t *lost)
{
    uint64_t begun = __atomic_load_n(&ring->head->begun, __ATOMIC_ACQUIRE);
    uint64_t oldest = begun > ring->mask ? begun - ring->mask : 0;
    uint64_t first = from > oldest ? from : oldest;
    size_t n = first < begun ? (size_t)(begun - first) : 0;
    n = n < max ? n : max;
    for (size_t k = 0; k < n; k++) {
        union {
            struct pp_event event;
            uint64_t word[4];
        } u;
        for (int w = 0; w < 4; w++) {
            u.word[w] = __atomic_load_n(&ring->words[((first + k) & ring->mask) * 4 + (uint64_t)w],
                                        __ATOMIC_RELAXED);
        }
        out[k] = u.event;
    }
    /* The writer went on meanwhile: what it may have touched is lost too. */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    uint64_t later = __atomic_load_n(&ring->head->begun, __ATOMIC_RELAXED);
    uint64_t kept = later > ring->mask ? later - ring->mask : 0;
    size_t drop = kept > first ? (size_t)(kept - first) : 0;
    drop = drop < n ? drop : n;
    memmove(out, out + drop, (n - drop) * sizeof(*out));
    if (next)
        *next = first + n;
    if (lost)
        *lost = first + drop > from ? first + drop - from : 0;
    return n - drop;
}
