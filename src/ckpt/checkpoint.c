/* SPDX-License-Identifier: Apache-2.0 */
/* Finds checkpoints, and answers questions about an open one. */
#include "impl.h"
#include "safetensors.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ppcli/base/base.h"

#define OPTIMIZER "optimizer."
#define REMOVED_MAX 100 /* checkpoints that a run may remove while they are opened */

/* ---- tensors */

/* Compares two names, with runs of digits as numbers, so that layers.2.bias comes before
 * layers.10.bias. */
static int compare_names(const char *a, const char *b)
{
    while (*a && *b) {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            size_t za = strspn(a, "0"), zb = strspn(b, "0");
            size_t na = strspn(a + za, "0123456789"), nb = strspn(b + zb, "0123456789");
            int order = na != nb ? (na < nb ? -1 : 1) : memcmp(a + za, b + zb, na);
            /* equal numbers of different length are still two names */
            order = order == 0 && za != zb ? (za < zb ? -1 : 1) : order;
            if (order != 0)
                return order;
            a += za + na;
            b += zb + nb;
        } else if (*a != *b) {
            break;
        } else {
            a++;
            b++;
        }
    }
    return (unsigned char)*a - (unsigned char)*b;
}

static int compare_entries(const void *a, const void *b)
{
    const struct pp_ckpt_entry *x = a, *y = b;
    return compare_names(x->t->name, y->t->name);
}

int ckpt_build_index(struct pp_ckpt *ck)
{
    size_t n = 0;
    for (int p = 0; p < ck->n_parts; p++)
        n += (size_t)ck->parts[p]->header->n_tensors;
    ck->index = pp_alloc(n, sizeof(*ck->index));
    if (!ck->index)
        return pp_error_context("%s", ck->path);
    for (int p = 0; p < ck->n_parts; p++) {
        const struct pp_st_header *h = ck->parts[p]->header;
        for (int i = 0; i < h->n_tensors; i++)
            ck->index[ck->n_tensors++] = (struct pp_ckpt_entry){&h->tensors[i], p};
    }
    if (n > 1)
        qsort(ck->index, n, sizeof(*ck->index), compare_entries);
    for (int i = 1; i < ck->n_tensors; i++) {
        if (strcmp(ck->index[i - 1].t->name, ck->index[i].t->name) == 0) {
            return pp_fail(PP_EFORMAT, "%s: tensor %s is in %s as well",
                           ck->parts[ck->index[i].part]->path, ck->index[i].t->name,
                           ck->parts[ck->index[i - 1].part]->path);
        }
    }
    return 0;
}

/* Finds the prefix that a wrapper (DataParallel, torch.compile(), PEFT) put before the names of all
 * tensors. */
static void find_prefix(struct pp_ckpt *ck)
{
    static const char *const words[] = {"module.", "_orig_mod.", "base_model.model."};
    size_t n = 0;
    for (int w = 0; w < 3; w++) {
        size_t m = strlen(words[w]);
        bool all = ck->n_tensors > 0 && n + m < sizeof(ck->prefix);
        for (int i = 0; all && i < ck->n_tensors; i++)
            all = strncmp(ck->index[i].t->name, ck->prefix, n) == 0 &&
                  strncmp(ck->index[i].t->name + n, words[w], m) == 0;
        if (!all)
            continue;
        memcpy(ck->prefix + n, words[w], m + 1);
        n += m;
        w = -1; /* they may be nested in any order */
    }
}

const char *ckpt_tensor_name(const struct pp_ckpt *ck, const struct pp_st_tensor *t)
{
    size_t n = strlen(ck->prefix);
    return strncmp(t->name, ck->prefix, n) == 0 ? t->name + n : t->name;
}

struct wanted {
    const char *name;
    size_t prefix; /* bytes that all names have in common at the start */
};

static int compare_rest(const void *wanted, const void *entry)
{
    const struct wanted *w = wanted;
    const struct pp_ckpt_entry *e = entry;
    return compare_names(w->name, e->t->name + w->prefix);
}

