/* baseline.h - the reference under torch.compile, timed once for a task on a device. Loop thread only. */
#ifndef TASK_BASELINE_H
#define TASK_BASELINE_H

#include <stdbool.h>

struct baselines;
struct stage_report;
struct submission;

/* Those that were measured, of all tasks. NULL: no memory. */
struct baselines *baselines_new(void);
void baselines_free(struct baselines *b); /* NULL is fine */

/* After a timing that was measured. True: the device is at it, and its reports are baseline_report()'s from here on. */
bool baseline_begin(struct submission *s);
/* True: that was all, and s->attempt->baseline has the result. */
bool baseline_report(struct submission *s, const struct stage_report *r);
void baseline_lost(struct submission *s, const char *why); /* the device worker went down meanwhile */

#endif
