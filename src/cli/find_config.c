/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the word a user typed to a checked config: where the file is, and its problems on stderr.
 */
#include "command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ppcli/dataset.h"
#include "ppcli/log.h"
#include "ppcli/shipped.h"
#include "ppcli/run_dir.h"
#include "ppcli/text.h"
#include "start.h"

#define NAMES_MAX 256

static bool is_ini(const char *name)
{
    size_t n = strlen(name);
    return n > 4 && strcmp(name + n - 4, ".ini") == 0;
}

struct shipped {
    const char *folder; /* NULL: none has any */
    char storage[NAMES_MAX][PP_NAME_MAX];
    const char *names[NAMES_MAX + 1];
    int n;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The configs in a folder; cut: bytes of their names that are left out. */
static void list(const char *folder, size_t cut, struct shipped *s)
{
    PP_OWN(pp_closedir_at) DIR *dir = opendir(folder);
    for (struct dirent *e; dir && s->n < NAMES_MAX && (e = readdir(dir));)
        if (is_ini(e->d_name) && strlen(e->d_name) < PP_NAME_MAX)
            snprintf(s->storage[s->n++], PP_NAME_MAX, "%.*s", (int)(strlen(e->d_name) - cut),
                     e->d_name);
    if (s->n > 0) {
        s->folder = folder;
        qsort(s->storage, (size_t)s->n, sizeof(s->storage[0]), by_name);
    }
    for (int i = 0; i < s->n; i++)
        s->names[i] = s->storage[i];
}

const char *const *pp_cli_shipped(bool machines)
{
    static char folders[PP_SHIPPED_MAX][PP_PATH_MAX];
    static struct shipped all[2];
    struct shipped *s = &all[machines];
    int n = s->n > 0 ? 0 : pp_shipped_folders(machines ? "configs/machines" : "configs", folders);
    for (int i = 0; i < n && s->n == 0; i++) {
        errno = 0;
        list(folders[i], machines ? 4 : 0, s);
        if (s->n == 0 && errno == ENOMEM) {
            pp_fail_errno(PP_ERESOURCE, "cannot read %s", folders[i]);
            return NULL;
        }
    }
    s->names[s->n] = NULL;
    return s->names;
}

/* what: "config"; below: the folder of configs/ that has them, "" or "/machines", whose names are
 * few enough to list. */
static int find(const char *word, const char *what, const char *below, char out[PP_PATH_MAX])
{
    if (strcmp(word, "-") == 0 || access(word, F_OK) == 0)
        return pp_path_format(out, "%s", word);
    if (errno != ENOENT && errno != ENOTDIR)
        return pp_fail_errno(0, "%s", word);
    if (!word[0] || strchr(word, '/'))
        return pp_fail(PP_ENOINPUT, "%s: no such %s file", word[0] ? word : "''", what);

    static char folders[PP_SHIPPED_MAX][PP_PATH_MAX]; /* too large for a small stack, */
    static struct shipped s;                          /* and so is this */
    static char said[PP_PATH_MAX];                    /* what the user has read already */
    char path[PP_PATH_MAX], all[1024] = "", name[PP_NAME_MAX];
    PP_TRY(pp_path_format(path, "configs%s", below));
    int n = pp_shipped_folders(path, folders);
    s.n = 0;
    s.folder = NULL;
    for (int i = 0; i < n; i++) {
        PP_TRY(pp_path_format(path, "%s/%s", folders[i], word));
        if (access(path, F_OK) == 0) {
            if (pp_launch_announces() && strcmp(said, path) != 0)
                pp_log_info("%s: %s", what, path);
            PP_TRY(pp_path_format(said, "%s", path));
            return pp_path_format(out, "%s", path);
        }
        if (s.n == 0)
            list(folders[i], below[0] ? 4 : 0, &s);
    }
    snprintf(name, sizeof(name), "%.*s%s", PP_NAME_MAX - 5, word, is_ini(word) ? "" : ".ini");
    if (!s.folder) {
        return pp_fail(
            PP_ENOINPUT,
            "%s: no such %s here, and the shipped ones are not beside the program nor in "
            "%s: write the path of the file, or link configs/ of the source to %s",
            word, what, folders[n - 1], folders[n > 2 ? 2 : 0]);
    }
    if (below[0])
        name[strlen(name) - 4] = '\0';
    for (int i = 0; below[0] && i < s.n; i++)
        pp_text_add(all, sizeof(all), "%s%s", i > 0 ? ", " : ": ", s.names[i]);
    return pp_fail(PP_ENOINPUT, "%s: no such %s, here or in %s%s%s", below[0] ? name : word, what,
                   s.folder, all, pp_did_you_mean(name, s.names).s);
}

bool pp_cli_is_run(const char *word)
{
    char path[PP_PATH_MAX];
    struct stat st;
    return word && stat(word, &st) == 0 && S_ISDIR(st.st_mode) && pp_run_dir_config(word, path);
}

/* Files of another format, which would be a problem in each of their lines. */
static int check_is_config(const char *path)
{
    static const struct {
        const char *begins, *what;
    } kinds[] = {{"{", "JSON"},
                 {"---", "YAML"},
                 {"<", "XML or a web page"},
                 {"\x93NUMPY", "a NumPy file"},
                 {"PK\3\4", "a zip archive"},
                 {"\x1f\x8b", "a gzip file"},
                 {"\xff\xfe", "text in UTF-16"},
                 {"version https://git-lfs", "a Git LFS pointer (run `git lfs pull`)"}};
    char head[512] = "";
    int fd = -1;
    uint64_t bytes;
    if (pp_open_regular(path, &fd, &bytes) < 0) {
        pp_error_clear(); /* whoever reads it says why */
        return 0;
    }
    ssize_t n = read(fd, head, sizeof(head) - 1);
    close(fd);
    head[n > 0 ? n : 0] = '\0';
    const char *at = head + strspn(head, " \t\r\n");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strncmp(at, kinds[i].begins, strlen(kinds[i].begins)) == 0)
            return pp_fail(PP_EUSAGE,
                           "%s: %s, not a config; a config is an INI file, such as `ppcli init` "
                           "prints",
                           path, kinds[i].what);
    if (strchr(head, '\r') && !strchr(head, '\n'))
        return pp_fail(PP_EUSAGE,
                       "%s: its lines end in returns alone, as on old Macs; end them in newlines "
                       "(tr '\\r' '\\n')",
                       path);
    return 0;
}