const struct pp_st_tensor *ckpt_find(const struct pp_ckpt *ck, const char *name, int *out_part)
{
    const struct wanted key = {name, strlen(ck->prefix)};
    const struct pp_ckpt_entry *e =
        ck->n_tensors == 0
            ? NULL
            : bsearch(&key, ck->index, (size_t)ck->n_tensors, sizeof(*ck->index), compare_rest);
    *out_part = e ? e->part : 0;
    return e ? e->t : NULL;
}

/* ---- opening */

static int is_folder(const char *path, bool *out)
{
    struct stat st;
    PP_TRY(pp_path_stat(path, true, &st));
    *out = S_ISDIR(st.st_mode);
    return 0;
}

static int open_checkpoint_file(struct pp_ckpt *ck)
{
    ck->parts = pp_alloc(1, sizeof(struct pp_st_file *));
    if (!ck->parts)
        return pp_error_context("%s", ck->path);
    ck->n_parts = 1;
    PP_TRY(pp_st_open(ck->path, &ck->parts[0]));
    ck->bytes = ck->parts[0]->bytes;
    return ckpt_build_index(ck);
}

static int open_plain(struct pp_ckpt *ck, enum pp_ckpt_check check)
{
    bool folder = false;
    ck->plain = true;
    PP_TRY(is_folder(ck->path, &folder));
    PP_TRY(folder ? ckpt_open_shards(ck) : open_checkpoint_file(ck));
    find_prefix(ck);
    for (int i = 0, n = 0; i < ck->n_parts && check == PP_CKPT_VERIFY; i++) {
        PP_TRY(pp_st_check_data(ck->parts[i], &n));
        ck->checked += n;
    }
    return 0;
}

static int open_checkpoint(const char *path, bool plain, enum pp_ckpt_check check,
                           struct pp_ckpt **out)
{
    struct pp_ckpt *ck;
    PP_ALLOC(ck, 1);
    ck->path = pp_strdup(path);
    int rc = !ck->path ? PP_ERESOURCE : plain ? open_plain(ck, check) : ckpt_open_folder(ck, check);
    PP_TRY_UNDO(rc, pp_ckpt_close(&ck));
    *out = ck;
    return 0;
}

/* Sets *out to whether the folder has an entry of that name, of any kind. */
static int has_name(const char *dir, const char *name, bool *out)
{
    char path[PP_PATH_MAX];
    struct stat st;
    PP_TRY(pp_path_format(path, "%s%s%s", dir, name[0] ? "/" : "", name));
    PP_TRY(pp_path_stat(path, false, &st));
    *out = st.st_mode != 0;
    return 0;
}

/* Copies `path` without the slashes at its end. If it is the path of a MANIFEST, copies that of its
 * folder. */
static int tidy_path(const char *path, char out[PP_PATH_MAX])
{
    PP_TRY(pp_path_format(out, "%s", path));
    size_t n = strlen(out);
    while (n > 1 && out[n - 1] == '/')
        out[--n] = '\0';
    char *base = strrchr(out, '/');
    if (strcmp(base ? base + 1 : out, NAME_MANIFEST) == 0) {
        if (!base)
            strcpy(out, ".");
        else if (base == out)
            base[1] = '\0';
        else
            *base = '\0';
    }
    return 0;
}

/* Returns whether the last name of a path is the name of a step's checkpoint. */
static bool is_step_path(const char *path)
{
    const char *base = strrchr(path, '/');
    int64_t step;
    return name_is_step(base ? base + 1 : path, &step);
}

/* Checks that a folder with the name of a step holds that step, because checkpoints are found, kept
 * and removed by name. Closes *ck on failure. */
