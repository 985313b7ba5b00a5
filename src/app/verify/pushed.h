/* SPDX-License-Identifier: Apache-2.0
 *
 * Serial replay of pushes, as the reference for verify: one rank does in turn what workers and servers have done, by what servers have
 * written down. A push is a worker's gradient of one of its training steps, with the weights that its push before has left; servers
 * apply it to the newest weights and optimizer states. What comes of it are the same bits, since kernels and order are the same. With
 * backup workers it makes the mean over the tokens of those pushes of a training step that were not dropped, and updates by that: the
 * same numbers but for the order of sums.
 *
 * Nothing is collective.
 */
#ifndef ECH_APP_VERIFY_PUSHED_H
#define ECH_APP_VERIFY_PUSHED_H

#include "app/verify/verify.h"

typedef struct ech_pushed ech_pushed;

/* `alone`: an opened run of one rank, in the same precision as `layout`, at its initial parameters. Borrows both. */
ech_status ech_pushed_create(const ech_compared_run *layout, ech_compared_run *alone,
                             ech_pushed **out);
void ech_pushed_destroy(ech_pushed *pushed); /* accepts NULL */
/* Replays the span that begins with training step `step`. serves: [pushes of a span]. *loss: [training steps of a span] the
 * losses over as many pushes as there are workers, but dropped ones. `alone` then has the weights and states that servers have in the
 * end. Errors: ECH_EINTERNAL: a worker has not that push then; what is in an update has read others than its step's weights, or too
 * many or too few pushes are dropped. */
ech_status ech_pushed_replay(ech_pushed *pushed, int64_t step, const ech_serve *serves,
                             double *loss);

#endif
