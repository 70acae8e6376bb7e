#include "server/workers/private.h"

#include <string.h>

#include "common/log.h"

/*
 * A kernel whose answer is known is judged wherever the device or a worker may
 * have been harmed: at each start, and after an end by violence.
 */

#define CANARY_MS 60000

static void
canary_timer_cb(uv_timer_t *timer)
{
    struct lane *l = timer->data;
    process_kill(l->referee, "the canary does not answer");
}

void
canary_send(struct lane *l)
{
    l->state = LANE_CHECKING;
    referee_tell(l, json_pack("{s:s}", "op", "canary"), NULL, 0);
    uv_timer_start(&l->canary_timer, canary_timer_cb, CANARY_MS, 0);
}

void
canary_answered(struct lane *l, const char *outcome)
{
    uv_timer_stop(&l->canary_timer);
    if (l->state != LANE_CHECKING)
        return;
    if (strcmp(outcome, "pass") == 0) {
        l->canary_failures = 0;
        l->is_suspect = false;
        lane_become_idle(l);
        return;
    }
    l->drifts++;
    log_error(l->device.name, "the canary failed");
    if (++l->canary_failures < 2) {
        canary_send(l);
    } else if (!l->is_suspect) {
        l->is_suspect = true;
        l->canary_failures = 0;
        process_kill(l->referee, "the canary failed twice");
    } else {
        l->state = LANE_QUARANTINED;
        log_error(l->device.name, "quarantined: the canary fails with fresh workers too");
    }
}
