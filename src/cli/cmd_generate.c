/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli generate: continue a text. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ppcli/train/train.h"
#include "ppcli/base/base.h"
#include "ppcli/nn/chunk.h"
#include "command.h"

#define PROMPT_BYTES_MAX ((uint64_t)64 << 20)

#define STOP_BYTES_MAX 256

struct writing {
    const char *weights, *prompt, *prompt_file, *stop;
    int tokens, top_k;
    double temperature;
    uint64_t seed;
    struct pp_generator *g;
    const struct pp_vocabulary *v; /* n 0: tokens are numbers */
    uint32_t *read;                /* [n_read] tokens of the prompt */
    size_t n_read;
    int *heap;   /* [top_k] */
    bool screen; /* stdout is a terminal, which control characters would confuse */
    bool any;    /* something was printed */
    /* Bytes that are not printed yet: the beginning of a character, or of --stop. */
    char waiting[STOP_BYTES_MAX + PP_TOKEN_TEXT];
    size_t n_waiting;
    bool stopped; /* --stop was made */
};

/* Reads a text such as "464 3290" as token numbers. */
static int parse_numbers(struct writing *w, const char *label, const char *text, int most)
{
    for (const char *p = text; *(p += strspn(p, " \t\r\n"));) {
        char *end;
        errno = 0;
        long long token = isdigit((unsigned char)*p) ? strtoll(p, &end, 10) : -1;
        if (token < 0 || errno != 0 || (*end && !isspace((unsigned char)*end))) {
            int n = (int)strcspn(p, " \t\r\n");
            return pp_fail(PP_EUSAGE,
                           "%s: '%.*s': this model reads token numbers and has no tokenizer: write "
                           "numbers, such as 464 3290, or set data.tokenizer",
                           label, n > 20 ? 20 : n, p);
        }
        if (token >= most) {
            return pp_fail(PP_EUSAGE, "%s: token %lld, but the model has 0 to %d", label, token,
                           most - 1);
        }
        w->read[w->n_read++] = (uint32_t)token;
        p = end;
    }
    return 0;
}

static int read_prompt(struct writing *w)
{
    const char *label = w->prompt ? "--prompt" : w->prompt_file;
    char *text = NULL;
    size_t bytes = 0;
    bool in = !w->prompt && strcmp(w->prompt_file, "-") == 0;
    if (w->prompt) {
        text = pp_strdup(w->prompt);
        bytes = strlen(w->prompt);
        PP_TRY(text ? 0 : PP_ERESOURCE);
    } else if (in) {
        label = "<stdin>";
        PP_TRY(pp_fd_read(STDIN_FILENO, label, PROMPT_BYTES_MAX, &text, &bytes));
    } else {
        PP_TRY(pp_file_read(w->prompt_file, PROMPT_BYTES_MAX, &text, &bytes));
    }
    int most = pp_generator_tokens(w->g), rc;
    size_t bom = pp_text_bom(text); /* of an editor, not of the prompt */
    memmove(text, text + bom, (bytes -= bom) + 1);
    if (w->v->bpe) { /* may be more tokens than bytes */
        struct pp_ids ids = {0};
        rc = pp_tokenizer_encode(w->v->bpe, label, text, bytes, &ids);
        w->read = ids.at;
        w->n_read = ids.n;
    } else {
        w->read = pp_alloc(bytes + 1, sizeof(*w->read));
        rc = !w->read       ? PP_ERESOURCE
             : w->v->n == 0 ? parse_numbers(w, label, text, most)
                            : pp_vocabulary_encode(w->v, label, text, bytes, PP_U32, bytes, w->read,
                                                   &w->n_read);
    }
    pp_free(text);
    if (rc == 0 && w->n_read == 0)
        rc = pp_fail(PP_EUSAGE, "%s: an empty prompt; one token is needed to begin with", label);
    return rc;
}

/* Prints the first n of the bytes that wait. Bytes that do not form a character, which subwords may
 * contain, are printed as U+FFFD. */
