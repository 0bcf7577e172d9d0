/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the file of a config or of a machine from the word that a user typed. */
#include "ppcli/conf/config.h"

#include "conf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ppcli/base/base.h"

/* ---- installed files */

static const char *const below[2] = {"configs", "configs/machines"};

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Lists the .ini files of a folder by name, without the last `cut` bytes of the names. */
static void list_folder(const char *folder, size_t cut, struct pp_shipped *s)
{
    PP_OWN(pp_closedir_at) DIR *dir = opendir(folder);
    for (struct dirent *e; dir && s->n < PP_SHIPPED_NAMES && (e = readdir(dir));)
        if (pp_text_ends(e->d_name, ".ini") && strlen(e->d_name) < PP_NAME_MAX)
            snprintf(s->storage[s->n++], PP_NAME_MAX, "%.*s", (int)(strlen(e->d_name) - cut),
                     e->d_name);
    qsort(s->storage, (size_t)s->n, sizeof(s->storage[0]), compare_names);
    for (int i = 0; i < s->n; i++)
        s->names[i] = s->storage[i];
}

int pp_shipped_read(bool machines, struct pp_shipped *out)
{
    out->n = 0;
    int n = pp_shipped_folders(below[machines], out->folders);
    for (int i = 0; i < n && out->n == 0; i++) {
        errno = 0;
        list_folder(out->folders[i], machines ? 4 : 0, out);
        out->folder = out->folders[i];
        if (out->n == 0 && errno == ENOMEM)
            return pp_fail_errno(PP_ERESOURCE, "cannot read %s", out->folder);
    }
    out->names[out->n] = NULL;
    return 0;
}

/* ---- finding a file by its word */

static int fail_unknown_file(const char *word, bool machine, struct pp_shipped *s)
{
    const char *what = machine ? "machine" : "config";
    char all[1024] = "", name[PP_NAME_MAX];
    PP_TRY(pp_shipped_read(machine, s));
    if (s->n == 0) {
        int n = pp_shipped_folders(below[machine], s->folders);
        return pp_fail(
            PP_ENOINPUT,
            "%s: no such %s here, and the shipped ones are neither near the program nor in "
            "%s: write the path of the file, or link configs/ of the source to %s",
            word, what, s->folders[n - 1], s->folders[n > 2 ? 2 : 0]);
    }
    snprintf(name, sizeof(name), "%.*s%s", PP_NAME_MAX - 5, word,
             pp_text_ends(word, ".ini") ? "" : ".ini");
    if (machine)
        name[strlen(name) - 4] = '\0';
    for (int i = 0; machine && i < s->n; i++)
        pp_text_add(all, sizeof(all), "%s%s", i > 0 ? ", " : ": ", s->names[i]);
    return pp_fail(PP_ENOINPUT, "%s: no such %s, here or in %s%s%s", machine ? name : word, what,
                   s->folder, all, pp_did_you_mean(name, s->names).s);
}

/* Finds the config, or the machine file if `machine`, that `word` means: a path, else the name of a
 * shipped file, for which it sets *shipped. */
static int find_ini(const char *word, bool machine, bool *shipped, char out[PP_PATH_MAX])
{
    *shipped = false;
    if (strcmp(word, "-") == 0 || access(word, F_OK) == 0)
        return pp_path_format(out, "%s", word);
    if (errno != ENOENT && errno != ENOTDIR)
        return pp_fail_errno(0, "%s", word);
    if (!word[0] || strchr(word, '/'))
        return pp_fail(PP_ENOINPUT, "%s: no such %s file", word[0] ? word : "''",
                       machine ? "machine" : "config");
    PP_TAKE(struct pp_shipped, s, 1); /* too large for a small stack */
    int n = pp_shipped_folders(below[machine], s->folders);
    for (int i = 0; i < n && !*shipped; i++) {
        PP_TRY(pp_path_format(out, "%s/%s", s->folders[i], word));
        *shipped = access(out, F_OK) == 0;
    }
    return *shipped ? 0 : fail_unknown_file(word, machine, s);
}

/* Refuses a file that is not an INI file but of another well-known format, which would otherwise
 * give a problem for each of its lines. */
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
        pp_error_clear(); /* the function that reads it reports why */
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

int pp_config_find(const char *word, bool *shipped, char out[PP_PATH_MAX])
{
    static const char *const data[] = {".csv", ".tsv", ".npy", ".npz", ".gz"};
    for (size_t i = 0; i < sizeof(data) / sizeof(*data); i++)
        if (pp_text_ends(word, data[i]))
            return pp_fail(PP_EUSAGE, "%s: data, not a config; ppcli init writes one for them",
                           word);
    *shipped = false;
    if (conf_find_pinned(word, out))
        return 0;
    PP_TRY(find_ini(word, false, shipped, out));
    return strcmp(word, "-") == 0 ? 0 : check_is_config(out);
}

int pp_machine_find(const char *word, bool *shipped, char out[PP_PATH_MAX])
{
    char name[PP_PATH_MAX];
    bool bare = !strchr(word, '/') && !pp_text_ends(word, ".ini") && access(word, F_OK) != 0;
    PP_TRY(pp_path_format(name, "%s%s", word, bare ? ".ini" : ""));
    return find_ini(name, true, shipped, out);
}
