/* SPDX-License-Identifier: Apache-2.0 */
/* See ppcli/base/files.h: a digest that tells whether two processes see the same file or folder. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"

#define BLOCK 65536
#define WHOLE ((uint64_t)16 << 20) /* bytes hashed at the start of a larger file */
#define BLOCKS 256                 /* blocks hashed evenly between there and its end */

/* Adds `bytes` bytes of the file, from offset `at` on, to the hash. block[BLOCK] is the buffer. */
static int hash_piece(int fd, const char *path, uint64_t at, uint64_t bytes, char *block,
                      struct pp_sha256 *s)
{
    for (uint64_t done = 0, n; done < bytes; done += n) {
        n = bytes - done < BLOCK ? bytes - done : BLOCK;
        PP_TRY(pp_fd_read_at(fd, path, at + done, block, n));
        pp_sha256_update(s, block, n);
    }
    return 0;
}

static int hash_file(const char *path, struct pp_sha256 *s)
{
    PP_OWN(pp_close_at) int fd = -1;
    uint64_t bytes;
    PP_TAKE(char, block, BLOCK);
    PP_TRY(pp_open_regular(path, &fd, &bytes));
    pp_sha256_update(s, &bytes, sizeof(bytes));
    if (bytes <= 2 * WHOLE)
        return hash_piece(fd, path, 0, bytes, block, s);
    PP_TRY(hash_piece(fd, path, 0, WHOLE, block, s));
    for (uint64_t i = 1; i <= BLOCKS; i++)
        PP_TRY(hash_piece(fd, path, WHOLE + (bytes - WHOLE - BLOCK) / BLOCKS * i, BLOCK, block, s));
    return 0;
}

int pp_path_digest(const char *path, char out[PP_SHA256_HEX])
{
    struct pp_sha256 s;
    struct dirent **names = NULL;
    struct stat st;
    uint8_t sum[PP_SHA256_BYTES];
    char inside[PP_PATH_MAX];
    pp_sha256_init(&s);
    int n = scandir(path, &names, NULL, alphasort);
    int rc = n < 0 ? hash_file(path, &s) : 0;
    for (int i = 0; i < n; i++) {
        if (rc == 0)
            rc = pp_path_format(inside, "%s/%s", path, names[i]->d_name);
        if (rc == 0 && stat(inside, &st) == 0 && S_ISREG(st.st_mode)) {
            pp_sha256_update(&s, names[i]->d_name, strlen(names[i]->d_name));
            rc = hash_file(inside, &s);
        }
        free(names[i]);
    }
    free(names);
    pp_sha256_final(&s, sum);
    pp_sha256_hex(sum, out);
    return rc;
}
