/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of channels that the cases use, and what their messages contain. */
#include "conform.h"

#include <stdlib.h>
#include <string.h>

#include "ppcli/dev/backend.h"
#include "ppcli/base/base.h"

static const int slots_of[KINDS] = {
    [SMALL] = 3, [BIG] = 1, [WRONG_TAG] = 1, [WRONG_SIZE] = 1, [UNUSED] = 2};
static const size_t bytes_of[KINDS] = {
    [SMALL] = 4096, [BIG] = 1 << 20, [WRONG_TAG] = 64, [WRONG_SIZE] = 128, [UNUSED] = 64};

void conform_fill(int channel, int message, size_t bytes, unsigned char *out)
{
    uint64_t x = 0x9e3779b97f4a7c15u * (uint64_t)(channel * 65537 + message + 1);
    for (size_t i = 0; i < bytes; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        out[i] = (unsigned char)(x >> 56);
    }
}

int conform_match(int channel, int message, size_t bytes, const unsigned char *found)
{
    uint64_t x = 0x9e3779b97f4a7c15u * (uint64_t)(channel * 65537 + message + 1);
    for (size_t i = 0; i < bytes; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        unsigned char expected = (unsigned char)(x >> 56);
        EXPECT(found[i] == expected, "channel %d message %d byte %zu of %zu: expected %u, found %u",
               channel, message, i, bytes, expected, found[i]);
    }
    return 0;
}

float conform_addend(int r, size_t i)
{
    uint32_t u = pp_rng_u32(7, (uint64_t)r, i);
    /* Magnitudes from 2^-12 to 2^11, both signs. */
    float scale = (float)(1u << (u >> 27) % 24) / 4096.0f;
    return ((float)(u & 0xffffff) / 16777216.0f - 0.5f) * scale;
}

struct ring {
    struct pp_channel_spec specs[KINDS * DIRECTIONS * 2];
    void *memory[KINDS * DIRECTIONS * 2];
    int n;
};

/* Fill in this rank's specs in ascending id order; NULL memory only counts bytes. */
static size_t lay_out(struct conform *c, struct ring *ring, char *memory)
{
    const struct pp_transport *tp = c->tp;
    size_t used = 0;
    ring->n = 0;
    for (int kind = 0; kind < KINDS && tp->size > 1; kind++) {
        for (int d = 0; d < DIRECTIONS; d++) {
            for (int from = 0; from < tp->size; from++) {
                int to = (from + (d == AHEAD ? 1 : tp->size - 1)) % tp->size;
                if (from != tp->rank && to != tp->rank)
                    continue;
                int side = from == tp->rank ? 0 : 1;
                int i = ring->n++;
                ring->specs[i] = (struct pp_channel_spec){.src = from,
                                                          .dst = to,
                                                          .id = (kind * 2 + d) * tp->size + from,
                                                          .slots = slots_of[kind],
                                                          .bytes = bytes_of[kind]};
                c->ch[kind][d][side] = i;
                c->id[kind][d][side] = ring->specs[i].id;
                ring->memory[i] = NULL;
                if (side == 1 || !tp->caps.shared_slots) {
                    ring->memory[i] = memory ? memory + used : NULL;
                    used += (size_t)slots_of[kind] * bytes_of[kind];
                }
            }
        }
    }
    return used;
}

/* Expect that everybody refuses, with `words` in the text. */
static int refused(struct conform *c, struct ring *ring, const char *words)
{
    int rc = pp_transport_open_channels(c->tp, ring->specs, ring->n, ring->memory);
    const char *text = pp_error_get()->text;
    EXPECT(rc == PP_EINTERNAL, "opening returned %d, expected %d", rc, PP_EINTERNAL);
    EXPECT(strstr(text, words), "the refusal says '%s', expected '%s' in it", text, words);
    return 0;
}

static int wrong_ones_are_refused(struct conform *c, const struct ring *good)
{
    bool odd = c->tp->rank == 1;
    struct ring bad = *good;
    bad.specs[0].slots += odd ? 1 : 0;
    PP_TRY(refused(c, &bad, "slots of"));
    bad = *good;
    bad.n -= odd ? 1 : 0;
    PP_TRY(refused(c, &bad, "does not"));
    bad = *good;
    bad.specs[1].id = odd ? bad.specs[0].id : bad.specs[1].id;
    PP_TRY(refused(c, &bad, "ascending"));
    bad = *good;
    bad.specs[0].bytes += odd ? 8 : 0;
    PP_TRY(refused(c, &bad, "bytes"));
    return 0;
}

