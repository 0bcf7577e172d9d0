/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pp_config_load(): sets defaults, reads the file, then the settings, and converts each value at
 * once; a later value wins. Then it applies model.from, and then the checks of several keys.
 */
#include "conf.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ppcli/conf/config.h"
#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"

/* ---- the text of a config from another process */

#define PIN_BYTES 120000 /* one variable of an environment may have 128 KiB */

/* The text that pp_config_pin() has stored in the environment: four parts, each ended by a
 * newline. */
struct pin {
    char word[PP_PATH_MAX], path[PP_PATH_MAX], dir[PP_PATH_MAX];
    const char *text; /* NULL: nothing is stored */
};

static void find_pin(struct pin *out)
{
    char *const parts[] = {out->word, out->path, out->dir};
    const char *p = getenv(PP_CONFIG_PINNED);
    for (int i = 0; i < 3 && p; i++) {
        const char *end = strchr(p, '\n');
        if (end)
            snprintf(parts[i], PP_PATH_MAX, "%.*s", (int)(end - p), p);
        p = end ? end + 1 : NULL;
    }
    out->text = p;
}

int pp_config_pin(const struct pp_config *cfg, const char *word)
{
    const struct pp_config_source *src = cfg->source;
    size_t bytes = strlen(word) + strlen(src->path) + strlen(src->file_dir) + strlen(src->text) + 4;
    if (bytes > PIN_BYTES || strpbrk(word, "\n") || strpbrk(src->path, "\n"))
        return pp_fail(
            PP_ECONFIG,
            "run.retries: %s is too long to hand it to the ranks (%zu bytes, at most %d); "
            "remove comments from it",
            src->file, bytes, PIN_BYTES);
    PP_TAKE(char, pin, bytes);
    snprintf(pin, bytes, "%s\n%s\n%s\n%s", word, src->path, src->file_dir, src->text);
    return setenv(PP_CONFIG_PINNED, pin, 1) == 0 ? 0 : PP_ERESOURCE;
}

bool conf_find_pinned(const char *word, char out[PP_PATH_MAX])
{
    struct pin pin;
    find_pin(&pin);
    bool found = pin.text && strcmp(word, pin.word) == 0;
    if (found)
        memcpy(out, pin.path, PP_PATH_MAX);
    return found;
}

/* ---- the file */

static int read_config_text(const char *path, char **out, size_t *out_bytes)
{
    struct pin pin;
    find_pin(&pin);
    if (pin.text && strcmp(path, pin.path) == 0) {
        *out = pp_strdup(pin.text);
        *out_bytes = strlen(pin.text);
        return *out ? 0 : PP_ERESOURCE;
    }
    if (strcmp(path, "-") == 0)
        return pp_fd_read(STDIN_FILENO, "<stdin>", CONF_FILE_MAX, out, out_bytes);
    int rc = pp_file_read(path, CONF_FILE_MAX, out, out_bytes);
    return rc == PP_EFORMAT ? pp_fail(PP_ENOINPUT, "no config: %s", pp_error_get()->text) : rc;
}

/* Returns a copy of the text in which bytes that do not fit into one line of a message or of an INI
 * comment are replaced. */
static char *copy_plain(const char *text)
{
    char why[CONF_WHY_MAX];
    char *copy = pp_strdup(text);
    if (copy && conf_text_check(copy, strlen(copy), why) < 0)
        pp_text_make_plain(copy);
    return copy;
}

/* Sets file, name and file_dir of the source to those of the config at `path`; NULL: there is no
 * file. */
