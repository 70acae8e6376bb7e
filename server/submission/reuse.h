/* reuse.h - identical candidates are judged once. Loop thread only. */
#ifndef SUBMISSION_REUSE_H
#define SUBMISSION_REUSE_H

#include <stdbool.h>
#include <stdint.h>

struct reuse;
struct submission;

/* Those that wait for the store. Given: free(), when none is left. NULL: no memory. */
struct reuse *reuse_new(void);
/* How many they are. urgency: FAIR_INTERACTIVE or FAIR_BATCH. */
int64_t reuse_asking(const struct reuse *r, int urgency);

/* A new submission to the queue, to its primary, or to its end. */
void reuse_enqueue(struct submission *s);
/*
 * True: the store is asked for a verdict that s may have, and s ends with that later, or comes to the queue. False: it
 * was asked before, or the workers have not reported their versions yet.
 */
bool reuse_asks(struct submission *s);
/* Its end: those that follow it get its verdict, if it has one here that is durable, or are judged. */
void reuse_settle(struct submission *s, bool has_verdict);

#endif