static void print_waiting(struct writing *w, size_t n)
{
    w->waiting[w->n_waiting] = '\0';
    for (size_t i = 0, m; i < n; i += m) {
        const char *at = w->waiting + i;
        size_t whole = w->v->bpe ? (size_t)pp_utf8_length(at) : 1;
        m = whole > 0 && whole <= n - i ? whole : 1;
        if (whole != m)
            fputs("\xef\xbf\xbd", stdout);
        else if (w->screen && iscntrl((unsigned char)*at) && !strchr("\n\t", *at))
            putchar('?');
        else
            fwrite(at, 1, m, stdout);
    }
    memmove(w->waiting, w->waiting + n, w->n_waiting -= n);
}

/* Returns how many bytes at the end of the text are the beginning of an incomplete character. */
static size_t count_begun(const char *text, size_t n)
{
    size_t back = 1;
    while (back < n && back < 4 && ((unsigned char)text[n - back] & 0xc0) == 0x80)
        back++;
    unsigned char lead = n > 0 ? (unsigned char)text[n - back] : 0;
    size_t whole = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    return whole > back ? back : 0;
}

/* Adds a byte to the text, and prints the bytes that need not wait. `made` is true if the model
 * made it: only then the text is searched for --stop. */
static void take_byte(struct writing *w, char c, bool made)
{
    size_t m = made && w->stop ? strlen(w->stop) : 0, keep = 0;
    w->waiting[w->n_waiting++] = c;
    if (m > 0 && w->n_waiting >= m && memcmp(w->waiting + w->n_waiting - m, w->stop, m) == 0) {
        w->stopped = true;
        print_waiting(w, w->n_waiting - m);
        w->n_waiting = 0;
        return;
    }
    for (size_t k = m < w->n_waiting ? m : w->n_waiting; k > 0 && keep == 0; k--)
        if (memcmp(w->waiting + w->n_waiting - k, w->stop, k) == 0)
            keep = k;
    size_t begun = count_begun(w->waiting, w->n_waiting);
    keep = keep > begun ? keep : begun;
    print_waiting(w, w->n_waiting - keep);
}

static int print_token(struct writing *w, int token, bool made)
{
    char room[PP_TOKEN_TEXT];
    size_t bytes;
    const char *text = pp_vocabulary_decode(w->v, token, room, &bytes);
    bool opens = !w->any && w->v->bpe && w->v->bpe->opens_with_space && bytes > 0 && text[0] == ' ';
    for (size_t i = opens; i < bytes && !w->stopped; i++)
        take_byte(w, text[i], made);
    if (w->v->n == 0)
        printf("%s%d", w->any ? " " : "", token);
    w->any = true;
    return fflush(stdout) == 0 ? 0 : pp_fail_errno(PP_EIO, "cannot write the text");
}

/* Returns whether the token ends the text. Only a vocabulary of subwords can have such a token. */
static bool ends_text(const struct writing *w, int token)
{
    return w->v->bpe && token == w->v->bpe->eos;
}

/* Prints the prompt, lets the model read the end of it that fits into the context, and then makes
 * the text token by token. */
static int write_text(struct writing *w, int context)
{
    const volatile sig_atomic_t *stop = &pp_process_stop;
    const float *logits = NULL;
    uint64_t stream = pp_rng_stream("generate", 0), start = pp_clock_ns();
    size_t first = w->n_read > (size_t)context ? w->n_read - (size_t)context : 0;
    int made = 0, n = pp_generator_tokens(w->g), rc = 0;
    for (size_t i = 0; rc == 0 && i < w->n_read; i++)
        rc = print_token(w, (int)w->read[i], false);
    for (size_t i = first, more; rc == 0 && i < w->n_read && !*stop; i += more) {
        more = w->n_read - i < PP_READ_AT_ONCE ? w->n_read - i : PP_READ_AT_ONCE;
        rc = pp_generator_read(w->g, w->read + i, (int)more, &logits);
    }
    while (rc == 0 && made < w->tokens && !*stop && !w->stopped) {
        double u = pp_rng_u32(w->seed, stream, (uint64_t)made) * 0x1p-32;
        int token = pp_sample(logits, n, w->temperature, w->top_k, u, w->heap);
        if (ends_text(w, token))
            break;
        rc = print_token(w, token, true);
        if (++made < w->tokens && rc == 0 && !w->stopped)
            rc = pp_generator_read(w->g, &(uint32_t){(uint32_t)token}, 1, &logits);
    }
    print_waiting(w, w->n_waiting);
    if (w->any)
        putchar('\n');
    double seconds = (double)(pp_clock_ns() - start) * 1e-9;
    pp_log_info("%zu tokens read, %d made, %.0f tokens/s", w->n_read - first, made,
                ((double)(w->n_read - first) + made) / seconds);
    return rc < 0 || !*stop ? rc : pp_fail(PP_ESTOPPED, "stopped after %d tokens", made);
}

