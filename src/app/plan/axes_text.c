/* SPDX-License-Identifier: Apache-2.0
 *
 * The axes of the device mesh in order, the slowest first.
 */
#include "app/plan/axes_text.h"

enum { MOST_LISTED = 8 };

/* What separates a part from the one before it, if there is one since `from`. */
static const char *between(const ech_text *out, size_t from, const char *separator)
{
    return out->n > from ? separator : "";
}

/* "3, 1 and 1". */
static void print_replicas(const ech_layout *layout, ech_text *out)
{
    for (int s = 0; s < layout->stages; s++) {
        bool last = s + 1 == layout->stages;
        if (s == MOST_LISTED && !last) {
            ech_text_append(out, ", ...");
            return;
        }
        ech_text_append(out, "%s%d", s == 0 ? "" : last ? " and " : ", ", layout->replicas[s]);
    }
}

static void print_stages(const ech_layout *layout, ech_text *out)
{
    if (layout->stages * layout->chunks == 1) return;
    ech_text_append(out, "%d stage%s", layout->stages, layout->stages == 1 ? "" : "s");
    if (layout->chunks > 1) ech_text_append(out, " of %d chunks", layout->chunks);
    if (layout->uniform) return;
    ech_text_append(out, " of ");
    print_replicas(layout, out);
    ech_text_append(out, " replicas");
}

void ech_print_axes(const ech_design *design, ech_text *out)
{
    const ech_layout *layout = design->layout;
    const ech_block_options *options = &design->model->options;
    size_t from = out->n;
    print_stages(layout, out);
    if (layout->uniform && layout->replicas[0] > 1)
        ech_text_append(out, "%s%d replicas", between(out, from, " x "), layout->replicas[0]);
    if (layout->context > 1)
        ech_text_append(out, "%s%d context (%s)", between(out, from, " x "), layout->context,
                        ech_config_name(design->config, "parallel.context_method"));
    if (layout->tensor > 1)
        ech_text_append(out, "%s%d tensor", between(out, from, " x "), layout->tensor);
    if (layout->sharding.sequence)
        ech_text_append(out, "%ssequence parallel", between(out, from, ", "));
    if (options->sequence_chunks > 1)
        ech_text_append(out, "%s%d sequence chunks", between(out, from, ", "),
                        options->sequence_chunks);
}
