/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring of a rank's actions: one mapping with a head and a power of two of records. A file
 * mapping needs no dump: the kernel keeps what the rank wrote, however the rank ended.
 */
#include "ppcli/sim/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ppcli/base/base.h"

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

static uint64_t *get_words(void *head)
{
    return (uint64_t *)(void *)((char *)head + sizeof(struct pp_ring_head));
}

/* Creates and maps a file of `bytes` bytes. Allocates its whole space on the disk, so that a full
 * disk fails now and not in the middle of a step. */
static int map_new_file(const char *path, size_t bytes, struct pp_mapping **out)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return pp_fail_errno(errno == EACCES ? PP_EPERM : PP_EIO, "cannot create %s", path);
    int e;
    do {
        e = posix_fallocate(fd, 0, (off_t)bytes);
    } while (e == EINTR);
    if (e != 0) {
        close(fd);
        unlink(path);
        return pp_fail(PP_EIO, "cannot write %s: %s", path, strerror(e));
    }
    PP_TRY_UNDO(pp_mapping_open(path, fd, bytes, true, out), unlink(path));
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
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int rc =
        map == MAP_FAILED ? pp_fail_errno(PP_ERESOURCE, "no memory for the record of actions") : 0;
    PP_TRY_UNDO(rc, pp_free(ring));
    rc = path ? map_new_file(path, bytes, &ring->file) : 0;
    if (rc < 0) {
        munmap(map, bytes);
        pp_free(ring);
        return rc;
    }
    memset(map, 0, bytes); /* touch every page */
    ring->head = map;
    ring->words = get_words(map);
    ring->begun = &ring->head->begun;
    ring->mask = n - 1;
    ring->bytes = bytes;
    ring->own = (struct pp_ring_head){
        .rank = rank, .ranks = ranks, .pid = getpid(), .capacity = n, .opened_ns = pp_clock_ns()};
    (void)gethostname(ring->own.host, sizeof(ring->own.host) - 1);
    pp_process_self(&ring->own.started, &ring->own.machine);
    if (ring->file) {
        memset(ring->file->at, 0, bytes);
        ring->head = (struct pp_ring_head *)(void *)ring->file->at;
        ring->copy = get_words(ring->file->at);
    }
    *ring->head = ring->own;
    /* The magic number comes last: a process that opens the file meanwhile finds it empty or
     * complete. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(ring->own.magic, magic, sizeof(magic));
    memcpy(ring->head->magic, magic, sizeof(magic));
    *out = ring;
    return 0;
}

void pp_ring_destroy(struct pp_ring **ring)
{
    struct pp_ring *r = *ring;
    if (!r)
        return;
    if (!r->file || r->copy) /* the ring is in the writer's own memory */
        munmap((char *)r->words - sizeof(struct pp_ring_head), r->bytes);
    pp_mapping_close(&r->file);
    pp_free(r);
    *ring = NULL;
}

bool pp_ring_mend(struct pp_ring *ring, char *out, size_t bytes)
{
    struct pp_ring_head *own = &ring->own;
    if (!ring->copy)
        return true;
    own->begun = *ring->begun;
    own->waited_ns = ring->head->waited_ns;
    bool whole = pp_mapping_check(ring->file) == 0;
    if (whole && memcmp(own, ring->head, sizeof(*own)) == 0)
        return true;
    if (whole)
        snprintf(out, bytes, "%s: another program wrote to it while it was in use",
                 ring->file->path);
    else
        snprintf(out, bytes, "%s", pp_error_get()->text);
    pp_error_clear();
    *ring->head = *own;
    return false;
}

void pp_ring_close(struct pp_ring *ring, enum pp_ring_end how)
{
    ring->own.ended = (uint32_t)how;
    __atomic_store_n(&ring->head->ended, (uint32_t)how, __ATOMIC_RELEASE);
}

/* Appends an event to the ring. Writes whole 8-byte words, so that a reader in another process
 * never sees half a word. */
void pp_ring_begin(struct pp_ring *ring, const struct pp_event *e)
{
    union {
        struct pp_event event;
        uint64_t word[4];
    } u = {.event = *e};
    uint64_t number = *ring->begun, at = (number & ring->mask) * 4;
    for (int w = 0; w < 4; w++)
        __atomic_store_n(&ring->words[at + (uint64_t)w], u.word[w], __ATOMIC_RELAXED);
    for (int w = 0; w < 4 && ring->copy; w++)
        __atomic_store_n(&ring->copy[at + (uint64_t)w], u.word[w], __ATOMIC_RELAXED);
    __atomic_store_n(ring->begun, number + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&ring->head->begun, number + 1, __ATOMIC_RELEASE);
}

/* Checks the head of a ring file: its magic, its capacity, and that the capacity fits the size of
 * the file. */
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
    if (!good) {
        close(fd);
        return pp_fail(PP_EFORMAT, "%s: not a record of actions", path);
    }
    PP_OWN(pp_mapping_close) struct pp_mapping *map = NULL;
    PP_TRY(pp_mapping_open(path, fd, bytes, false, &map));
    struct pp_ring_head *head = (struct pp_ring_head *)(void *)map->at;
    PP_TRY(check_head(path, head, bytes));
    struct pp_ring *ring;
    PP_ALLOC(ring, 1);
    *ring = (struct pp_ring){.head = head,
                             .words = get_words(head),
                             .begun = &head->begun,
                             .mask = bytes / RECORD - sizeof(*head) / RECORD - 1,
                             .bytes = bytes,
                             .file = map};
    map = NULL;
    *out = ring;
    return 0;
}

size_t pp_ring_copy(const struct pp_ring *ring, uint64_t from, struct pp_event *out, size_t max,
                    uint64_t *next, uint64_t *lost)
{
    uint64_t begun = __atomic_load_n(ring->begun, __ATOMIC_ACQUIRE);
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
    /* The writer continued meanwhile: records that it may have overwritten are lost too. */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    uint64_t later = __atomic_load_n(ring->begun, __ATOMIC_RELAXED);
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
