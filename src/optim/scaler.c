/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss scale of the next step, from the steps so far.
 */
#include "optim/optim.h"

enum { FIRST = 1 << 16, GOOD_STEPS = 2000 };
static const double most = 0x1p40;

bool ech_scaler_is_dynamic(const ech_config *config)
{
    return config->precision.loss_scale == ECH_AUTO;
}

void ech_scaler_begin(const ech_config *config, ech_scaler *out)
{
    bool dynamic = ech_scaler_is_dynamic(config);
    *out = (ech_scaler){.scale = dynamic ? FIRST : (double)config->precision.loss_scale,
                        .tolerance = ECH_SCALER_HYSTERESIS};
}

void ech_scaler_take(ech_scaler *s, bool overflow)
{
    if (overflow) {
        s->good_steps = 0;
        s->overflows++;
        if (s->tolerance > 0) s->tolerance--;
        if (s->tolerance <= 0 && s->scale > 1) s->scale /= 2;
        return;
    }
    if (++s->good_steps < GOOD_STEPS) return;
    s->good_steps = 0;
    s->tolerance = ECH_SCALER_HYSTERESIS;
    if (s->scale < most) s->scale *= 2;
}