static int describe_file(struct pp_config_source *src, const char *path)
{
    bool is_file = path && strcmp(path, "-") != 0;
    memcpy(src->file_dir, src->cwd, sizeof(src->cwd));
    if (path) {
        src->file = copy_plain(is_file ? path : "<stdin>");
        if (!src->file)
            return PP_ERESOURCE;
    }
    if (!is_file) {
        src->name = pp_strdup("run");
        return src->name ? 0 : PP_ERESOURCE;
    }

    const char *base = strrchr(src->file, '/');
    base = base ? base + 1 : src->file;
    size_t n = strlen(base);
    if (n > 4 && strcmp(base + n - 4, ".ini") == 0)
        n -= 4;
    src->name = pp_strdup(base);
    if (!src->name)
        return PP_ERESOURCE;
    src->name[n] = '\0';

    const char *slash = strrchr(path, '/');
    if (slash) {
        char dir[PP_PATH_MAX];
        PP_TRY(pp_path_format(dir, "%.*s", slash == path ? 1 : (int)(slash - path), path));
        char *real = realpath(dir, NULL);
        struct pin pin;
        find_pin(&pin);
        /* it existed when the text was stored */
        if (!real && pin.text && strcmp(path, pin.path) == 0) {
            strcpy(src->file_dir, pin.dir);
            return 0;
        }
        if (!real || strlen(real) >= PP_PATH_MAX) {
            free(real);
            return pp_fail_errno(0, "%s: cannot find the folder of the config", path);
        }
        strcpy(src->file_dir, real);
        free(real);
    }
    return 0;
}

static bool convert_value(struct pp_config *cfg, const struct conf_option *o, const char *raw,
                          const char *dir, const struct pp_names *names, char *why)
{
    PP_OWN_MEMORY char *text = pp_alloc(PP_CONFIG_VALUE_MAX, 1);
    cfg->source->no_memory |= !text;
    if (!text || conf_text_check(raw, strlen(raw), why) < 0 ||
        conf_expand(raw, text, PP_CONFIG_VALUE_MAX, why) < 0)
        return !text; /* out of memory is reported separately */
    char *start = text + strspn(text, " \t");
    size_t n = strlen(start);
    while (n > 0 && (start[n - 1] == ' ' || start[n - 1] == '\t'))
        start[--n] = '\0';
    return conf_value_parse(o, start, dir, names, cfg, why) == 0;
}

void conf_assign(struct pp_config *cfg, int option, const char *raw, struct conf_position place,
                 const struct pp_names *names)
{
    struct pp_config_source *src = cfg->source;
    struct conf_origin *origin = &src->origins[option];
    char why[CONF_WHY_MAX], line[16];

    bool from_file = place.from == CONF_FROM_FILE;
    snprintf(line, sizeof(line), ":%d", place.number);
    const char *what = from_file ? src->file : place.said;
    size_t bytes = strlen(what) + sizeof(line);
    char *text = pp_alloc(bytes, 1);
    if (text)
        snprintf(text, bytes, "%s%s", what, from_file ? line : "");
    else
        src->no_memory = true;
    pp_free(origin->text);
    origin->text = text;
    origin->from = place.from;
    origin->number = place.number;

    const struct conf_option *o = conf_option(option);
    origin->bad = !convert_value(cfg, o, raw, from_file ? src->file_dir : src->cwd, names, why);
    if (origin->bad)
        conf_problem(cfg, place, "%s: %s", o->name, why);
}

