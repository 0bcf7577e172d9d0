/* SPDX-License-Identifier: Apache-2.0 */
/* SVG to a file as it is, or as PDF or PNG by the program rsvg-convert. */

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ppcli/base/files.h"
#include "ppcli/show/report.h"

struct picture {
    const char *format;
    int (*draw)(const void *ctx, FILE *f);
    const void *ctx;
};

/* Converts the SVG in `in` with rsvg-convert and writes the result to `out`. A PNG has three times
 * the picture's width and height in pixels. No text of the user is in the shell's command. */
static int run_rsvg(const char *format, FILE *in, FILE *out)
{
    char command[128];
    snprintf(command, sizeof(command),
             "rsvg-convert -f %s -z %d </dev/fd/%d >/dev/fd/%d 2>/dev/null", format,
             strcmp(format, "png") == 0 ? 3 : 1, fileno(in), fileno(out));
    int status = system(command);
    if (status == -1)
        return pp_fail_errno(PP_ERESOURCE, "cannot start rsvg-convert");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return pp_fail(PP_ERESOURCE,
                       "%s needs the program rsvg-convert, which PATH does not have: install "
                       "librsvg2-bin (Debian) or "
                       "librsvg2-tools (Fedora), or write an .svg",
                       format);
    return status == 0 ? 0 : pp_fail(PP_EIO, "rsvg-convert could not write the %s", format);
}

static int convert_picture(const void *ctx, FILE *out)
{
    const struct picture *p = ctx;
    PP_OWN(pp_fclose_at) FILE *in = NULL;
    if (strcmp(p->format, "svg") == 0)
        return p->draw(p->ctx, out);
    if (isatty(fileno(out)))
        return pp_fail(PP_EUSAGE, "a terminal cannot show %s, so -o FILE.%s is needed", p->format,
                       p->format);
    if (!(in = tmpfile()))
        return pp_fail_errno(PP_EIO, "a temporary file for the picture");
    PP_TRY(p->draw(p->ctx, in));
    if (fflush(in) != 0 || fflush(out) != 0)
        return pp_fail_errno(PP_EIO, "cannot write the picture");
    return run_rsvg(p->format, in, out);
}

int pp_picture_write(const char *path, const char *format, int (*draw)(const void *ctx, FILE *f),
                     const void *ctx)
{
    const char *dot = path ? strrchr(path, '.') : NULL;
    struct picture p = {format ? format : dot ? dot + 1 : "svg", draw, ctx};
    if (strcmp(p.format, "svg") != 0 && strcmp(p.format, "pdf") != 0 &&
        strcmp(p.format, "png") != 0)
        return pp_fail(PP_EUSAGE, "-o %s: a picture is .svg, .pdf or .png", path);
    return pp_file_draw(path ? path : "-", convert_picture, &p);
}
