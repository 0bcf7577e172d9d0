/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks that ranks that are processes made the same of equal configs: the same model and plan,
 * from the same files. The paths of the files may differ; their contents are compared only if the
 * paths differ or the ranks are on several hosts.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ppcli/base/base.h"
#include "ppcli/data/dataset.h"
#include "ppcli/pipe/layout.h"
#include "rank.h"
#include "ppcli/comm/transport.h"

#define FILES_MAX 9

/* ---- model and plan */

static void hash_int(struct pp_sha256 *s, int64_t x)
{
    pp_sha256_update(s, &x, sizeof(x));
}

static void hash_model(const struct pp_model *m, struct pp_sha256 *s)
{
    hash_int(s, m->n_nodes);
    for (int i = 0; i < m->n_nodes; i++)
        hash_int(s, (int64_t)m->nodes[i].setup_hash);
    for (int i = 0; i < m->n_values; i++)
        hash_int(s, (int64_t)pp_shape_floats(&m->values[i]));
    for (int i = 0; i < m->n_params; i++) {
        const struct pp_param *p = &m->params[i];
        pp_sha256_update(s, p->name, strlen(p->name) + 1);
        for (int d = 0; d < p->n_dims; d++)
            hash_int(s, p->dims[d]);
        hash_int(s, p->kind);
        hash_int(s, p->tied_to);
    }
}

static void hash_plan(const struct pp_plan *p, struct pp_sha256 *s)
{
    for (int r = 0; r < p->geometry.stages; r++) {
        for (int i = 0; i < p->ranks[r].n_actions; i++) {
            const struct pp_action *a = &p->ranks[r].actions[i];
            const int64_t all[] = {a->op,   a->recompute, a->stage, a->mb,
                                   a->slot, a->gslot,     a->recv,  a->send};
            pp_sha256_update(s, all, sizeof(all));
        }
    }
    for (int i = 0; i < p->n_messages; i++) {
        const struct pp_message *m = &p->messages[i];
        const int64_t all[] = {m->channel, m->mb, m->slot, m->next_in_slot, m->first_in_slot};
        pp_sha256_update(s, all, sizeof(all));
    }
}

static void end_digest(struct pp_sha256 *s, char out[PP_SHA256_HEX])
{
    uint8_t sum[PP_SHA256_BYTES];
    pp_sha256_final(s, sum);
    pp_sha256_hex(sum, out);
}

static int compare_run(const struct pp_run *run, struct pp_transport *tp)
{
    const struct pp_layout *l = run->layout;
    const struct pp_model *m = run->model;
    struct pp_sha256 s;
    char model[PP_SHA256_HEX], plan[PP_SHA256_HEX], text[1024];
    pp_sha256_init(&s);
    hash_model(m, &s);
    end_digest(&s, model);
    pp_sha256_init(&s);
    for (int v = 0; v < l->n_virtual; v++) {
        hash_int(&s, l->first[v]);
        hash_int(&s, l->rank_of[v]);
    }
    for (int i = 0; i < l->n_plans; i++)
        hash_plan(l->plans[i].plan, &s);
    end_digest(&s, plan);
    snprintf(text, sizeof(text),
             "training samples = %d\ntest samples = %d\nmodel = %zu parameters, %.16s\n"
             "plan = %d actions, %.16s\nlargest micro-batch = %d rows\n",
             l->train_n, l->test_n, m->n_floats, model, l->plans[0].plan->ranks[0].n_actions, plan,
             l->max_rows);
    return pp_transport_same(tp, 0, text);
}

/* ---- files */

struct named_file {
    const char *what; /* NULL: unused */
    char path[PP_PATH_MAX];
};

static void add_file(struct named_file *files, int *n, const char *what, const char *path)
{
    if (path[0] != '/')
        return;
    files[*n].what = what;
    snprintf(files[(*n)++].path, PP_PATH_MAX, "%s", path);
}

