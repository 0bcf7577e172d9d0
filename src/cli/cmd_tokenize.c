/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli tokenize: texts to files of tokens; a vocabulary of one's own. */
#include "ppcli/base/base.h"
#include "ppcli/data/tokenizer.h"
#include "command.h"

#define FILES_MAX 4096

static void print_result(const struct pp_tokenize *job, const struct pp_tokenized *t)
{
    char n[2][PP_COUNT_TEXT], dir[PP_PATH_MAX];
    pp_text_shown(job->dir, dir, sizeof(dir));
    printf("%s/train.bin: %s tokens of %d bytes\n", dir,
           pp_text_commas((double)(t->tokens - t->validation), n[0]), t->token_bytes);
    if (t->validation > 0)
        printf("%s/val.bin: %s\n", dir, pp_text_commas((double)t->validation, n[1]));
    printf("%s/tokenizer.json: %d different ones\n", dir, t->vocabulary);
    printf("in a config: data.dataset = tokens, data.path = %s, data.token_bytes = %d\n", dir,
           t->token_bytes);
    pp_log_info("%.1f MB at %.1f MB/s, %.2f bytes a token", (double)t->bytes * 1e-6,
                (double)t->bytes * 1e-6 / t->seconds, (double)t->bytes / (double)t->tokens);
}

int cmd_tokenize(int argc, char **argv)
{
    static const char *files[FILES_MAX + 1];
    struct pp_tokenize job = {.paths = files, .validation = 0.1};
    struct pp_tokenized result;
    const struct pp_cli_option options[] = {
        {"output", 'o', PP_CLI_STRING, &job.dir, "DIR", "folder for what is written; it is made"},
        {"tokenizer", 0, PP_CLI_STRING, &job.tokenizer, "DIR",
         "folder of tokenizer.json, or vocab.json; -o's"},
        {"train", 0, PP_CLI_INT, &job.train, "N", "make a vocabulary of N tokens of these files"},
        {"validation", 0, PP_CLI_NUMBER, &job.validation, "X",
         "share of the tokens, the last, for val.bin; 0.1"},
        {0},
    };
    PP_TRY(pp_cli_parse(argc, argv, &command_tokenize, options, NULL, files, FILES_MAX));
    while (files[job.n_paths])
        job.n_paths++;
    if (job.n_paths == 0 || !job.dir || !job.dir[0] || (job.train != 0 && job.tokenizer)) {
        return pp_fail(PP_EUSAGE, "name texts, -o DIR, and --tokenizer or --train. For example: "
                                  "ppcli tokenize book.txt -o data --train 2000");
    }
    if (job.train != 0 && (job.train < 257 || job.train > 1 << 24))
        return pp_fail(PP_EUSAGE, "--train needs 257 (bytes and one mark) to %d tokens", 1 << 24);
    if (job.validation > 0.9)
        return pp_fail(PP_EUSAGE, "--validation needs a share of 0 to 0.9");
    if (!job.tokenizer && job.train == 0 && !pp_tokenizer_is_in(job.dir)) {
        return pp_fail(PP_EUSAGE,
                       "%s has no tokenizer yet: make one with --train 2000, or name one "
                       "with --tokenizer DIR",
                       job.dir);
    }
    if (!job.tokenizer)
        job.tokenizer = job.dir;
    PP_TRY(pp_tokenize(&job, &result));
    print_result(&job, &result);
    return 0;
}