void pp_config_adopt(struct pp_config *cfg, const char *key, const char *value,
                     const struct pp_theirs *theirs, const struct pp_names *names)
{
    PP_OWN_MEMORY char *mine = pp_alloc(PP_CONFIG_VALUE_MAX, 1);
    PP_OWN_MEMORY char *their_text = pp_alloc(PP_CONFIG_VALUE_MAX, 1);
    cfg->source->no_memory |= !mine || !their_text;
    int option = conf_option_index(key);
    pp_assert(option >= 0);
    const struct conf_option *o = conf_option(option);
    struct conf_origin *origin = &cfg->source->origins[option];
    char why[CONF_WHY_MAX];
    bool said = origin->from != CONF_FROM_DEFAULT;
    if (!mine || !their_text || (said && (origin->bad || theirs->free)))
        return;
    conf_value_print(o, cfg, mine, PP_CONFIG_VALUE_MAX);
    if (conf_value_parse(o, value, cfg->source->cwd, names, cfg, why) < 0) {
        pp_config_problem(cfg, theirs->key, "%s: %s: %s: %s: %s", theirs->key, theirs->file,
                          theirs->name, key, why);
        return;
    }
    conf_value_print(o, cfg, their_text, PP_CONFIG_VALUE_MAX);
    if (!said) {
        pp_free(origin->text);
        origin->text = pp_strdup(theirs->file);
        cfg->source->no_memory |= !origin->text;
    } else if (strcmp(mine, their_text) != 0) {
        conf_problem(cfg, conf_position_of(cfg, option),
                     "%s is %s, but %s of %s has %s = %s; leave the key out", key, mine,
                     theirs->file, theirs->key, theirs->name, their_text);
        conf_value_parse(o, mine, cfg->source->cwd, NULL, cfg, why);
    }
}

void pp_config_plan_only(struct pp_config *cfg)
{
    cfg->model.planned = true;
}

int pp_config_choose(struct pp_config *cfg, const char *key, const char *value)
{
    int option = conf_option_index(key);
    pp_assert(option >= 0);
    struct conf_origin *origin = &cfg->source->origins[option];
    const char *said = pp_config_origin(cfg, key);
    char why[CONF_WHY_MAX];
    size_t bytes = strlen(said) + sizeof("chosen ()");
    char *text;
    PP_ALLOC(text, bytes);
    snprintf(text, bytes, "chosen (%s)", said);
    if (conf_value_parse(conf_option(option), value, cfg->source->cwd, NULL, cfg, why) < 0) {
        pp_free(text);
        return pp_fail(PP_ECONFIG, "%s: %s", key, why);
    }
    pp_free(origin->text);
    origin->text = text;
    return 0;
}

struct pp_did_you_mean conf_key_hint(const char *key)
{
    const char *names[256] = {NULL};
    struct pp_did_you_mean hint;
    pp_assert(conf_option_count() < 256);
    for (int i = 0; i < conf_option_count(); i++) {
        names[i] = conf_option(i)->name;
        if (strcmp(conf_option(i)->key, key) == 0) { /* only the section is missing */
            snprintf(hint.s, sizeof(hint.s), "; did you mean '%s'?", names[i]);
            return hint;
        }
    }
    const char *like = pp_config_key_like(key);
    if (like) {
        snprintf(hint.s, sizeof(hint.s), "; did you mean '%s'?", like);
        return hint;
    }
    return pp_did_you_mean(key, names);
}

static void report_unknown_setting(struct pp_config *cfg, struct conf_position place,
                                   const char *key)
{
    conf_problem(cfg, place, "unknown key '%s'%s (ppcli keys)", conf_quote(key, strlen(key)).s,
                 conf_key_hint(key).s);
}

static void apply_settings(struct pp_config *cfg, const struct pp_setting *settings, int n,
                           const struct pp_names *names)
{
    for (int i = 0; i < n; i++) {
        struct conf_position place = {CONF_FROM_SETTING, i + 1,
                                      settings[i].said ? settings[i].said : "--set"};
        int option = conf_option_index(settings[i].key);
        if (option >= 0)
            conf_assign(cfg, option, settings[i].value, place, names);
        else if (!conf_was_key(cfg, place, settings[i].key, settings[i].value))
            report_unknown_setting(cfg, place, settings[i].key);
    }
}

