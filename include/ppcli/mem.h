/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory. Small things come from pp_alloc(); everything a rank needs in a training step comes
 * from one arena that is planned first (a dry pass that only counts) and taken once, so that what
 * `ppcli explain` predicts and what a run holds are the same number by construction.
 */
#ifndef PPCLI_MEM_H
#define PPCLI_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "ppcli/err.h"

#define PP_ALIGN 64 /* bytes; every arena block starts on such a boundary */

/* Zeroed memory for `count` objects of `size` bytes; NULL only for out of memory or overflow,
 * with the failure recorded (PP_ERESOURCE). count or size 0 gives a valid pointer. Local. */
void *pp_alloc(size_t count, size_t size);

/* Grow or shrink; on failure NULL, the old block stays valid, the failure is recorded. */
void *pp_realloc(void *p, size_t count, size_t size);

/* The same in a function that returns a code, which goes to its caller: memory for `count` of what p
 * points to, now in p; more or less of it, with p as it was on failure. */
#define PP_ALLOC(p, count)                                                                         \
    PP_TRY(((p) = pp_alloc((size_t)(count), sizeof(*(p)))) ? 0 : PP_ERESOURCE)
#define PP_GROW(p, count)                                                                          \
    do {                                                                                           \
        void *pp_grown_ = pp_realloc(p, (size_t)(count), sizeof(*(p)));                            \
        PP_TRY(pp_grown_ ? 0 : PP_ERESOURCE);                                                      \
        (p) = pp_grown_;                                                                           \
    } while (0)
/* Room for one more than n in p[room], both of an integer type that holds 2 * room + 16. */
#define PP_ROOM(p, n, room)                                                                        \
    do {                                                                                           \
        if ((n) == (room)) {                                                                       \
            PP_GROW(p, 2 * (room) + 16);                                                           \
            (room) = 2 * (room) + 16;                                                              \
        }                                                                                          \
    } while (0)

char *pp_strdup(const char *s);
void pp_free(void *p); /* accepts NULL */

/* A pointer that owns memory of pp_alloc(). PP_TAKE: and takes it, zeroed, for `count` of `type`, in
 * a function that returns a code, which goes to its caller on failure. */
#define PP_OWN_MEMORY PP_OWN(pp_free_at)
#define PP_TAKE(type, p, count)                                                                    \
    PP_OWN_MEMORY type *p = pp_alloc((size_t)(count), sizeof(type));                               \
    PP_TRY((p) ? 0 : PP_ERESOURCE)
void pp_free_at(void *at); /* pp_free() of the pointer there */

/* How many pp_alloc/pp_realloc/pp_strdup/arena calls this thread has made: a training step must not
 * move it. */
uint64_t pp_alloc_count(void);

/* a*b and a+b with overflow recorded as PP_ECONFIG ("too large"); *out untouched then. */
int pp_size_mul(size_t a, size_t b, size_t *out);
int pp_size_add(size_t a, size_t b, size_t *out);

/*
 * A bump allocator over one block. base == NULL is the dry pass: pp_arena_take() counts and
 * returns NULL. The block belongs to whoever called pp_arena_create().
 */
struct pp_arena {
    char *base;
    size_t bytes; /* capacity; SIZE_MAX in the dry pass */
    size_t used;
};

/* A counting arena: nothing is allocated. */
struct pp_arena pp_arena_dry(void);

/* Take `bytes` from the system, zeroed, PP_ALIGN aligned, in huge pages where the system gives
 * them. Errors: PP_ERESOURCE. */
int pp_arena_create(size_t bytes, struct pp_arena *out);
void pp_arena_destroy(struct pp_arena *a); /* accepts a dry or zeroed arena */

/* The next `count` objects of `size` bytes, PP_ALIGN aligned; NULL in the dry pass. Running past
 * the capacity is a broken invariant (the dry pass must have asked for the same). */
void *pp_arena_take(struct pp_arena *a, size_t count, size_t size);

#endif
