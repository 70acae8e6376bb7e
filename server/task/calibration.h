/* calibration.h - what was measured of each kind of GPU, as it is shown. Loop thread only. */
#ifndef TASK_CALIBRATION_H
#define TASK_CALIBRATION_H

#include <jansson.h>

#include "common/error.h"

struct funnel;

int calibration_load(struct funnel *f, struct error *err);
json_t *calibration_brief(const struct funnel *f,
                          const char *gpu); /* given: for "env"; null where there is none */

#endif