int conform_open(struct pp_transport *tp, struct pp_backend *be, struct conform *c)
{
    struct ring ring;
    memset(c, 0, sizeof(*c));
    c->tp = tp;
    c->be = be;
    size_t bytes = lay_out(c, &ring, NULL);
    if (be) {
        void *block = NULL;
        PP_TRY(tp->be ? 0 : pp_transport_bind(tp, be));
        PP_TRY(pp_backend_alloc(be, bytes + PP_ALIGN, &block));
        c->memory = block;
    } else {
        c->memory = aligned_alloc(PP_ALIGN, bytes + PP_ALIGN);
        EXPECT(c->memory, "out of memory");
        memset(c->memory, 0xee, bytes + PP_ALIGN);
    }
    c->bytes = bytes + PP_ALIGN;
    lay_out(c, &ring, c->memory);
    if (tp->size > 1)
        PP_TRY(wrong_ones_are_refused(c, &ring));
    return pp_transport_open_channels(tp, ring.specs, ring.n, ring.memory);
}

void conform_close(struct conform *c)
{
    if (c->be)
        pp_backend_free(c->be, c->memory, c->bytes);
    else
        free(c->memory);
}

/* ---- memory of a device */

struct conform_note {
    struct conform_note *next;
    enum {
        HELD, /* a source of a copy */
        MESSAGE,
        FLOATS,
        TAKEN /* memory of the device */
    } kind;
    int channel, message;
    size_t bytes;
    const char *what;
    void *host, *want, *device;
};

static int note(struct conform *c, struct conform_note n)
{
    struct conform_note *kept = malloc(sizeof(*kept));
    EXPECT(kept, "out of memory");
    *kept = n;
    if (n.kind != TAKEN && !n.host) {
        kept->host = malloc(n.bytes + 1);
        EXPECT(kept->host, "out of memory");
    }
    kept->next = c->notes;
    c->notes = kept;
    return 0;
}

int conform_write(struct conform *c, int channel, int message, size_t bytes, void *to)
{
    if (!c->be) {
        conform_fill(channel, message, bytes, to);
        return 0;
    }
    PP_TRY(note(c, (struct conform_note){.kind = HELD, .bytes = bytes}));
    conform_fill(channel, message, bytes, c->notes->host);
    return pp_backend_upload(c->be, to, c->notes->host, bytes);
}

int conform_expect(struct conform *c, int channel, int message, size_t bytes, const void *from)
{
    if (!c->be)
        return conform_match(channel, message, bytes, from);
    PP_TRY(note(c, (struct conform_note){
                       .kind = MESSAGE, .channel = channel, .message = message, .bytes = bytes}));
    return pp_backend_download(c->be, c->notes->host, from, bytes);
}

int conform_floats(struct conform *c, size_t n, const float *from, float **out)
{
    size_t bytes = n * sizeof(*from);
    if (!c->be) {
        PP_TRY(note(c, (struct conform_note){.kind = HELD, .bytes = bytes}));
        memcpy(c->notes->host, from, bytes);
        *out = c->notes->host;
        return 0;
    }
    void *block = NULL;
    PP_TRY(pp_backend_alloc(c->be, bytes + 1, &block));
    PP_TRY(note(c, (struct conform_note){.kind = TAKEN, .bytes = bytes + 1, .device = block}));
    PP_TRY(note(c, (struct conform_note){.kind = HELD, .bytes = bytes}));
    memcpy(c->notes->host, from, bytes);
    *out = block;
    return pp_backend_upload(c->be, block, c->notes->host, bytes);
}

int conform_expect_floats(struct conform *c, const char *what, size_t n, float *want,
                          const float *from)
{
    size_t bytes = n * sizeof(*want);
    PP_TRY(
        note(c, (struct conform_note){.kind = FLOATS, .bytes = bytes, .what = what, .want = want}));
    if (c->be)
        return pp_backend_download(c->be, c->notes->host, from, bytes);
    memcpy(c->notes->host, from, bytes);
    return 0;
}

static int compare(const struct conform_note *n)
{
    if (n->kind == MESSAGE)
        return conform_match(n->channel, n->message, n->bytes, n->host);
    const float *want = n->want, *found = n->host;
    for (size_t i = 0; i < n->bytes / sizeof(*want); i++) {
        EXPECT(memcmp(&want[i], &found[i], sizeof(*want)) == 0,
               "%s, element %zu of %zu: expected %a, found %a", n->what, i,
               n->bytes / sizeof(*want), (double)want[i], (double)found[i]);
    }
    return 0;
}

int conform_settle(struct conform *c)
{
    int rc = c->be ? pp_backend_synchronize(c->be) : 0;
    while (c->notes) {
        PP_OWN_MEMORY struct conform_note *n = c->notes;
        if (rc == 0 && (n->kind == MESSAGE || n->kind == FLOATS))
            rc = compare(n);
        if (n->kind == TAKEN)
            pp_backend_free(c->be, n->device, n->bytes);
        free(n->host);
        free(n->want);
        c->notes = n->next;
    }
    return rc;
}
