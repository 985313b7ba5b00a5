/* SPDX-License-Identifier: Apache-2.0
 *
 * The HTML of the page.
 */
#include "app/report/html.h"

#include "draw/svg.h"

/* Dark pages restyle what draw/svg.h draws for white paper. */
static const char style[] =
    ":root{color-scheme:light dark;--page:#f5f6f8;--paper:#ffffff;--ink:#1c2530;--faint:#5b6675;"
    "--rule:#dde1e6;--idle:#e8eaed}\n"
    "@media (prefers-color-scheme:dark){:root{--page:#12161b;--paper:#1b2129;--ink:#e8ecf1;"
    "--faint:#9fabba;--rule:#333c48;--idle:#303843}.ech-train{stroke:#56b4e9}}\n"
    "@media print{:root{--page:#ffffff;--paper:#ffffff;--ink:#1c2530;--faint:#5b6675;"
    "--rule:#dde1e6;--idle:#e8eaed}.card{break-inside:avoid}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--page);color:var(--ink);"
    "font:15px/1.5 Helvetica,Arial,'Liberation Sans','DejaVu Sans',sans-serif}\n"
    "main{max-width:1280px;margin:0 auto;padding:28px 20px 40px}\n"
    "h1{font-size:26px;line-height:1.25;margin:0 0 20px;overflow-wrap:anywhere}\n"
    "h2{font-size:17px;margin:32px 0 12px}\n"
    ".card{background:var(--paper);border:1px solid var(--rule);border-radius:10px;padding:6px;"
    "overflow-x:auto}\n"
    ".card svg{display:block;max-width:100%;height:auto}\n"
    ".wide svg{min-width:760px}\n"
    ".facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(230px,1fr));gap:1px;"
    "background:var(--paper);border:1px solid "
    "var(--rule);border-radius:10px;overflow:hidden;margin:0}\n"
    ".facts div{box-shadow:0 0 0 1px var(--rule);padding:10px 14px}\n"
    ".facts dt{color:var(--faint);font-size:12px}\n"
    ".facts dd{margin:0;font-weight:bold;overflow-wrap:anywhere}\n"
    ".charts{display:grid;gap:14px;"
    "grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr))}\n"
    ".charts svg{width:100%}\n"
    "details{margin:0 14px 10px}\n"
    "summary{cursor:pointer;color:var(--faint)}\n"
    "pre{font-size:13px;overflow-x:auto}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px;margin:8px}\n"
    "th,td{padding:4px 12px;text-align:right;border-bottom:1px solid var(--rule);"
    "white-space:nowrap}\n"
    ".runs th,.runs td{text-align:left;vertical-align:top}\n"
    "footer{margin-top:32px;color:var(--faint);font-size:12px}\n"
    "rect.ech-paper{fill:var(--paper)}\n"
    ".ech-edge{stroke:var(--paper)}\n"
    ".ech-idle{fill:var(--idle)}\n"
    ".ech-ink{fill:var(--ink)}\n"
    ".ech-faint{fill:var(--faint)}\n"
    ".ech-axis{stroke:var(--faint)}\n"
    ".ech-grid{stroke:var(--rule)}\n";

static void append_element(const char *tag, const char *text, ech_text *out)
{
    ech_text_append(out, "<%s>", tag);
    ech_svg_escape(out, text);
    ech_text_append(out, "</%s>", tag);
}

static void append_facts(const ech_report_page *page, ech_text *out)
{
    if (page->facts.n == 0) return;
    if (page->runs > 0) ech_text_append(out, "<h2>The same in all</h2>\n");
    ech_text_append(out, "<dl class=\"facts\">\n");
    for (size_t i = 0; i < page->facts.n; i++) {
        if (!page->facts.at[i].value.n) continue;
        ech_text_append(out, "<div>");
        append_element("dt", page->facts.at[i].key, out);
        append_element("dd", page->facts.at[i].value.at, out);
        ech_text_append(out, "</div>\n");
    }
    ech_text_append(out, "</dl>\n");
}

static void append_timelines(const ech_report_page *page, ech_text *out)
{
    static const char predicted[] = "Predicted", measured[] = "Measured";
    if (!page->predicted && !page->measured) return;
    ech_text_append(out, "<h2>Who computes what, when</h2>\n<div class=\"card wide\">\n");
    if (page->predicted)
        ech_timeline_svg(page->predicted, predicted, page->measured, measured, out);
    else
        ech_timeline_svg(page->measured, measured, NULL, NULL, out);
    ech_text_append(out, "</div>\n");
}

static void append_names(const ech_report_page *page, ech_text *out)
{
    ech_text_append(out, "<tr><th></th>");
    for (int r = 0; r < page->runs; r++) {
        ech_text_append(out, "<th><span style=\"color:%s\">●</span> ", ech_report_colour(r));
        ech_svg_escape(out, page->names[r]);
        ech_text_append(out, "</th>");
    }
    ech_text_append(out, "</tr>\n");
}

