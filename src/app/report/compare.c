/* SPDX-License-Identifier: Apache-2.0
 *
 * Several runs: what they differ in, as a table for the terminal and as a page with their charts.
 */
#include <stdlib.h>
#include <string.h>

#include "app/report/parts.h"
#include "app/report/report.h"
#include "base/file.h"
#include "base/writing.h"

typedef ECH_LIST(const char *) keys;

typedef struct comparison {
    ech_report *report;
    int n;
    const char *const *directories;
    keys different, common; /* of facts */
} comparison;

/* The value of a fact; "": the run has none. */
static const char *fact_of(const ech_report *report, const char *key)
{
    for (size_t i = 0; i < report->page.facts.n; i++) {
        const ech_report_fact *fact = &report->page.facts.at[i];
        if (strcmp(fact->key, key) == 0 && fact->value.n) return fact->value.at;
    }
    return "";
}

static bool is_common(const comparison *c, const char *key)
{
    for (int r = 1; r < c->n; r++)
        if (strcmp(fact_of(&c->report[r], key), fact_of(&c->report[0], key)) != 0) return false;
    return true;
}

static bool has_key(const keys *among, const char *key)
{
    for (size_t i = 0; i < among->n; i++)
        if (strcmp(among->at[i], key) == 0) return true;
    return false;
}

static void compare_facts(comparison *c)
{
    for (int r = 0; r < c->n; r++)
        for (size_t i = 0; i < c->report[r].page.facts.n; i++) {
            const ech_report_fact *fact = &c->report[r].page.facts.at[i];
            keys *of = is_common(c, fact->key) ? &c->common : &c->different;
            if (fact->value.n && !has_key(of, fact->key)) ECH_PUSH(*of, fact->key);
        }
}

/* ---- for the terminal ---- */

enum { KEY_COLUMNS = 28 };

/* Of a run's column: whole values, as runs may differ in the end of a value alone. */
static int width_of(const comparison *c, int r)
{
    size_t width = strlen(c->report[r].directory);
    for (size_t k = 0; k < c->different.n; k++) {
        size_t n = strlen(fact_of(&c->report[r], c->different.at[k]));
        if (n > width) width = n;
    }
    return (int)width;
}

static void print_row(const comparison *c, const char *key, ech_text *out)
{
    ech_text_append(out, "%-*s", KEY_COLUMNS, key);
    for (int r = 0; r < c->n; r++) {
        const char *value = key[0] ? fact_of(&c->report[r], key) : c->report[r].directory;
        ech_text_append(out, "  %-*s", width_of(c, r), value);
    }
    while (out->n && out->at[out->n - 1] == ' ') out->at[--out->n] = '\0';
    ech_text_append(out, "\n");
}

/* Facts that differ come first, in columns; a run without a fact has an empty place. */
static void print(const comparison *c, ech_text *out)
{
    print_row(c, "", out);
    for (size_t k = 0; k < c->different.n; k++) print_row(c, c->different.at[k], out);
    ech_text_append(out, "\nthe same in all:\n");
    for (size_t k = 0; k < c->common.n; k++)
        ech_text_append(out, "%-*s  %s\n", KEY_COLUMNS, c->common.at[k],
                        fact_of(&c->report[0], c->common.at[k]));
}

/* ---- the page ---- */

static void add_charts(const comparison *c, ech_report_page *page)
{
    for (size_t chart = 0; chart < c->report[0].page.charts.n; chart++)
        for (int r = 0; r < c->n; r++) ECH_PUSH(page->charts, c->report[r].page.charts.at[chart]);
}

static void add_common_facts(const comparison *c, ech_report_page *page)
{
    for (size_t k = 0; k < c->common.n; k++) {
        const char *key = c->common.at[k];
        ech_report_fact fact = {.key = key};
        ech_text_append(&fact.value, "%s", fact_of(&c->report[0], key));
        ECH_PUSH(page->facts, fact);
    }
}

static void add_table(const comparison *c, ech_report_table *table)
{
    for (size_t k = 0; k < c->different.n; k++) {
        ECH_PUSH(table->cell, c->different.at[k]);
        for (int r = 0; r < c->n; r++)
            ECH_PUSH(table->cell, fact_of(&c->report[r], c->different.at[k]));
    }
}

static ech_status write_page(const comparison *c, const char *path)
{
    ECH_FREED_TEXT title = {0}, html = {0};
    ech_report_table table = {0};
    ech_report_page page = {.table = &table, .runs = c->n, .names = c->directories};
    ech_text_append(&title, "%d runs side by side", c->n);
    page.title = title.at;
    add_table(c, &table);
    add_charts(c, &page);
    add_common_facts(c, &page);
    ech_report_html(&page, &html);
    for (size_t i = 0; i < page.facts.n; i++) ech_text_free(&page.facts.at[i].value);
    free(page.facts.at);
    free(page.charts.at);
    free(table.cell.at);
    return ech_file_write(path, html.at, html.n);
}

ech_status ech_report_compare(char *const *directories, int n, const char *path, ech_text *out)
{
    ECH_FREED ech_report *reports = ech_calloc((size_t)n, sizeof *reports);
    comparison c = {.report = reports, .n = n, .directories = (const char *const *)directories};
    ech_status status = ECH_OK;
    for (int r = 0; r < n && status == ECH_OK; r++) {
        reports[r] = (ech_report){.directory = directories[r], .pool = ech_pool_create()};
        status = ech_report_open(&reports[r]);
    }
    if (status == ECH_OK) {
        compare_facts(&c);
        print(&c, out);
        if (path) status = write_page(&c, path);
        if (path) ech_text_append(out, "\nwritten to %s\n", path);
    }
    for (int r = 0; r < n && reports[r].pool; r++) ech_report_release(&reports[r]);
    free(c.different.at);
    free(c.common.at);
    return status;
}
