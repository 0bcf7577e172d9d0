/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli verify: is every byte of these checkpoints what was written? */
#include <inttypes.h>

#include "ppcli/ckpt/checkpoint.h"
#include "ppcli/base/base.h"
#include "command.h"

#define PATHS_MAX 1024

/* The error that main() reports at the end; earlier errors were printed at once. */
struct verdict {
    bool values; /* check the values too */
    struct pp_error worst;
};

/* Keeps the worst error, which decides the exit code, and prints the other one. Damage counts as a
 * failed check (PP_ECHECK), not as bad input, and is the worst. */
static void note_error(struct verdict *v, const char *path, int rc)
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

static void verify_one(struct verdict *v, const char *path)
{
    PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = NULL;
    char size[PP_COUNT_TEXT], shown[PP_PATH_MAX];
    int rc = pp_ckpt_open(path, PP_CKPT_VERIFY, &ck);
    if (rc < 0) {
        note_error(v, path, rc);
        return;
    }
    uint64_t looked = 0;
    int left = 0;
    rc = v->values ? pp_ckpt_check_values(ck, &looked, &left) : 0;
    if (rc < 0) {
        note_error(v, path, rc);
        return;
    }
    const struct pp_ckpt_state *s = pp_ckpt_state(ck);
    int n = ck->n_tensors, unchecked = n - ck->checked;
    printf("%s: good: ", pp_text_shown(ck->path, shown, sizeof(shown)));
    if (s)
        printf("step %" PRId64 ", ", s->step);
    printf("%d tensor%s, %s", n, pp_plural(n), pp_text_size(ck->bytes, size));
    if (unchecked > 0)
        printf(", %d without a checksum", unchecked);
    if (v->values)
        printf("; bytes and values: %" PRIu64 ", all of them finite", looked);
    if (left > 0)
        printf("; not looked at: values of %d tensor%s of types that ppcli does not read", left,
               pp_plural(left));
    if (v->values)
        printf("\n");
    else
        printf("; bytes only: --values looks for NaN and infinity too\n");
}

/* Verifies all checkpoints of a folder, the oldest first. If the path is not a folder of
 * checkpoints, verifies what it names. */
static void verify_path(struct verdict *v, const char *path)
{
    PP_OWN_MEMORY int64_t *steps = NULL;
    int n = 0;
    int rc = pp_ckpt_list(path, &steps, &n);
    if (rc < 0) {
        note_error(v, path, rc);
        return;
    }
    for (int i = n - 1; i >= 0; i--) {
        char one[PP_PATH_MAX];
        rc = pp_ckpt_step_path(path, steps[i], one);
        if (rc < 0)
            note_error(v, path, rc);
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
        verify_path(&v, words[i]);
    return v.worst.code == 0 ? 0 : pp_error_adopt(&v.worst);
}