int pp_cli_find_config(const char *word, char out[PP_PATH_MAX])
{
    static const char *const data[] = {".csv", ".tsv", ".npy", ".npz", ".gz"};
    struct stat st;
    if (stat(word, &st) == 0 && S_ISDIR(st.st_mode)) {
        return pp_run_dir_config(word, out)
                   ? 0
                   : pp_fail(PP_ENOINPUT,
                             "%s: a folder, and not of a run: it has no " PP_RUN_DIR_CONFIG
                             "; name a config, or a run folder",
                             word);
    }
    for (size_t i = 0, n = strlen(word), m; i < sizeof(data) / sizeof(*data); i++) {
        m = strlen(data[i]);
        if (n > m && strcmp(word + n - m, data[i]) == 0)
            return pp_fail(PP_EUSAGE, "%s: data, not a config; ppcli init writes one for them",
                           word);
    }
    PP_TRY(find(word, "config", "", out));
    return strcmp(word, "-") == 0 ? 0 : check_is_config(out);
}

int pp_cli_find_machine(const char *word, char out[PP_PATH_MAX])
{
    char name[PP_PATH_MAX];
    bool bare = !strchr(word, '/') && !is_ini(word) && access(word, F_OK) != 0;
    PP_TRY(pp_path_format(name, "%s%s", word, bare ? ".ini" : ""));
    return find(name, "machine", "/machines", out);
}

static void print_problems(const struct pp_config *cfg)
{
    for (int i = 0; i < pp_config_problem_count(cfg); i++)
        fprintf(stderr, "%s\n", pp_config_problem_text(cfg, i));
}

