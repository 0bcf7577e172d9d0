/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory this process may still take. */
#ifndef PPCLI_ROOM_H
#define PPCLI_ROOM_H

#include <stdint.h>

/* Where a limit stands decides with whom a process shares it. */
enum pp_room_kind {
    PP_ROOM_SYSTEM,  /* all processes of the machine */
    PP_ROOM_GROUP,   /* those of its control group */
    PP_ROOM_ADDRESS, /* nobody */
    PP_ROOM_KINDS
};

struct pp_room {
    uint64_t bytes[PP_ROOM_KINDS]; /* what may still be taken; UINT64_MAX: nobody says */
    uint64_t group;                /* equal for processes of one control group */
};

/*
 * Memory available on this machine; what the control groups of this process (both versions, each
 * level) and its address space have left. root: "" or, in tests, a folder with proc/ and sys/ in
 * it. What cannot be read is no limit. Local.
 */
void pp_room_find(const char *root, struct pp_room *out);

/* The limit that leaves least, and its name ("what the system has available"; static storage). */
enum pp_room_kind pp_room_nearest(const struct pp_room *room, const char **what);

/* A limit in words, for "... are left of". Static storage. */
const char *pp_room_name(enum pp_room_kind kind);

#endif
