/* SPDX-License-Identifier: Apache-2.0 */
/* Hash tables that are used for every piece of a text: open addressing, at most half full. */
#include <string.h>

#include "ppcli/base/base.h"
#include "tokenizer.h"

static uint64_t mix_hash(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}

uint64_t text_hash(const char *text, size_t n)
{
    uint64_t h = n, word;
    for (; n >= sizeof(word); n -= sizeof(word), text += sizeof(word)) {
        memcpy(&word, text, sizeof(word));
        h = mix_hash(h, word);
    }
    word = 0;
    memcpy(&word, text, n);
    return mix_hash(h, word);
}

static size_t mask_for(size_t n)
{
    size_t capacity = 16;
    while (capacity < 2 * n)
        capacity *= 2;
    return capacity - 1;
}

int pair_table_create(size_t n, struct pair_table *out)
{
    struct pair_table t = {.mask = mask_for(n)};
    PP_ALLOC(t.slots, t.mask + 1);
    *out = t;
    return 0;
}

struct pair_slot *pair_table_find(const struct pair_table *t, uint32_t a, uint32_t b)
{
    uint64_t key = (uint64_t)a << 32 | b;
    size_t i = mix_hash(0, key) & t->mask;
    while (t->slots[i].place > 0 && t->slots[i].key != key)
        i = (i + 1) & t->mask;
    return &t->slots[i];
}

int text_table_create(size_t n, struct text_table *out)
{
    struct text_table t = {.mask = mask_for(n)};
    PP_ALLOC(t.slots, t.mask + 1);
    *out = t;
    return 0;
}

struct text_slot *text_table_find(const struct text_table *t, const char *text, size_t n)
{
    size_t i = text_hash(text, n) & t->mask;
    while (t->slots[i].text && !(t->slots[i].n == n && memcmp(t->slots[i].text, text, n) == 0))
        i = (i + 1) & t->mask;
    return &t->slots[i];
}
