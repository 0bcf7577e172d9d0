/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fuzz target without a fuzzer: every file of the corpus once, and MUTATIONS changes of each
 * that follow from the seed alone. A finding ends the process, which meson counts as a failure.
 *     fuzz_NAME-replay MUTATIONS FILE-OR-FOLDER...
 */
#include <dirent.h>
#include <sys/stat.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"
#include "fuzz.h"

#define BYTES_MAX (1 << 20)

static uint8_t text[BYTES_MAX], changed[BYTES_MAX];
static long files, runs;

/* Random numbers that follow from where they started. */
struct source {
    uint64_t stream, index;
};

static uint32_t below(struct source *s, size_t n)
{
    return (uint32_t)((pp_rng_u32(1, s->stream, s->index++) * (uint64_t)n) >> 32);
}

/* Flip a bit, set a byte, cut the end, drop or double a piece; 1 to 4 of these. */
static size_t mutate(struct source *s, const uint8_t *from, size_t n, uint8_t *to)
{
    memcpy(to, from, n);
    for (uint32_t left = 1 + below(s, 4); left > 0 && n > 0; left--) {
        size_t at = below(s, n);
        size_t piece = 1 + below(s, n - at < 16 ? n - at : 16);
        switch (below(s, 5)) {
        case 0:
            to[at] ^= (uint8_t)(1u << below(s, 8));
            break;
        case 1:
            to[at] = (uint8_t)below(s, 256);
            break;
        case 2:
            n = at;
            break;
        case 3:
            memmove(to + at, to + at + piece, n - at - piece);
            n -= piece;
            break;
        default:
            if (n + piece <= BYTES_MAX) {
                memmove(to + at + piece, to + at, n - at);
                n += piece;
            }
        }
    }
    return n;
}

static void one_file(const char *path, long mutations)
{
    FILE *f = fopen(path, "rb");
    pp_assert(f != NULL);
    size_t n = fread(text, 1, sizeof(text), f);
    fclose(f);
    /* In a block of its own size, so that reading behind its end is seen. */
    uint8_t *exact = malloc(n ? n : 1);
    pp_assert(exact != NULL);
    memcpy(exact, text, n);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    files++;
    for (long k = 0; k < mutations; k++, runs++) {
        struct source s = {pp_rng_stream("fuzz", (uint64_t)k), 0};
        LLVMFuzzerTestOneInput(changed, mutate(&s, text, n, changed));
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s MUTATIONS FILE-OR-FOLDER...\n", argv[0]);
        return 64;
    }
    long mutations = strtol(argv[1], NULL, 10);
    for (int i = 2; i < argc; i++) {
        struct stat st;
        pp_assert(stat(argv[i], &st) == 0);
        if (!S_ISDIR(st.st_mode)) {
            one_file(argv[i], mutations);
            continue;
        }
        DIR *dir = opendir(argv[i]);
        pp_assert(dir != NULL);
        for (struct dirent *e; (e = readdir(dir));) {
            char path[PP_PATH_MAX];
            snprintf(path, sizeof(path), "%s/%s", argv[i], e->d_name);
            if (stat(path, &st) == 0 && S_ISREG(st.st_mode))
                one_file(path, mutations);
        }
        closedir(dir);
    }
    pp_assert(files > 0);
    printf("ok 1 - %ld files and %ld changes of them\n1..1\n", files, runs);
    return 0;
}
