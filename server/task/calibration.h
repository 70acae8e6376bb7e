/* calibration.h - what was measured of each kind of GPU, as it is shown. Loop thread only. */
#ifndef TASK_CALIBRATION_H
#define TASK_CALIBRATION_H

#include <jansson.h>

struct calibration_row;
struct calibrations;

struct calibrations *calibrations_new(void);    /* NULL: no memory */
void calibrations_free(struct calibrations *c); /* NULL is fine */
/* Of calibrations, for reader_each_calibration(): it is the newest of its GPU. */
void calibrations_add_cb(void *arg, const struct calibration_row *row);
/* Given: for "env"; null where there is none. */
json_t *calibration_brief(const struct calibrations *c, const char *gpu);

#endif
