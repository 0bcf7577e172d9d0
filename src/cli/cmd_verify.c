/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli verify: is every byte of these checkpoints what was written? */
#include <inttypes.h>
#include <math.h>

#include "ppcli/checkpoint.h"
#include "ppcli/mem.h"
#include "ppcli/text.h"
#include "command.h"

#define PATHS_MAX 1024

/* What is told at the end, in main's words; what came before it was told at once. */
struct verdict {
    bool values; /* look at them too */
    struct pp_error worst;
};

/* Damage is a verdict, not a bad input, and decides the exit code. */
static void note(struct verdict *v, const char *path, int rc)
{
    if (rc == PP_EFORMAT && pp_ckpt_claims(path)) {
        struct pp_error e = *pp_error_get();
        (void)pp_fail(PP_ECHECK, "%s", e.text);
    }
    const struct pp_error *e = pp_error_get();
    bool worse = v->worst.code == 0 || (e->code == PP_ECHECK && v->worst.code != PP_ECHECK);
    if (v->worst.code != 0)
        fprintf(stderr, "ppcli: error: %s\n", worse ? v->worst.text : e->text);
    if (worse)
        v->worst = *e;
}

/* ---- values */

struct values {
    uint64_t looked, bad, first; /* of a tensor: looked at; not finite, and the first of them */
    bool is_nan;                 /* that one */
};

static int look_at_values(void *ctx, uint64_t first, const float *values, size_t n)
{
    struct values *v = ctx;
    for (size_t i = 0; i < n; i++) {
        if (isfinite(values[i]))
            continue;
        v->first = v->bad == 0 ? first + i : v->first;
        v->is_nan = v->bad == 0 ? isnan(values[i]) : v->is_nan;
        v->bad++;
    }
    v->looked += n;
    return 0;
}

/* All that are floats. *out_left: tensors of floats that are not read, such as F8_E4M3. */
static int check_values(const struct pp_ckpt *ck, uint64_t *out_looked, int *out_left)
{
    char shape[PP_ST_SHAPE_BYTES], shown[PP_PATH_MAX];
    *out_looked = 0;
    for (int i = 0; i < ck->n_tensors; i++) {
        struct values v = {.looked = 0};
        const struct pp_st_tensor *t = pp_ckpt_tensor(ck, i, NULL);
        bool floats = pp_ckpt_is_readable(t) && t->dtype != PP_ST_I64;
        *out_left += t->dtype >= PP_ST_F4 && t->elements > 0;
        if (!floats || t->elements == 0)
            continue;
        PP_TRY(pp_ckpt_read(ck, pp_ckpt_name(ck, t), t->n_dims, t->dims, look_at_values, &v));
        if (v.bad > 0) {
            return pp_fail(PP_ECHECK,
                           "%s: tensor %s %s: value %" PRIu64 " is %s, and %" PRIu64 " of %" PRIu64
                           " are not finite; its bytes are as they were written",
                           pp_text_shown(ck->path, shown, sizeof(shown)), t->name,
                           pp_st_shape(t->n_dims, t->dims, shape), v.first,
                           v.is_nan ? "NaN" : "infinite", v.bad, v.looked);
        }
        *out_looked += v.looked;
    }
    return 0;
}

/* ---- */

static void verify_one(struct verdict *v, const char *path)
{
    PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = NULL;
    char size[PP_COUNT_TEXT], shown[PP_PATH_MAX];
    int rc = pp_ckpt_open(path, PP_CKPT_VERIFY, &ck);
    if (rc < 0) {
        note(v, path, rc);
        return;
    }
    uint64_t looked = 0;
    int left = 0;
    rc = v->values ? check_values(ck, &looked, &left) : 0;
    if (rc < 0) {
        note(v, path, rc);
        return;
    }
    const struct pp_ckpt_state *s = pp_ckpt_state(ck);
    int n = ck->n_tensors, unchecked = n - ck->checked;
    printf("%s: good: ", pp_text_shown(ck->path, shown, sizeof(shown)));
    if (s)
        printf("step %" PRId64 ", ", s->step);
    printf("%d tensor%s, %s", n, n == 1 ? "" : "s", pp_text_size(ck->bytes, size));
    if (unchecked > 0)
        printf(", %d without a checksum", unchecked);
    if (v->values)
        printf("; bytes and values: %" PRIu64 ", all of them finite", looked);
    if (left > 0)
        printf("; not looked at: values of %d tensor%s of types that ppcli does not read", left,
               left == 1 ? "" : "s");
    if (v->values)
        printf("\n");
    else
        printf("; bytes only: --values looks for NaN and infinity too\n");
}

/* All checkpoints of a folder of them, the oldest first; else the path itself. */
static void verify(struct verdict *v, const char *path)
{
    PP_OWN_MEMORY int64_t *steps = NULL;
    int n = 0;
    int rc = pp_ckpt_list(path, &steps, &n);
    if (rc < 0) {
        note(v, path, rc);
        return;
    }
    for (int i = n - 1; i >= 0; i--) {
        char one[PP_PATH_MAX];
        rc = pp_ckpt_step_path(path, steps[i], one);
        if (rc < 0)
            note(v, path, rc);
        else
            verify_one(v, one);
    }
    if (n == 0)
        verify_one(v, path);
}

int cmd_verify(int argc, char **argv)
{
    const char *words[PATHS_MAX];
    struct verdict v = {.worst = {.code = 0}};
    const struct pp_cli_option options[] = {
        {"values", 0, PP_CLI_FLAG, &v.values, NULL, "look at the values too: are all finite?"},
        {0},
    };
    PP_TRY(pp_cli_parse(argc, argv, &command_verify, options, NULL, words, PATHS_MAX));
    if (!words[0]) {
        return pp_fail(PP_EUSAGE,
                       "name checkpoints: run folders, checkpoint folders or safetensors files");
    }
    for (int i = 0; i < PATHS_MAX && words[i]; i++)
        verify(&v, words[i]);
    return v.worst.code == 0 ? 0 : pp_error_adopt(&v.worst);
}
