/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks that all ranks were started alike. Each has a text of lines "key = value"; ranks exchange
 * digests, and the text itself goes only to a rank whose digest differs, so that it can name the
 * key.
 */
#include "impl.h"

#include <string.h>

#include "ppcli/base/base.h"

#define SHOWN 160 /* most bytes of a value that are shown */
#define ADVICE "start all ranks with the same program, config, options and data"

/* The key and value of the line at `text`. */
struct line {
    const char *key, *value;
    int key_bytes, value_bytes;
};

static struct line read_line(const char *text)
{
    size_t n = strcspn(text, "\n");
    const char *equals = memmem(text, n, " = ", 3);
    struct line l = {.key = text, .key_bytes = (int)(equals ? equals - text : (long)n)};
    l.value = equals ? equals + 3 : text + n;
    l.value_bytes = (int)(text + n - l.value);
    return l;
}

/* Reports the first line of `mine`, this rank's text, that differs from `first`, the text of rank
 * 0. The caller knows that the texts differ. */
static int name_difference(const char *mine, const char *first)
{
    while (*mine && *first) {
        size_t n = strcspn(mine, "\n"), m = strcspn(first, "\n");
        if (n != m || memcmp(mine, first, n) != 0)
            break;
        mine += n + (mine[n] == '\n');
        first += m + (first[m] == '\n');
    }
    struct line a = read_line(mine), b = read_line(first);
    if (a.key_bytes != b.key_bytes || memcmp(a.key, b.key, (size_t)a.key_bytes) != 0)
        return pp_fail(PP_ECONFIG, "it has '%.*s' where rank 0 has '%.*s'; " ADVICE,
                       (int)strcspn(mine, "\n"), mine, (int)strcspn(first, "\n"), first);
    return pp_fail(
        PP_ECONFIG, "%.*s is '%.*s%s' here, but '%.*s%s' on rank 0; " ADVICE, a.key_bytes, a.key,
        a.value_bytes < SHOWN ? a.value_bytes : SHOWN, a.value, a.value_bytes > SHOWN ? "..." : "",
        b.value_bytes < SHOWN ? b.value_bytes : SHOWN, b.value, b.value_bytes > SHOWN ? "..." : "");
}

/* Pairwise with rank 0. Receives the text of rank 0 and reports how this rank's text differs from
 * it. */
static int receive_and_compare(struct pp_transport *tp, const char *text)
{
    uint64_t bytes = 0;
    PP_TRY(pp_transport_recv(tp, 0, &bytes, sizeof(bytes)));
    PP_TAKE(char, first, bytes + 1);
    PP_TRY(pp_transport_recv(tp, 0, first, bytes));
    return name_difference(text, first);
}

int pp_transport_same(struct pp_transport *tp, int rc, const char *text)
{
    PP_TRY(pp_transport_agree(tp, rc));
    struct pp_sha256 s;
    uint8_t mine[PP_SHA256_BYTES];
    uint64_t bytes = strlen(text);
    PP_OWN_MEMORY uint8_t(*all)[PP_SHA256_BYTES] = pp_alloc((size_t)tp->size, sizeof(*all));
    PP_TRY(pp_transport_agree(tp, all ? 0 : PP_ERESOURCE));
    pp_assert(all != NULL); /* else agree() would have failed */
    pp_sha256_init(&s);
    pp_sha256_update(&s, text, bytes);
    pp_sha256_final(&s, mine);
    PP_TRY(pp_transport_allgather(tp, mine, sizeof(mine), all));
    bool same = true;
    for (int r = 1; r < tp->size; r++) {
        bool differs = memcmp(all[r], all[0], sizeof(mine)) != 0;
        same = same && !differs;
        if (differs && tp->rank == 0) {
            PP_TRY(pp_transport_send(tp, r, &bytes, sizeof(bytes)));
            PP_TRY(pp_transport_send(tp, r, text, bytes));
        } else if (differs && tp->rank == r) {
            rc = receive_and_compare(tp, text);
        }
    }
    return same ? 0 : pp_transport_agree(tp, rc);
}
