/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the files of a vocabulary: tokenizer.json, or GPT-2's older pair of files, which it
 * joins. */
#include <string.h>
#include <unistd.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"
#include "tokenizer.h"

#define BYTES_MAX ((uint64_t)256 << 20)

static const char *const pairs[][2] = {{"vocab.json", "merges.txt"}, {"encoder.json", "vocab.bpe"}};

static bool find_vocabulary_file(const char *dir, const char *name, char out[PP_PATH_MAX])
{
    bool fits = snprintf(out, PP_PATH_MAX, "%s/%s", dir, name) < PP_PATH_MAX;
    return fits && access(out, F_OK) == 0;
}

bool pp_tokenizer_is_in(const char *dir)
{
    char path[PP_PATH_MAX];
    return find_vocabulary_file(dir, "tokenizer.json", path) ||
           (find_vocabulary_file(dir, pairs[0][0], path) &&
            find_vocabulary_file(dir, pairs[0][1], path)) ||
           (find_vocabulary_file(dir, pairs[1][0], path) &&
            find_vocabulary_file(dir, pairs[1][1], path));
}

static void print_merges(struct pp_json *j, char *merges)
{
    pp_json_array(j, "merges");
    char *next = merges += pp_text_bom(merges);
    for (char *line; (line = strsep(&next, "\r\n"));)
        if (line[0] && !(line == merges && strncmp(line, "#version", 8) == 0))
            pp_json_str(j, NULL, line);
    pp_json_end(j);
}

/* Joins GPT-2's pair of files into the text of one tokenizer.json. The special token is GPT-2's, if
 * the vocabulary has it. */
static int join_pair(const char *path, const char *vocab, size_t bytes, char *merges, char **out)
{
    static const struct pp_json_limits limits = {1, 0, 1 << 22};
    static const char mark[] = "<|endoftext|>";
    size_t n = 0;
    char *text = NULL;
    json_auto_t *root = NULL;
    PP_TRY(pp_json_read(path, vocab, bytes, &limits, &root));
    const json_t *id = json_object_get(root, mark);
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return pp_fail(PP_ERESOURCE, "%s: out of memory", path);
    struct pp_json j =
        tokenizer_begin_json(f, id ? mark : NULL, json_integer_value(id),
                             TOKENIZER_BYTE_LEVEL("true"), TOKENIZER_BYTE_LEVEL("true"));
    pp_json_raw(&j, "vocab", vocab);
    print_merges(&j, merges);
    return tokenizer_end_json(&j, &text, out);
}

static int open_pair(const char *vocab_path, const char *merges_path, struct pp_tokenizer **out)
{
    PP_OWN_MEMORY char *vocab = NULL, *merges = NULL, *json = NULL;
    size_t bytes = 0;
    PP_TRY(pp_file_read(vocab_path, BYTES_MAX, &vocab, &bytes));
    size_t vocab_bytes = bytes;
    PP_TRY(pp_file_read(merges_path, BYTES_MAX, &merges, &bytes));
    PP_TRY(join_pair(vocab_path, vocab, vocab_bytes, merges, &json));
    return pp_tokenizer_parse(merges_path, json, strlen(json), out);
}

int pp_tokenizer_open(const char *path, struct pp_tokenizer **out)
{
    char file[PP_PATH_MAX], other[PP_PATH_MAX];
    PP_OWN_MEMORY char *text = NULL;
    size_t bytes = 0;
    for (int i = 0; i < 2 && !find_vocabulary_file(path, "tokenizer.json", file); i++)
        if (find_vocabulary_file(path, pairs[i][0], file) &&
            find_vocabulary_file(path, pairs[i][1], other))
            return open_pair(file, other, out);
    if (!find_vocabulary_file(path, "tokenizer.json", file) &&
        find_vocabulary_file(path, ".", other))
        return pp_fail(PP_ENOINPUT,
                       "%s: has no tokenizer.json, and no vocab.json with merges.txt; 'ppcli "
                       "tokenize --train' makes one",
                       path);
    const char *at = access(file, F_OK) == 0 ? file : path;
    PP_TRY(pp_file_read(at, BYTES_MAX, &text, &bytes));
    return pp_tokenizer_parse(at, text, bytes, out);
}