/* The settings of a config from a run folder: its own run.dir comes first, so that `train RUN
 * --resume` continues there. dir: memory for the name. Returns how many are in out. */
static int settings_of_run(const char *word, const struct pp_cli_settings *settings,
                           struct pp_setting out[PP_CLI_SETTINGS_MAX + 1], char dir[PP_PATH_MAX])
{
    int n = settings ? settings->n : 0, first = word && pp_cli_is_run(word);
    if (first) {
        if (!pp_run_dir_of(word, dir))
            snprintf(dir, PP_PATH_MAX, "%s", word);
        out[0] = (struct pp_setting){"run.dir", dir, word};
    }
    if (n > 0)
        memcpy(out + first, settings->items, (size_t)n * sizeof(*out));
    return n + first;
}

int pp_cli_load_config(const char *word, const struct pp_cli_settings *settings,
                       struct pp_config **out)
{
    struct pp_setting items[PP_CLI_SETTINGS_MAX + 1];
    char path[PP_PATH_MAX], dir[PP_PATH_MAX];
    int n = settings_of_run(word, settings, items, dir);
    if (word)
        PP_TRY(pp_cli_find_config(word, path));
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    int rc = pp_config_load(word ? path : NULL, items, n, pp_cli_names(), &cfg);
    if (rc < 0)
        return pp_cli_config_verdict(cfg, rc);
    for (int i = 0; pp_launch_speaks() && i < pp_config_note_count(cfg); i++)
        pp_log_info("%s", pp_config_note_text(cfg, i));
    *out = cfg;
    cfg = NULL;
    return 0;
}

int pp_cli_config_verdict(const struct pp_config *cfg, int rc)
{
    if (rc != PP_ECONFIG || !cfg || pp_config_problem_count(cfg) == 0)
        return rc;
    if (!pp_launch_speaks()) /* to be told to the one that does */
        return pp_fail(PP_ECONFIG, "%s", pp_config_problem_text(cfg, 0));
    print_problems(cfg);
    return pp_config_verdict(cfg);
}

/* Whether cfg's own files of a split are absent. */
static bool lacks_files(const struct pp_config *cfg, enum pp_split split)
{
    int n;
    return pp_dataset_count(cfg, split, &n) == PP_ENOINPUT;
}

int pp_cli_look_verdict(const struct pp_config *cfg, int rc)
{
    PP_TRY(rc == PP_ENOINPUT && cfg ? 0 : pp_cli_config_verdict(cfg, rc));
    if (rc != PP_ENOINPUT || !cfg)
        return rc;
    const struct pp_dataset_info *info = pp_dataset_info(cfg->data.dataset);
    const char *type = cfg->model.type, *shape = cfg->data.shape;
    char said[PP_ERROR_TEXT_MAX], keys[160] = "";
    snprintf(said, sizeof(said), "%s", pp_error_get()->text);
    bool lacks[2] = {lacks_files(cfg, PP_SPLIT_TRAIN), lacks_files(cfg, PP_SPLIT_TEST)};
    const struct {
        const char *name;
        bool wanted;
    } of[] = {
        {"data.train_samples", lacks[0] && !info->windows && cfg->data.train_samples == 0},
        {"data.test_samples", lacks[1] && !info->windows && cfg->data.test_samples == 0},
        {"model.vocab_size", lacks[0] && (info->windows || info->element == PP_U16) &&
                                 cfg->model.vocab_size == 0 && cfg->data.tokens != PP_TOKENS_BYTES},
        {"model.classes",
         lacks[0] && pp_has_word("encoder resnet", type) && cfg->model.classes == 0},
        {"data.shape", lacks[0] && pp_has_word("sequential resnet", type) &&
                           (!shape[0] || strcmp(shape, "model") == 0)},
    };
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
        if (of[i].wanted)
            pp_text_add(keys, sizeof(keys), "%s%s", keys[0] ? ", " : "", of[i].name);
    return keys[0] ? pp_fail(rc, "%s; set %s to look at this config without its files", said, keys)
                   : pp_fail(rc, "%s", said);
}
