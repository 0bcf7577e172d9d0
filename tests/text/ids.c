/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ids TOKENIZER < strings: each string is a number of 4 bytes and so many bytes; so is what comes out,
 * the count of its ids and the ids. It fails where the tokens' bytes are not the string (but for the
 * blank that a vocabulary puts first) unless there is a second word.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "ppcli/data/tokenizer.h"

static void compare(const struct pp_tokenizer *t, const struct pp_ids *ids, const char *text,
                    uint32_t n, int number)
{
    char *back = calloc(1, 1);
    size_t used = 0;
    for (size_t i = 0; i < ids->n; i++) {
        const struct pp_token *token = &t->tokens[ids->at[i]];
        back = realloc(back, used + token->n + 1);
        memcpy(back + used, token->bytes, token->n);
        used += token->n;
    }
    size_t skip = t->opens_with_space && used > 0 && back[0] == ' ' && used == n + 1;
    if (used - skip != n || memcmp(back + skip, text, n) != 0) {
        fprintf(stderr, "string %d does not come back\n", number);
        exit(1);
    }
    free(back);
}

int main(int argc, char **argv)
{
    struct pp_tokenizer *t = NULL;
    int rc = argc < 2 ? pp_fail(PP_EUSAGE, "name a tokenizer") : pp_tokenizer_open(argv[1], &t);
    struct pp_ids ids = {0};
    uint32_t n;
    for (int i = 0; rc == 0 && fread(&n, sizeof(n), 1, stdin) == 1; i++) {
        char *text = calloc((size_t)n + 1, 1);
        ids.n = 0;
        if (fread(text, 1, n, stdin) != n)
            rc = pp_fail(PP_EIO, "string %d is cut", i);
        rc = rc < 0 ? rc : pp_tokenizer_encode(t, "string", text, n, &ids);
        if (rc == 0 && argc == 2)
            compare(t, &ids, text, n, i);
        uint32_t count = (uint32_t)ids.n;
        fwrite(&count, sizeof(count), 1, stdout);
        fwrite(ids.at, sizeof(*ids.at), ids.n, stdout);
        free(text);
    }
    if (rc < 0)
        fprintf(stderr, "%s\n", pp_error_get()->text);
    pp_free(ids.at);
    pp_tokenizer_destroy(&t);
    return rc < 0;
}
