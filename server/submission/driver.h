/*
 * driver.h - takes one submission from stage to stage, from its CPU slot to its end. Start reading at driver_begin().
 * Loop thread only.
 */
#ifndef SUBMISSION_DRIVER_H
#define SUBMISSION_DRIVER_H

struct device_worker;
struct submission;

/* It has a CPU slot, and submission_make_attempt() was called: it is claimed first, or once more. */
void driver_begin(struct submission *s);
/* It was ready and gets a device, whose worker is idle. */
void driver_place(struct submission *s, struct device_worker *w);

#endif
