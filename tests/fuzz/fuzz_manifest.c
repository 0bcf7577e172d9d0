/* SPDX-License-Identifier: Apache-2.0 */
/* MANIFEST: there is one way to write what is read. Its last line, a digest, is put right first,
 * else nothing would get past it; a text whose first byte is "!" goes in as it is. */
#include "fuzz.h"
#include "ppcli/base/base.h"
#include "../../src/ckpt/impl.h"

static void check(const char *text, size_t size)
{
    struct manifest m = {0};
    char *again = NULL;
    size_t bytes = 0;
    int rc = manifest_parse("MANIFEST", text, size, &m);
    if (rc < 0) {
        fuzz_refused(rc);
        return;
    }
    pp_assert(manifest_print(&m, &again, &bytes) == 0);
    pp_assert(bytes == size && memcmp(text, again, bytes) == 0);
    free(again);
    manifest_fini(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && data[0] == '!') {
        check((const char *)data + 1, size - 1);
        return 0;
    }
    const uint8_t *end = memmem(data, size, "end ", 4);
    size_t lines = end ? (size_t)(end - data) : size;
    struct pp_sha256 sha;
    uint8_t digest[PP_SHA256_BYTES];
    char hex[PP_SHA256_HEX];
    pp_sha256_init(&sha);
    pp_sha256_update(&sha, data, lines);
    pp_sha256_final(&sha, digest);
    pp_sha256_hex(digest, hex);
    size_t room = lines + sizeof("end \n") + sizeof(hex);
    char *text = malloc(room);
    pp_assert(text != NULL);
    memcpy(text, data, lines);
    int n = snprintf(text + lines, room - lines, "end %s\n", hex);
    check(text, lines + (size_t)n);
    free(text);
    return 0;
}
