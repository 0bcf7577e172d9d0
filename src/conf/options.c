/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The option table: every key, once. The rows in include/ppcli/conf/keys_SECTION.def define struct
 * pp_config, the INI reader, --set, `ppcli keys`, the published schema, ppcli.ini(5), the
 * completions, the resolved config and the checks of keys that need others:
 *
 *   PP_KEY(section, TYPE, key, members of struct conf_option)      TYPE: CONF_TYPE, PP_MEMBER_TYPE
 *   PP_CHOICE(section, enum pp_x or int, key, members)             CONF_ENUM with values of that type
 */
#include "conf.h"

#include <string.h>

#include "ppcli/conf/config.h"

static const struct conf_choice activations[] = {
#define PP_ACTIVATION(NAME, word, ...) {#word, PP_ACT_##NAME},
#include "ppcli/conf/activations.def"
    {NULL, 0}};
static const struct conf_choice ffn_activations[] = {{"auto", -1},
#define PP_ACTIVATION(NAME, word, ...) {#word, PP_ACT_##NAME},
#include "ppcli/conf/activations.def"
                                                     {NULL, 0}};
static const struct conf_choice optimizers[] = {
#define PP_OPTIMIZER(NAME, word, moments) {#word, PP_OPT_##NAME},
#include "ppcli/conf/optimizers.def"
    {NULL, 0}};

#define CHOICES(...)                                                                               \
    (const struct conf_choice[])                                                                   \
    {                                                                                              \
        __VA_ARGS__,                                                                               \
        {                                                                                          \
            NULL, 0                                                                                \
        }                                                                                          \
    }
#define LIST(member) .names = offsetof(struct pp_names, member)
#define CONF_FILE CONF_NAME, .file = true /* a name, or file:PATH */
#define PP_KEY(sec, t, k, ...)                                                                     \
    {.name = #sec "." #k,                                                                          \
     .section = #sec,                                                                              \
     .key = #k,                                                                                    \
     .offset = offsetof(struct pp_config, sec.k),                                                  \
     .type = CONF_##t,                                                                             \
     __VA_ARGS__},
#define PP_CHOICE(sec, type, k, ...) PP_KEY(sec, ENUM, k, __VA_ARGS__)

static const struct conf_option table[] = {
#include "ppcli/conf/keys_data.def"
#include "ppcli/conf/keys_model.def"
#include "ppcli/conf/keys_pipeline.def"
#include "ppcli/conf/keys_train.def"
#include "ppcli/conf/keys_checkpoint.def"
#include "ppcli/conf/keys_run.def"
};

int conf_option_count(void)
{
    return (int)(sizeof(table) / sizeof(table[0]));
}

const struct conf_option *conf_option(int i)
{
    pp_assert(i >= 0 && i < conf_option_count());
    return &table[i];
}

int conf_option_index(const char *name)
{
    for (int i = 0; i < conf_option_count(); i++)
        if (strcmp(table[i].name, name) == 0)
            return i;
    return -1;
}

int conf_option_find(const char *section, const char *key)
{
    for (int i = 0; i < conf_option_count(); i++)
        if (strcmp(table[i].section, section) == 0 && strcmp(table[i].key, key) == 0)
            return i;
    return -1;
}

void conf_sections(const char *out[CONF_SECTIONS_MAX])
{
    int n = 0;
    for (int i = 0; i < conf_option_count(); i++) {
        if (i == 0 || strcmp(table[i].section, table[i - 1].section) != 0) {
            pp_assert(n < CONF_SECTIONS_MAX - 1);
            out[n++] = table[i].section;
        }
    }
    out[n] = NULL;
}

const char *const *conf_names_of(const struct conf_option *o, const struct pp_names *names)
{
    if (!names || o->type != CONF_NAME || o->free)
        return NULL;
    return *(const char *const *const *)((const char *)names + o->names);
}

const char *const *conf_lines_of(const struct conf_option *o, const struct pp_names *names)
{
    return names && o->lines ? *(const char *const *const *)((const char *)names + o->lines) : NULL;
}

static const char *format_words(const struct conf_option *o, const char *const *names, char *out,
                                size_t bytes)
{
    size_t used = 0;
    out[0] = '\0';
    if (o->word)
        used = (size_t)snprintf(out, bytes, "%s", o->word);
    for (int i = 0; used < bytes; i++) {
        const char *word = names ? names[i] : o->choices[i].name;
        if (!word)
            break;
        used += (size_t)snprintf(out + used, bytes - used, "%s%s", used ? " | " : "", word);
    }
    return out;
}

