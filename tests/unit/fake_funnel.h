/*
 * fake_funnel.h - a funnel without workers, so that HTTP is tested alone.
 *
 * It keeps submissions in the real store. Keys of a submission's body steer it:
 * "candidate" is required; "metadata": {"ms": N} says when it is done (absent:
 * never), {"refuse": N} answers with that enum funnel_refusal, {"silent": true}
 * never answers (once). Other keys are refused.
 */
#ifndef FAKE_FUNNEL_H
#define FAKE_FUNNEL_H

#include "server/submission/funnel.h"

#define FAKE_VERDICT \
    "{\"id\":\"%s\",\"state\":\"done\",\"class\":\"ok\",\"reward\":0.5, \"as_stored\" : true}"

/* From now on there is no room. */
void fake_funnel_fill(struct funnel *f);
/* It is done now, whatever its "ms" said. */
void fake_funnel_finish(struct funnel *f, const char *id);
/* Tell whoever follows, as if it had happened. */
void fake_funnel_tell(struct funnel *f, const struct funnel_event *event);
/* One more is counted in its figures; is_told: funnel_generation() says so. */
void fake_funnel_count(struct funnel *f, bool is_told);
int64_t fake_funnel_figures_made(const struct funnel *f); /* how often */

#endif
