/* SPDX-License-Identifier: Apache-2.0 */
#include "ppcli/base/files.h"

#include <string.h>

#include "ppcli/base/base.h"

void pp_bytes_fini(struct pp_bytes *b)
{
    pp_free(b->at);
    *b = (struct pp_bytes){0};
}

void pp_bytes_put(struct pp_bytes *b, const void *data, size_t n)
{
    if (n > b->capacity - b->n) {
        size_t capacity = 2 * b->capacity + n + 64;
        uint8_t *at = pp_realloc(b->at, capacity, 1);
        b->lost |= !at;
        if (!at)
            return;
        b->at = at;
        b->capacity = capacity;
    }
    if (n > 0)
        memcpy(b->at + b->n, data, n);
    b->n += n;
}

void pp_bytes_little(struct pp_bytes *b, uint64_t value, int n)
{
    for (int i = 0; i < n; i++) {
        uint8_t byte = (uint8_t)(value >> (8 * i));
        pp_bytes_put(b, &byte, 1);
    }
}

void pp_bytes_varint(struct pp_bytes *b, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        pp_bytes_little(b, (value & 0x7f) | 0x80, 1);
    pp_bytes_little(b, value, 1);
}

void pp_bytes_key(struct pp_bytes *b, int field, enum pp_wire wire)
{
    pp_bytes_varint(b, (uint64_t)field << 3 | wire);
}

void pp_bytes_int(struct pp_bytes *b, int field, int64_t value)
{
    pp_bytes_key(b, field, PP_WIRE_VARINT);
    pp_bytes_varint(b, (uint64_t)value);
}

void pp_bytes_float(struct pp_bytes *b, int field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    pp_bytes_key(b, field, PP_WIRE_FIXED32);
    pp_bytes_little(b, bits, 4);
}

void pp_bytes_part(struct pp_bytes *b, int field, const void *data, size_t n)
{
    pp_bytes_key(b, field, PP_WIRE_LENGTH);
    pp_bytes_varint(b, n);
    pp_bytes_put(b, data, n);
}

void pp_bytes_text(struct pp_bytes *b, int field, const char *text)
{
    pp_bytes_part(b, field, text, strlen(text));
}
