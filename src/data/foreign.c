/* SPDX-License-Identifier: Apache-2.0 */
/* Recognizes files that cannot be used as data by their first bytes: what each is, and what to
 * do. */
#include <string.h>

#include "ops.h"

struct kind {
    const char *begins;
    size_t n;
    unsigned where; /* enum pp_foreign */
    const char *what, *way_out;
};

#define BEGINS(text) text, sizeof(text) - 1
#define PICKLE "a Python pickle, which is a program and is not run", SAVE_NPY
#define SAVE_NPY                                                                                   \
    "load it in Python, save samples and labels with numpy.save(), and use data.dataset = npy"
#define SAVE_CSV "save the table as CSV"
#define PICTURES                                                                                   \
    "put the pictures of each class into a folder of its own and use data.dataset = images"
#define UNPACK "unpack it first"

static const struct kind kinds[] = {
    {BEGINS("version https://git-lfs"), PP_FOREIGN_ANY, "a Git LFS pointer instead of the file",
     "run `git lfs pull` in its repository"},
    {BEGINS("\x80\2}"), PP_FOREIGN_DATA, PICKLE},
    {BEGINS("\x80\2]"), PP_FOREIGN_DATA, PICKLE},
    {BEGINS("\x80\2("), PP_FOREIGN_DATA, PICKLE},
    {BEGINS("\x80\2\143"), PP_FOREIGN_DATA, PICKLE}, /* c */
    {BEGINS("\x80\3}"), PP_FOREIGN_DATA, PICKLE},
    {BEGINS("\x80\3]"), PP_FOREIGN_DATA, PICKLE},
    {BEGINS("\x80\3("), PP_FOREIGN_DATA, PICKLE},
    {BEGINS("\x80\3\143"), PP_FOREIGN_DATA, PICKLE},
    {BEGINS("\x80\4\x95"), PP_FOREIGN_DATA, PICKLE},
    {BEGINS("\x80\5\x95"), PP_FOREIGN_DATA, PICKLE},
    {BEGINS("PK\3\4"), PP_FOREIGN_DATA, "a zip archive (an npz? an xlsx? of torch.save()?)",
     "name an npz as FILE.npz:ARRAY, or save each array with numpy.save(), or the table as CSV"},
    {BEGINS("\x89HDF\r\n"), PP_FOREIGN_DATA, "an HDF5 file", SAVE_NPY},
    {BEGINS("PAR1"), PP_FOREIGN_DATA, "a Parquet file", SAVE_CSV},
    {BEGINS("ARROW1"), PP_FOREIGN_DATA, "an Arrow file", SAVE_CSV},
    {BEGINS("SQLite format 3"), PP_FOREIGN_DATA, "an SQLite database", SAVE_CSV},
    {BEGINS("\xd0\xcf\x11\xe0\xa1\xb1"), PP_FOREIGN_DATA, "an old Office file (xls?)", SAVE_CSV},
    {BEGINS("\x89PNG\r\n"), PP_FOREIGN_DATA, "a PNG picture", PICTURES},
    {BEGINS("\xff\xd8\xff"), PP_FOREIGN_DATA, "a JPEG picture", PICTURES},
    {BEGINS("%PDF-"), PP_FOREIGN_DATA, "a PDF file", "save its text as UTF-8"},
    {BEGINS("BZh9"), PP_FOREIGN_DATA, "a bzip2 file", UNPACK},
    {BEGINS("\xfd\067zXZ"), PP_FOREIGN_DATA, "an xz file", UNPACK},
    {BEGINS("\x28\xb5\x2f\xfd"), PP_FOREIGN_DATA, "a zstd file", UNPACK},
    {BEGINS("GGUF"), PP_FOREIGN_DATA, "a GGUF file, which holds a model", "name a file of data"},
    {BEGINS("\xff\xfe"), PP_FOREIGN_TEXT, "in UTF-16", "save it as UTF-8"},
    {BEGINS("\xfe\xff"), PP_FOREIGN_TEXT, "in UTF-16", "save it as UTF-8"},
    {BEGINS("\x93NUMPY"), PP_FOREIGN_NUMBERS, "a NumPy file (.npy)",
     "write plain numbers: numpy.load(...).astype('uint16').tofile(...)"},
    {BEGINS("\x1f\x8b\x08\0"), PP_FOREIGN_NUMBERS, "a gzip file", UNPACK},
    {BEGINS("\x1f\x8b\x08\x08"), PP_FOREIGN_NUMBERS, "a gzip file", UNPACK},
};

int pp_data_foreign(const char *path, const void *head, size_t n, unsigned where)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        const struct kind *k = &kinds[i];
        if (k->where & where && n >= k->n && memcmp(head, k->begins, k->n) == 0)
            return pp_fail(PP_EFORMAT, "%s: is %s; %s", path, k->what, k->way_out);
    }
    return 0;
}