static int check_name(struct pp_ckpt **ck)
{
    const char *path = (*ck)->path, *base = strrchr(path, '/');
    int64_t step;
    char made[NAME_BYTES];
    base = base ? base + 1 : path;
    if (!name_is_step(base, &step) || step == (*ck)->state.step)
        return 0;
    name_step(made, (*ck)->state.step);
    int rc = pp_fail(PP_EFORMAT, "%s: holds step %lld; name the folder %s", path,
                     (long long)(*ck)->state.step, made);
    pp_ckpt_close(ck);
    return rc;
}

int pp_ckpt_open(const char *path, enum pp_ckpt_check check, struct pp_ckpt **out)
{
    char tidy[PP_PATH_MAX];
    bool folder = false, manifest = false;
    PP_TRY(tidy_path(path, tidy));
    PP_TRY(is_folder(tidy, &folder));
    if (!folder)
        return open_checkpoint(tidy, true, check, out);
    PP_TRY(has_name(tidy, NAME_MANIFEST, &manifest));
    if (manifest || is_step_path(tidy)) {
        PP_TRY(open_checkpoint(tidy, false, check, out));
        return check_name(out);
    }
    if (ckpt_has_shards(tidy))
        return open_checkpoint(tidy, true, check, out);
    return pp_ckpt_open_latest(tidy, check, true, out);
}

/* Finds the folder that contains the checkpoints: the one inside a run folder, or else the folder
 * itself. */
static int find_folder(const char *path, char out[PP_PATH_MAX])
{
    bool inside = false;
    PP_TRY(pp_path_format(out, "%s/" PP_CKPT_DIR, path));
    PP_TRY(is_folder(out, &inside));
    return inside ? 0 : pp_path_format(out, "%s", path);
}

int pp_ckpt_list(const char *path, int64_t **out_steps, int *out_n)
{
    char dir[PP_PATH_MAX];
    bool folder = false;
    PP_TRY(find_folder(path, dir));
    PP_TRY(is_folder(dir, &folder));
    if (!folder) {
        *out_steps = NULL;
        *out_n = 0;
        return 0;
    }
    return folder_steps(dir, out_steps, out_n);
}

int pp_ckpt_step_path(const char *path, int64_t step, char out[PP_PATH_MAX])
{
    char dir[PP_PATH_MAX];
    PP_TRY(find_folder(path, dir));
    return folder_step_path(dir, step, out);
}

static int open_newest(const char *dir, const int64_t *steps, int n, enum pp_ckpt_check check,
                       bool fall_back, struct pp_ckpt **out)
{
    int rc = 0;
    for (int i = 0; i < n; i++) {
        char path[PP_PATH_MAX];
        PP_TRY(pp_ckpt_step_path(dir, steps[i], path));
        rc = open_checkpoint(path, false, check, out);
        if (rc == 0)
            return check_name(out); /* a wrong name is an error even with fall_back */
        bool there = true;
        if (rc == PP_EFORMAT && has_name(path, "", &there) == 0 && !there)
            return PP_ENOINPUT; /* a run has removed it meanwhile */
        /* A checkpoint that cannot be read now, for lack of memory, rights or a disk, may be
         * complete. */
        if (rc == PP_ENOINPUT || !fall_back || rc != PP_EFORMAT)
            return rc;
        pp_log_warn("%s", pp_error_get()->text);
        if (i + 1 < n)
            pp_log_warn("%s cannot be used; trying the one before it", path);
    }
    return pp_error_context("all %d checkpoints are unusable; the oldest", n);
}