static int find_files(const struct pp_config *cfg, struct named_file *files, int *out_n)
{
    static const char *const names[] = {"training data", "test data"};
    int n = 0;
    for (int split = 0; split < 2; split++) {
        PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = NULL;
        if (pp_dataset_look(cfg, (enum pp_split)split, &ds) == 0)
            add_file(files, &n, names[split], ds->origin);
        else
            pp_error_clear(); /* the rank that needs it reports the error */
    }
    add_file(files, &n, "data.train_images", cfg->data.train_images);
    add_file(files, &n, "data.train_labels", cfg->data.train_labels);
    add_file(files, &n, "data.test_images", cfg->data.test_images);
    add_file(files, &n, "data.test_labels", cfg->data.test_labels);
    add_file(files, &n, "data.train_file", cfg->data.train_file);
    add_file(files, &n, "data.test_file", cfg->data.test_file);
    add_file(files, &n, "train.init", cfg->train.init);
    pp_assert(n <= FILES_MAX);
    *out_n = n;
    return 0;
}

/* Hashes device and inode of each file, with the machine: equal hashes mean the same files on one
 * machine. */
static void hash_identities(const struct named_file *files, int n, char out[PP_SHA256_HEX])
{
    struct pp_sha256 s;
    struct stat st;
    pp_sha256_init(&s);
    hash_int(&s, (int64_t)pp_host_id());
    for (int i = 0; i < n; i++) {
        st = (struct stat){0};
        (void)stat(files[i].path, &st);
        hash_int(&s, (int64_t)st.st_dev);
        hash_int(&s, (int64_t)st.st_ino);
        pp_sha256_update(&s, files[i].what, strlen(files[i].what) + 1);
    }
    end_digest(&s, out);
}

/* Sets *out to whether the text of `bytes` bytes is the same on all ranks. Collective. */
static int ask_all_equal(struct pp_transport *tp, const char *mine, size_t bytes, bool *out)
{
    PP_OWN_MEMORY char *all = pp_alloc((size_t)tp->size, bytes);
    PP_TRY(pp_transport_agree(tp, all ? 0 : PP_ERESOURCE));
    pp_assert(all != NULL); /* else the ranks had not agreed */
    PP_TRY(pp_transport_allgather(tp, mine, bytes, all));
    *out = true;
    for (int r = 1; r < tp->size; r++)
        *out = *out && memcmp(all, all + (size_t)r * bytes, bytes) == 0;
    return 0;
}

static int hash_files(const struct named_file *files, int n, char *text, size_t bytes,
                      char out[PP_SHA256_HEX])
{
    struct pp_sha256 s;
    char sum[PP_SHA256_HEX];
    pp_sha256_init(&s);
    text[0] = '\0';
    for (int i = 0; i < n; i++) {
        PP_TRY(pp_path_digest(files[i].path, sum));
        pp_sha256_update(&s, sum, sizeof(sum));
        pp_text_add(text, bytes, "%s = sha256 %.16s\n", files[i].what, sum);
    }
    end_digest(&s, out);
    return 0;
}

static int compare_files(const struct pp_run *run, struct pp_transport *tp)
{
    const size_t bytes = (size_t)FILES_MAX * (PP_PATH_MAX + 128);
    char sum[PP_SHA256_HEX];
    bool same = false;
    int n = 0;
    PP_OWN_MEMORY struct named_file *files = pp_alloc(FILES_MAX, sizeof(*files));
    PP_OWN_MEMORY char *text = pp_alloc(bytes, 1);
    int rc = files && text ? find_files(run->cfg, files, &n) : PP_ERESOURCE;
    PP_TRY(pp_transport_agree(tp, rc));
    pp_assert(text != NULL); /* else the ranks had not agreed */
    hash_identities(files, n, sum);
    PP_TRY(ask_all_equal(tp, sum, sizeof(sum), &same));
    if (same)
        return 0;
    PP_TRY(pp_transport_agree(tp, hash_files(files, n, text, bytes, sum)));
    PP_TRY(ask_all_equal(tp, sum, sizeof(sum), &same));
    return same ? 0 : pp_transport_same(tp, 0, text);
}

int pp_run_compare(const struct pp_run *run, struct pp_transport *tp)
{
    PP_TRY(compare_run(run, tp));
    return compare_files(run, tp);
}