const char *conf_range_text(const struct conf_option *o, const struct pp_names *names, char *out,
                            size_t bytes)
{
    const char *const *list = conf_names_of(o, names);
    const char *unit = o->unit ? o->unit : "", *space = o->unit ? " " : "";
    out[0] = '\0';
    switch (o->type) {
    case CONF_INT:
    case CONF_INT64:
    case CONF_BYTES:
        snprintf(out, bytes, "%s%s%.0f to %.0f%s%s", o->word ? o->word : "", o->word ? " | " : "",
                 o->min, o->max, space, unit);
        break;
    case CONF_UINT64:
        snprintf(out, bytes, "0 to %llu%s%s", (unsigned long long)UINT64_MAX, space, unit);
        break;
    case CONF_FLOAT:
        snprintf(out, bytes, "%s%.10g%s%s%.10g%s%s",
                 o->above   ? "above "
                 : o->below ? "at least "
                            : "",
                 o->min, o->above || o->below ? ", " : " ",
                 o->below   ? "below "
                 : o->above ? "at most "
                            : "to ",
                 o->max, space, unit);
        break;
    case CONF_DURATION:
        snprintf(out, bytes, "0, or %.15gs to %.15gs (ms, s, m, h)", o->min, o->max);
        break;
    case CONF_BOOL:
        snprintf(out, bytes, "true | false");
        break;
    case CONF_ENUM:
        return format_words(o, NULL, out, bytes);
    case CONF_NAME:
        if (o->free)
            snprintf(out, bytes, "%s | a name", o->word);
        return list ? format_words(o, list, out, bytes) : out;
    case CONF_PATH:
        snprintf(out, bytes, "%s%s", o->word ? o->word : "",
                 o->word ? " | a path | empty" : "a path | empty");
        break;
    case CONF_TEXT:
        snprintf(out, bytes, "%s", o->note);
        break;
    case CONF_SIZES:
        snprintf(out, bytes, "2 to %d numbers, each %.0f to %.0f", PP_MODEL_SIZES_MAX, o->min,
                 o->max);
        break;
    case CONF_ASSIGNMENT:
        snprintf(out, bytes, "auto | equal | flops | params | time | ranges");
        break;
    case CONF_LAYERS:
        snprintf(out, bytes, "%s%s | names or numbers of layers%s", o->def,
                 o->word ? " | all | auto" : "", o->word ? ", or ranges" : "");
        break;
    case CONF_DEVICES:
        snprintf(out, bytes, "auto | numbers and ranges of 0 to %d", PP_DEVICES_MAX - 1);
        break;
    case CONF_NUMBERS:
        snprintf(out, bytes, "none | %s numbers, each %.0f to %.0f",
                 o->threes ? "whole" : "ascending", o->min, o->max);
        break;
    case CONF_CHOICES: {
        int n = snprintf(out, bytes, "none | some of");
        for (const struct conf_choice *c = o->choices; c->name; c++)
            n += snprintf(out + n, bytes - (size_t)n, " %s", c->name);
        break;
    }
    case CONF_FLOATS:
        snprintf(out, bytes, "none%s%s | 1 to %d numbers, each %s%.10g to %.10g",
                 o->word ? " | " : "", o->word ? o->word : "", PP_FLOATS_MAX,
                 o->above ? "above " : "", o->min, o->max);
        break;
    }
    return out;
}

/* ---- values by name */

static const char *name_in(const char *key, int value)
{
    return conf_choice_name(conf_option(conf_option_index(key))->choices, value);
}

const char *pp_activation_name(int activation)
{
    return name_in("model.activation", activation);
}

const char *pp_optimizer_name(int optimizer)
{
    return name_in("train.optimizer", optimizer);
}

const char *pp_loss_name(enum pp_loss_kind kind)
{
    return name_in("train.loss", (int)kind);
}

int pp_optimizer_moments(int optimizer)
{
    static const int kept[] = {
#define PP_OPTIMIZER(NAME, word, moments) moments,
#include "ppcli/conf/optimizers.def"
    };
    return kept[optimizer];
}

const char *pp_precision_name(enum pp_precision p)
{
    return name_in("run.precision", (int)p);
}
