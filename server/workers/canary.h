/*
 * canary.h - a kernel with a known answer and time, and its results for a device and its workers. The device sends it,
 * and acts on the outcome. Loop thread only.
 */
#ifndef WORKERS_CANARY_H
#define WORKERS_CANARY_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>
#include <uv.h>

#include "common/error.h"
#include "server/config.h"
#include "server/workers/norms.h"
#include "server/workers/referee.h"

struct canary;

/* config, referee and norms (NULL: no time is compared with anything) are views that outlive it. out: given, canary_free(). 0 or ERR_NOMEM. */
int canary_new(uv_loop_t *loop, const struct config *config, const char *device, struct referee *referee,
               struct norms *norms, struct canary **out, struct error *err);
void canary_free(struct canary *c); /* NULL is fine */

void canary_begin(struct canary *c); /* one is to be sent */
void canary_pump(struct canary *c,
                 bool is_quiet);       /* one that is to be sent goes, if no child is made or ended */
void canary_abandon(struct canary *c); /* the workers are gone */

enum canary_outcome {
    CANARY_NOT_ASKED, /* no canary is in progress */
    CANARY_PASSED,
    CANARY_AGAIN,      /* it failed: once more */
    CANARY_RESTART,    /* it failed twice: with fresh workers */
    CANARY_QUARANTINE, /* it failed twice with fresh workers, too */
};
enum canary_outcome canary_answered(struct canary *c, const json_t *body);

int64_t canary_due_ms(const struct canary *c); /* until one is due by time; -1: none comes by time */
int64_t
canary_again_ms(const struct canary *c); /* until a quarantined device is checked again; -1: it is not */
bool canary_is_slow_only(const struct canary *c); /* the last one failed, and by its time alone */
bool canary_is_suspect(
    const struct canary *c); /* the workers were started afresh for it, and none has passed yet */
int64_t canary_drifts(const struct canary *c); /* failures, and norms learned anew, since the start */
json_t *canary_json(const struct canary *c);   /* given */

#endif