static int create_config(struct pp_config **out)
{
    struct pp_config *cfg;
    PP_ALLOC(cfg, 1);
    cfg->source = pp_alloc(1, sizeof(*cfg->source));
    if (cfg->source) {
        cfg->source->origins =
            pp_alloc((size_t)conf_option_count(), sizeof(cfg->source->origins[0]));
    }
    PP_TRY_UNDO(cfg->source && cfg->source->origins ? 0 : PP_ERESOURCE, pp_config_destroy(&cfg));
    if (!getcwd(cfg->source->cwd, sizeof(cfg->source->cwd)))
        cfg->source->cwd[0] = '\0'; /* reported if a relative path needs it */
    for (int i = 0; i < conf_option_count(); i++) {
        const struct conf_option *o = conf_option(i);
        char why[CONF_WHY_MAX];
        cfg->source->origins[i].from = CONF_FROM_DEFAULT;
        /* without names: a list that lacks a default is not a mistake of the user */
        int rc = conf_value_parse(o, o->def, "/", NULL, cfg, why);
        pp_assert(rc == 0);
    }
    *out = cfg;
    return 0;
}

void pp_config_destroy(struct pp_config **cfg)
{
    if (!cfg || !*cfg)
        return;
    struct pp_config_source *src = (*cfg)->source;
    if (src) {
        for (int i = 0; src->origins && i < conf_option_count(); i++)
            pp_free(src->origins[i].text);
        conf_problems_fini(&src->problems);
        conf_problems_fini(&src->notes);
        pp_free(src->origins);
        pp_free(src->file);
        pp_free(src->path);
        pp_free(src->text);
        pp_free(src->name);
        pp_free(src);
    }
    pp_free(*cfg);
    *cfg = NULL;
}

/* Creates a config with the defaults and reads the file's `text` into it; text NULL: there is no
 * file. */
static int read_defaults_and_file(const char *path, const char *text, size_t bytes,
                                  const struct pp_names *names, struct pp_config **cfg)
{
    PP_TRY(create_config(cfg));
    PP_TRY(describe_file((*cfg)->source, path));
    return text ? conf_ini_read(*cfg, text, bytes, names) : 0;
}

/* Marks the keys that model.from should have set as bad. Called after it failed, so that no check
 * complains about their defaults. */
static void mark_unread(struct pp_config *cfg)
{
    for (int i = 0; i < conf_option_count(); i++) {
        struct conf_origin *origin = &cfg->source->origins[i];
        bool of_model = strncmp(conf_option(i)->name, "model.", 6) == 0;
        origin->bad = origin->bad || (of_model && origin->from == CONF_FROM_DEFAULT);
    }
}

/* Sets the keys of the model from the folder that model.from names, and empties model.from, because
 * the keys have its values now. A PyTorch archive stays: it is the model. */
static void read_foreign(struct pp_config *cfg, const struct pp_names *names)
{
    if (!names || !names->from || cfg->model.from[0] == '\0' ||
        cfg->source->origins[conf_option_index("model.from")].bad)
        return;
    int before = pp_config_problem_count(cfg);
    names->from(cfg, names);
    if (pp_config_problem_count(cfg) > before)
        mark_unread(cfg);
    if (strcmp(cfg->model.type, "graph") == 0) /* the model is the file */
        return;
    cfg->model.from[0] = '\0';
    cfg->model.is_foreign = true;
}

int pp_config_load(const char *path, const struct pp_setting *settings, int n_settings,
                   const struct pp_names *names, struct pp_config **out)
{
    PP_OWN_MEMORY char *text = NULL;
    size_t bytes = 0;
    *out = NULL;
    if (path)
        PP_TRY(read_config_text(path, &text, &bytes));
    PP_TRY_UNDO(read_defaults_and_file(path, text, bytes, names, out), pp_config_destroy(out));
    (*out)->source->path = path ? pp_strdup(path) : NULL;
    (*out)->source->no_memory |= path && !(*out)->source->path;
    (*out)->source->text = text;
    text = NULL;
    apply_settings(*out, settings, n_settings, names);
    read_foreign(*out, names);
    (*out)->run.cores = pp_machine_whole_cores();
    conf_check(*out, names);
    int rc = pp_config_verdict(*out);
    if (rc < 0 && rc != PP_ECONFIG)
        pp_config_destroy(out);
    return rc;
}