static int generate_text(struct writing *w, const struct pp_config *cfg)
{
    PP_TRY(pp_generator_create(cfg, w->weights, &w->g));
    w->v = pp_generator_vocabulary(w->g);
    if (w->top_k >= pp_generator_tokens(w->g))
        w->top_k = 0;
    w->heap = pp_alloc((size_t)w->top_k, sizeof(*w->heap));
    PP_TRY(w->heap ? read_prompt(w) : PP_ERESOURCE);
    if (w->stop && w->v->n == 0)
        return pp_fail(PP_EUSAGE, "--stop: this model reads token numbers and has no tokenizer");
    pp_signals_catch("ppcli: stopping after this token; Ctrl-C again quits at once\n");
    return write_text(w, cfg->model.block_size);
}

int cmd_generate(int argc, char **argv)
{
    struct writing w = {.tokens = 200, .temperature = 1, .screen = isatty(STDOUT_FILENO)};
    struct pp_cli_settings settings = {0};
    const struct pp_cli_option options[] = {
        {"checkpoint", 0, PP_CLI_STRING, &w.weights, "PATH",
         "a checkpoint, a run, or weights from elsewhere"},
        {"prompt", 0, PP_CLI_STRING, &w.prompt, "TEXT",
         "what to continue; without tokenizer: numbers"},
        {"prompt-file", 0, PP_CLI_STRING, &w.prompt_file, "FILE", "the same from a file; -: stdin"},
        {"tokens", 0, PP_CLI_INT, &w.tokens, "N", "how many to make; 200"},
        {"stop", 0, PP_CLI_STRING, &w.stop, "TEXT", "end where this text comes, without it"},
        {"temperature", 0, PP_CLI_NUMBER, &w.temperature, "T",
         "0: the most likely token; 1: as the model says"},
        {"top-k", 0, PP_CLI_INT, &w.top_k, "K", "only of the K most likely ones; of all"},
        {0},
    };
    const char *words[1];
    PP_TRY(pp_cli_parse(argc, argv, &command_generate, options, &settings, words, 1));
    bool is_run = false;
    PP_TRY(pp_cli_is_run(words[0], &is_run));
    w.weights = !w.weights && is_run ? words[0] : w.weights;
    if (words[0] && !w.weights)
        return pp_cli_refuse_run(words[0], "add --checkpoint, or name a run");
    if (!words[0] || !w.weights || !w.weights[0] || !w.prompt == !w.prompt_file) {
        return pp_fail(PP_EUSAGE,
                       "name a run (or a config and --checkpoint) and one prompt. For example: "
                       "ppcli generate runs/a --prompt \"ROMEO:\"");
    }
    if (w.stop && (!w.stop[0] || strlen(w.stop) > STOP_BYTES_MAX))
        return pp_fail(PP_EUSAGE, "--stop needs a text of 1 to %d bytes", STOP_BYTES_MAX);
    if (w.tokens < 1 || w.top_k < 0)
        return pp_fail(PP_EUSAGE, "--tokens needs at least 1, --top-k at least 0 (all tokens)");
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    PP_TRY(pp_cli_load_config(words[0], &settings, &cfg));
    w.seed = cfg->train.seed;
    int rc = generate_text(&w, cfg);
    pp_generator_destroy(&w.g);
    pp_free(w.read);
    pp_free(w.heap);
    return pp_cli_config_verdict(cfg, rc);
}
