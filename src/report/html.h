/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A page that needs nothing but itself: the style sheet, text that can hold anything, numbers as
 * people read them. Everything that comes from a file goes through html_text().
 */
#ifndef PPCLI_REPORT_HTML_H
#define PPCLI_REPORT_HTML_H

#include <stdio.h>

/* From <!doctype> to the opened <main>. */
void html_begin(FILE *f, const char *title);
void html_end(FILE *f);

/* Escaped for text and for quoted attributes; what is no UTF-8 or no character becomes U+FFFD. */
void html_text(FILE *f, const char *text);

#define HTML_NUMBER_MAX 40 /* bytes that any of these fits in */

/* "16,203.5"; an en dash where the value is not finite. Returns out. */
char *html_number(double value, int decimals, char out[HTML_NUMBER_MAX]);
char *html_percent(double share, int decimals, char out[HTML_NUMBER_MAX]); /* "97.9 %" */
char *html_bytes(double bytes, char out[HTML_NUMBER_MAX]);                 /* "6.4 MiB" */
char *html_seconds(double seconds, char out[HTML_NUMBER_MAX]);             /* "12.1 s", "1:02:03" */
char *html_figures(double value, int digits, char out[HTML_NUMBER_MAX]);   /* "0.0477", "1.2e-07" */

/* "16.2k" for an axis: in the unit that suits its largest number. */
char *html_short(double value, double largest, char out[HTML_NUMBER_MAX]);

/* <td class="n">...</td> with any of them */
void html_cell(FILE *f, const char *number);

#endif
