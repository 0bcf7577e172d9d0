/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors files: the tensors of one that is accepted cover its data exactly, and can be read.
 */
#include "fuzz.h"
#include "../../src/ckpt/safetensors.h"

static struct fuzz_file file = {-1, ""};

static void look(const struct pp_st_file *f, size_t size)
{
    const struct pp_st_header *h = f->header;
    uint64_t at = 0;
    pp_assert(h->data_begin + h->data_bytes == size);
    for (int i = 0; i < h->n_tensors; i++) {
        const struct pp_st_tensor *t = &h->tensors[i];
        unsigned __int128 elements = 1;
        for (int d = 0; d < t->n_dims; d++)
            elements *= (unsigned __int128)t->dims[d];
        pp_assert(t->begin == at && t->end >= t->begin && elements == t->elements);
        pp_assert(elements * (unsigned)pp_st_dtype_bits(t->dtype) ==
                  (unsigned __int128)8 * (t->end - t->begin));
        at = t->end;
        uint8_t last;
        pp_assert(at == t->begin || pp_st_read(f, t, at - t->begin - 1, &last, 1) == 0);
    }
    pp_assert(at == h->data_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pp_st_file *f = NULL;
    struct pp_st_header *h = NULL;
    int rc = pp_st_parse("file", data, size, size, &h);
    int rc_file = pp_st_open(fuzz_file(&file, data, size), &f);
    pp_assert(rc == rc_file);
    if (rc < 0) {
        fuzz_refused(rc);
        return 0;
    }
    look(f, size);
    int checked = 0;
    rc = pp_st_check_data(f, &checked);
    if (rc < 0)
        fuzz_refused(rc);
    pp_st_close(&f);
    pp_st_header_free(&h);
    return 0;
}