int pp_ckpt_open_latest(const char *dir, enum pp_ckpt_check check, bool fall_back,
                        struct pp_ckpt **out)
{
    char other[PP_PATH_MAX + 512], newest[PP_PATH_MAX];
    for (int tries = 0; tries < REMOVED_MAX; tries++) {
        PP_OWN_MEMORY int64_t *steps = NULL;
        int n = 0;
        PP_TRY(pp_ckpt_list(dir, &steps, &n));
        if (n == 0 && tries > 10)
            break; /* an earlier name may have replaced it while the folder was listed */
        if (n == 0)
            continue;
        int rc = open_newest(dir, steps, n, check, fall_back, out);
        if (rc != PP_ENOINPUT)
            return rc;
        PP_TRY(pp_ckpt_step_path(dir, steps[0], newest));
        bool there = false; /* or a run has removed it meanwhile */
        PP_TRY(has_name(newest, "", &there));
        if (there)
            return pp_fail(PP_ENOINPUT, "%s: the checkpoints before it were removed", newest);
    }
    if (pp_hf_folder_is(dir, other, sizeof(other)))
        return pp_fail(PP_EFORMAT, "%s: %s", dir, other);
    return pp_fail(PP_ENOINPUT, "no checkpoint in %s, and no model.safetensors", dir);
}

void pp_ckpt_close(struct pp_ckpt **ck)
{
    if (!*ck)
        return;
    for (int i = 0; i < (*ck)->n_parts; i++)
        pp_st_close(&(*ck)->parts[i]);
    pp_free((*ck)->parts);
    pp_free((*ck)->index);
    pp_free((*ck)->config);
    pp_free((*ck)->state.vocabulary);
    pp_free((*ck)->state.preprocessing);
    pp_free((*ck)->state.changes);
    pp_free((*ck)->path);
    pp_free(*ck);
    *ck = NULL;
}

bool pp_ckpt_claims(const char *path)
{
    char tidy[PP_PATH_MAX];
    if (tidy_path(path, tidy) < 0)
        return false;
    bool folder = false, manifest = false;
    if (is_folder(tidy, &folder) < 0)
        return false;
    if (folder) {
        PP_OWN_MEMORY int64_t *steps = NULL;
        int n = 0;
        return (has_name(tidy, NAME_MANIFEST, &manifest) == 0 && manifest) || is_step_path(tidy) ||
               ckpt_has_shards(tidy) || (pp_ckpt_list(tidy, &steps, &n) == 0 && n > 0);
    }
    /* Eight bytes of a small number, then '{'. If the name is right, one of both is enough, because
     * the other may be damaged. */
    uint8_t head[9] = {0};
    int fd = -1;
    uint64_t bytes = 0;
    if (pp_open_regular(tidy, &fd, &bytes) < 0)
        return false;
    bool named = pp_text_ends(tidy, ".safetensors");
    bool full = pread(fd, head, sizeof(head), 0) == (ssize_t)sizeof(head);
    close(fd);
    bool small = head[4] == 0 && head[5] == 0 && head[6] == 0 && head[7] == 0;
    return full && small + (head[8] == '{') + named >= 2;
}

/* ---- questions about an open checkpoint */

const struct pp_ckpt_state *pp_ckpt_state(const struct pp_ckpt *ck)
{
    return ck->plain ? NULL : &ck->state;
}

const struct pp_st_tensor *pp_ckpt_tensor(const struct pp_ckpt *ck, int i, const char **out_file)
{
    pp_assert(i >= 0 && i < ck->n_tensors);
    if (out_file) {
        const char *path = ck->parts[ck->index[i].part]->path;
        const char *base = strrchr(path, '/');
        *out_file = base ? base + 1 : path;
    }
    return ck->index[i].t;
}

const char *ckpt_short_name(const char *name)
{
    static const char *const first[] = {"transformer.", "model."};
    for (int i = 0; i < 2; i++)
        if (strncmp(name, first[i], strlen(first[i])) == 0)
            return name + strlen(first[i]);
    return NULL;
}

bool pp_ckpt_is_parameter(const struct pp_st_tensor *t)
{
    const char *dot = strrchr(t->name, '.'), *last = dot ? dot + 1 : t->name;
    return strncmp(t->name, OPTIMIZER, strlen(OPTIMIZER)) != 0 &&
           strcmp(last, "running_mean") != 0 && strcmp(last, "running_var") != 0 &&
           strcmp(last, "num_batches_tracked") != 0;
}
