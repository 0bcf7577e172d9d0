/* SPDX-License-Identifier: Apache-2.0 */
/* A run folder as `ppcli report` reads it: the first byte says which of its files these bytes are.
 */
#include "fuzz.h"
#include "ppcli/base/files.h"
#include "ppcli/show/report.h"

static const char *const names[] = {"metrics.jsonl", "summary.json", "timeline.json",
                                    "config.resolved.ini"};
static char folder[PP_PATH_MAX];

static void remove_folder(void)
{
    rmdir(folder);
}

static void make_folder(void)
{
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(folder, sizeof(folder), "%s/ppcli-fuzz-XXXXXX", base);
    pp_assert(mkdtemp(folder) != NULL);
    atexit(remove_folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pp_report *r = NULL;
    char path[PP_PATH_MAX];
    if (size < 1)
        return 0;
    if (!folder[0])
        make_folder();
    pp_assert(pp_path_format(path, "%s/%s", folder, names[data[0] % 4]) == 0);
    FILE *f = fopen(path, "wb");
    pp_assert(f && fwrite(data + 1, 1, size - 1, f) == size - 1);
    fclose(f);
    int rc = pp_report_open(folder, &r);
    unlink(path);
    if (rc < 0) {
        fuzz_refused(rc);
        return 0;
    }
    struct pp_report_view view = {.runs = (struct pp_report *[]){r, r}, .n = 2};
    char *page = NULL;
    size_t bytes = 0;
    f = open_memstream(&page, &bytes);
    pp_assert(f && pp_report_write(&view, f) == 0);
    fclose(f);
    /* Nothing of the files may end the script that holds them, or be markup in it. */
    const char *runs = strstr(page, "id=\"data\">"), *end = runs ? strchr(runs, '<') : NULL;
    pp_assert(end && strncmp(end, "</script>\n<script>\n", 19) == 0 && bytes < 4 << 20);
    free(page);
    pp_report_close(&r);
    return 0;
}
