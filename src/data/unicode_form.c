/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts text to forms of Unicode with libunistring, which libcurl brings to nearly every
 * machine. It is loaded when a text needs it, which few do: text below U+0300 is already composed
 * (NFC).
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "tokenizer.h"

typedef uint8_t *normalize_fn(const void *form, const uint8_t *text, size_t n, uint8_t *buffer,
                              size_t *out_n);

bool unicode_form_is(const char *form)
{
    return strcmp(form, "NFC") == 0 || strcmp(form, "NFKC") == 0 || strcmp(form, "NFD") == 0 ||
           strcmp(form, "NFKD") == 0;
}

/* Returns whether the text certainly has the Unicode form already: for NFC if all characters are
 * below U+0300, which begin with bytes below 0xcc, for other forms if all are ASCII. */
static bool has_form(const char *form, const char *text, size_t bytes)
{
    unsigned char limit = strcmp(form, "NFC") == 0 ? 0xcc : 0x80;
    size_t i = 0;
    while (i < bytes && (unsigned char)text[i] < limit)
        i++;
    return i == bytes;
}

int unicode_form(const char *label, const char *form, const char *text, size_t bytes, char **out,
                 size_t *out_bytes)
{
    static const char *const names[] = {"libunistring.so.5", "libunistring.so.2",
                                        "libunistring.so"};
    char symbol[16] = "uninorm_";
    normalize_fn *normalize = NULL;
    void *library = NULL;
    *out = NULL;
    if (has_form(form, text, bytes))
        return 0;
    for (int i = 0; i < 3 && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0, n = strlen(symbol); i <= strlen(form) && i < 7; i++)
        symbol[n + i] = form[i] ? (char)(form[i] | 0x20) : '\0';
    const void *which = library ? dlsym(library, symbol) : NULL;
    *(void **)&normalize = which ? dlsym(library, "u8_normalize") : NULL;
    if (!normalize) {
        return pp_fail(PP_ERESOURCE,
                       "%s: this vocabulary needs text in Unicode's form %s, for which "
                       "libunistring is needed (Debian: libunistring5 or libunistring2)",
                       label, form);
    }
    uint8_t *made = normalize(which, (const uint8_t *)text, bytes, NULL, out_bytes);
    *out = made ? pp_alloc(*out_bytes + 1, 1) : NULL;
    if (*out)
        memcpy(*out, made, *out_bytes);
    free(made);
    return *out ? 0 : pp_fail(PP_ERESOURCE, "%s: out of memory", label);
}
