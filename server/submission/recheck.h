/* recheck.h - a sample of what could be reused is judged again, and compared. Loop thread only. */
#ifndef SUBMISSION_RECHECK_H
#define SUBMISSION_RECHECK_H

struct submission;

/* Compares its verdict with the one that it was to check, where it was to check one. */
void recheck_compare(struct submission *s);

#endif
