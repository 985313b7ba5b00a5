/* SPDX-License-Identifier: Apache-2.0
 *
 * The page of a plan. The data is JSON in a script element of another type, which browsers do not
 * run; page.js reads it.
 */
#include "app/plan/json.h"

#include <string.h>

/* Appends JSON without line breaks and indentation, so that nothing in it ends or begins markup:
 * `<`, `>`, `&` and the two line separators of Unicode, which only strings can have, become
 * escapes. */
static void append_data(const char *json, ech_text *out)
{
    for (const char *at = json; *at;) {
        size_t plain = strcspn(at, "<>&\n\xe2");
        ech_text_append_bytes(out, at, plain);
        at += plain;
        if (!*at) return;
        if (*at == '\n') {
            at += 1 + strspn(at + 1, " ");
        } else if (strncmp(at, "\xe2\x80\xa8", 3) == 0 || strncmp(at, "\xe2\x80\xa9", 3) == 0) {
            ech_text_append(out, at[2] == '\xa8' ? "\\u2028" : "\\u2029");
            at += 3;
        } else if (*at == '\xe2') {
            ech_text_append_bytes(out, at++, 1);
        } else {
            ech_text_append(out, "\\u%04x", (unsigned)*at++);
        }
    }
}

void ech_plan_page(const char *json, ech_text *out)
{
    ech_text_append(out,
                    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
                    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
                    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                    "style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; "
                    "form-action 'none'\"/>\n<title>Echelon plan</title>\n<style>\n");
    ech_text_append_bytes(out, ech_plan_page_style, strlen(ech_plan_page_style));
    ech_text_append(out, "</style>\n</head>\n<body>\n<main id=\"page\"></main>\n"
                         "<noscript>This page draws the plan with a script.</noscript>\n"
                         "<script type=\"application/json\" id=\"data\">");
    append_data(json, out);
    ech_text_append(out, "</script>\n<script>\n");
    ech_text_append_bytes(out, ech_plan_page_script, strlen(ech_plan_page_script));
    ech_text_append(out, "\nechelonPage(document.getElementById(\"page\"), "
                         "JSON.parse(document.getElementById(\"data\").textContent));\n"
                         "</script>\n</body>\n</html>\n");
}