static void append_table(const ech_report_page *page, ech_text *out)
{
    const ech_report_table *table = page->table;
    size_t columns = (size_t)page->runs + 1;
    if (!table) return;
    ech_text_append(out, "<h2>What differs</h2>\n<div class=\"card\">\n<table class=\"runs\">\n");
    append_names(page, out);
    for (size_t i = 0; i < table->cell.n; i++) {
        if (i % columns == 0) ech_text_append(out, "<tr>");
        append_element(i % columns == 0 ? "th" : "td", table->cell.at[i], out);
        if (i % columns == columns - 1) ech_text_append(out, "</tr>\n");
    }
    ech_text_append(out, "</table>\n</div>\n");
}

static size_t runs_of(const ech_report_page *page)
{
    return page->runs > 0 ? (size_t)page->runs : 1;
}

/* Of any run. */
static bool has_values(const ech_report_page *page, size_t chart)
{
    for (size_t i = chart; i < chart + runs_of(page); i++)
        if (page->charts.at[i].training.n > 0 || page->charts.at[i].validation.n > 0) return true;
    return false;
}

static void append_charts(const ech_report_page *page, ech_text *out)
{
    bool any = false;
    for (size_t i = 0; i < page->charts.n; i += runs_of(page)) any |= has_values(page, i);
    if (!any) return;
    ech_text_append(out, "<h2>Step by step</h2>\n<div class=\"charts\">\n");
    for (size_t i = 0; i < page->charts.n; i += runs_of(page)) {
        if (!has_values(page, i)) continue;
        ech_text_append(out, "<div class=\"card\">\n");
        ech_report_charts_svg(&page->charts.at[i], page->names, (int)runs_of(page), out);
        ech_text_append(out, "</div>\n");
    }
    if (page->loads && page->loads->step.n) {
        ech_text_append(out, "<div class=\"card\">\n");
        ech_report_heatmap_svg(page->loads, out);
        ech_text_append(out, "</div>\n");
    }
    if (page->exponents && page->exponents->layer.n) {
        ech_text_append(out, "<div class=\"card\">\n");
        ech_report_exponents_svg(page->exponents, out);
        ech_text_append(out, "</div>\n");
    }
    ech_text_append(out, "</div>\n");
}

static void append_memory_row(const ech_report_memory *memory, int rank, ech_text *out)
{
    int64_t total = 0;
    ech_text_append(out, "</tr>\n<tr><th>%d</th>", rank);
    for (int kind = 0; kind < memory->kinds; kind++) {
        int64_t bytes = memory->bytes[(size_t)rank * (size_t)memory->kinds + (size_t)kind];
        ech_text_append(out, "<td>%lld</td>", (long long)bytes);
        total += bytes;
    }
    ech_text_append(out, "<td>%lld</td>", (long long)total);
}

static void append_memory(const ech_report_page *page, ech_text *out)
{
    const ech_report_memory *memory = &page->memory;
    if (memory->ranks <= 0 || memory->kinds <= 0) return;
    ech_text_append(out, "<h2>Memory</h2>\n<div class=\"card wide\">\n");
    ech_report_memory_svg(memory, out);
    int rows = memory->ranks < ECH_TIMELINE_ROWS ? memory->ranks : ECH_TIMELINE_ROWS;
    ech_text_append(out, "<details><summary>in bytes</summary>\n<table>\n<tr><th>rank</th>");
    for (int kind = 0; kind < memory->kinds; kind++) append_element("th", memory->name[kind], out);
    append_element("th", "all", out);
    for (int row = 0; row < rows; row++)
        append_memory_row(memory, ech_timeline_rank_of_row(memory->ranks, row), out);
    ech_text_append(out, "</tr>\n</table>\n</details>\n</div>\n");
}

static void append_run_file(const ech_report_page *page, ech_text *out)
{
    if (!page->run_file) return;
    ech_text_append(out, "<h2>Run file</h2>\n<div class=\"card\">\n<details><summary>every key, as "
                         "resolved</summary>\n<pre>");
    ech_svg_escape(out, page->run_file);
    ech_text_append(out, "</pre>\n</details>\n</div>\n");
}

void ech_report_html(const ech_report_page *page, ech_text *out)
{
    const char *title = page->title ? page->title : "";
    ech_text_append(out,
                    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
                    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n");
    append_element("title", title, out);
    ech_text_append(out, "\n<style>\n%s</style>\n</head>\n<body>\n<main>\n", style);
    append_element("h1", title, out);
    ech_text_append(out, "\n");
    append_table(page, out);
    if (page->runs > 0) append_charts(page, out);
    append_facts(page, out);
    append_timelines(page, out);
    if (page->runs == 0) append_charts(page, out);
    append_memory(page, out);
    append_run_file(page, out);
    ech_text_append(out, "<footer>Echelon " ECH_VERSION "</footer>\n</main>\n</body>\n</html>\n");
}
