/* SPDX-License-Identifier: Apache-2.0 */
/* See train_run.h. The run is the one of `ppcli train`, without the process around it. */
#include "train_run.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

#include "command.h"
#include "ppcli/conf/config.h"
#include "ppcli/base/base.h"
#include "ppcli/plan/search.h"
#include "ppcli/train/train.h"

#define SETTINGS_MAX 64

static char *read_text(const char *dir, const char *name)
{
    char path[PP_PATH_MAX];
    CHECK_OK(pp_path_format(path, "%s/%s", dir, name));
    FILE *f = fopen(path, "r");
    if (!f)
        return NULL;
    char *text = NULL;
    size_t bytes = 0;
    assert_true(getdelim(&text, &bytes, '\0', f) >= 0);
    fclose(f);
    return text;
}

/* The number behind "key": after `from`; missing keys leave *out as it is. */
static const char *number(const char *from, const char *key, double *out)
{
    char quoted[64];
    snprintf(quoted, sizeof(quoted), "\"%s\":", key);
    const char *at = strstr(from, quoted);
    if (!at)
        return NULL;
    *out = strtod(at + strlen(quoted), NULL);
    return at;
}

static void read_summary(const char *dir, struct outcome *out)
{
    PP_OWN_MEMORY char *text = read_text(dir, "summary.json");
    assert_non_null(text);
    number(text, "test_accuracy", &out->test_accuracy);
    number(text, "test_r2", &out->test_accuracy); /* of a loss of numbers */
    number(text, "test_loss", &out->test_loss);
    number(text, "train_loss", &out->train_loss);
    number(text, "train_accuracy", &out->train_accuracy);
    number(text, "epochs", &out->epochs);
    number(text, "steps", &out->steps);
    number(text, "samples", &out->samples);
    number(text, "bubble_ideal", &out->bubble_ideal);
    number(text, "bubble_measured", &out->bubble_measured);
    const char *sha = strstr(text, "\"weights_sha256\": \"");
    assert_non_null(sha);
    memcpy(out->sha, sha + strlen("\"weights_sha256\": \""), 64);
    out->sha[64] = '\0';
}

static void read_steps(const char *dir, struct outcome *out)
{
    out->n_steps = 0;
    PP_OWN_MEMORY char *text = read_text(dir, "metrics.jsonl");
    assert_non_null(text);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (strstr(line, "\"type\":\"step\"")) {
            assert_true(out->n_steps < OUTCOME_STEPS_MAX);
            assert_non_null(number(line, "loss", &out->step_loss[out->n_steps++]));
        }
    }
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    return remove(path);
}

void remove_folder(const char *dir)
{
    nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

void read_outcome(const char *dir, struct outcome *out)
{
    read_summary(dir, out);
    read_steps(dir, out);
}

void train_in(const char *dir, const char *resume, const char *const *settings, struct outcome *out)
{
    char keys[SETTINGS_MAX][PP_NAME_MAX];
    struct pp_setting list[SETTINGS_MAX];
    int n = 0;
    list[n++] = (struct pp_setting){"data.dataset", "synthetic", "test"};
    list[n++] = (struct pp_setting){"run.dir", dir, "test"};
    for (int i = 0; settings[i]; i++) {
        const char *eq = strchr(settings[i], '=');
        assert_non_null(eq);
        assert_true(n < SETTINGS_MAX);
        snprintf(keys[n], sizeof(keys[n]), "%.*s", (int)(eq - settings[i]), settings[i]);
        list[n] = (struct pp_setting){keys[n], eq + 1, "test"};
        n++;
    }
    memset(out, 0, sizeof(*out));
    pp_log_set_level(PP_LOG_QUIET);
    FILE *sink = fopen("/dev/null", "w");
    assert_non_null(sink);
    struct pp_config *cfg = NULL;
    out->rc = pp_config_load(NULL, list, n, pp_cli_names(), &cfg);
    if (out->rc == 0) {
        struct pp_train_options options = {
            .name = "test", .out = sink, .quiet = true, .resume = resume};
        bool speaks;
        out->rc = pp_choose(cfg, PP_RUN_REAL, NULL);
        out->rc = out->rc == 0 ? pp_train(cfg, &options, &speaks) : out->rc;
    }
    pp_config_destroy(&cfg);
    fclose(sink);
    if (out->rc == 0)
        read_outcome(dir, out);
}

void train_run(const char *const *settings, struct outcome *out)
{
    char dir[] = "train-run-XXXXXX";
    assert_non_null(mkdtemp(dir));
    train_in(dir, NULL, settings, out);
    remove_folder(dir);
}

void train_ok(const char *const *settings, struct outcome *out)
{
    train_run(settings, out);
    if (out->rc < 0)
        fail_msg("%s", pp_error_get()->text);
}
