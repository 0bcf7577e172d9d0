/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that grow, and the wire format of protobuf messages made of them. */
#ifndef PPCLI_PROTOBUF_H
#define PPCLI_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pp_bytes { /* begins as {0} */
    uint8_t *at;  /* [n]; owned */
    size_t n, room;
    bool lost; /* there was no memory for some */
};

void pp_bytes_fini(struct pp_bytes *b);
void pp_bytes_put(struct pp_bytes *b, const void *data, size_t n);
void pp_bytes_little(struct pp_bytes *b, uint64_t value, int n); /* its n low bytes */

/* The key of a field: its number and how its value is laid out. */
enum pp_wire {
    PP_WIRE_VARINT = 0,
    PP_WIRE_FIXED64 = 1,
    PP_WIRE_LENGTH = 2,
    PP_WIRE_FIXED32 = 5
};

void pp_bytes_varint(struct pp_bytes *b, uint64_t value);
void pp_bytes_key(struct pp_bytes *b, int field, enum pp_wire wire);
/* Fields: a whole number, a float, bytes or a message, a text. */
void pp_bytes_int(struct pp_bytes *b, int field, int64_t value);
void pp_bytes_float(struct pp_bytes *b, int field, float value);
void pp_bytes_part(struct pp_bytes *b, int field, const void *data, size_t n);
void pp_bytes_text(struct pp_bytes *b, int field, const char *text);

#endif
