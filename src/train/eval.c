/* SPDX-License-Identifier: Apache-2.0 */
/* The weights of a checkpoint, judged by the test set: no training, no run folder. */
#include "loop.h"

#include "ppcli/err.h"
#include "ppcli/json.h"
#include "ppcli/text.h"

static void print_text(const struct trainer *tr, const struct epoch_result *e, const char *sha)
{
    FILE *f = tr->spec->options->out;
    char from[PP_PATH_MAX];
    fprintf(f, "test accuracy    %.4f   (loss %.4f, %d samples)\n", e->test_accuracy, e->test_loss,
            tr->run->layout->test_n);
    fprintf(f, "weights_sha256   %s\n", sha);
    fprintf(f, "checkpoint       %s\n", pp_text_shown(tr->begin.from, from, sizeof(from)));
}

static void print_json(const struct trainer *tr, const struct epoch_result *e, const char *sha)
{
    struct pp_json j;
    pp_json_init(&j, tr->spec->options->out, 2);
    pp_json_object(&j, NULL);
    pp_json_int(&j, "schema", 1);
    pp_json_str(&j, "checkpoint", tr->begin.from);
    pp_json_dbl(&j, "test_accuracy", e->test_accuracy);
    pp_json_dbl(&j, "test_loss", e->test_loss);
    pp_json_int(&j, "test_samples", tr->run->layout->test_n);
    pp_json_str(&j, "dataset", tr->run->cfg->data.dataset);
    pp_json_str(&j, "weights_sha256", sha);
    pp_json_end(&j);
}

int loop_evaluate(struct trainer *tr)
{
    struct epoch_result e = {.epoch = 0};
    char sha[65];
    rank_event_end(tr->spec); /* the set-up */
    if (tr->run->layout->test_n == 0) {
        return pp_fail(PP_ECONFIG,
                       "there is nothing to test with: data set '%s' has no test samples here "
                       "(data.test_samples)",
                       tr->run->cfg->data.dataset);
    }
    int rc = loop_test(tr, &e);
    if (rc < 0) {
        tr->spec->failed_alone = !tr->together;
        return rc;
    }
    PP_TRY(pp_exec_weights_sha256(tr->x, sha));
    if (tr->spec->rank == 0) {
        (tr->spec->options->json ? print_json : print_text)(tr, &e, sha);
    }
    return 0;
}
