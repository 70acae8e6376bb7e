/*
 * group_progress.h - does what a group decides: cancels what does not matter any more, and sends those that it chose to a
 * device. Loop thread only.
 */
#ifndef SUBMISSION_GROUP_PROGRESS_H
#define SUBMISSION_GROUP_PROGRESS_H

struct funnel;
struct group;
struct submission;

/* Something of the group has changed: does what that decides, if anything. */
void group_progress(struct funnel *f, struct group *g);
/* The last of its submissions, of that client, has ended, and with it the group: it is freed. */
void group_progress_end(struct funnel *f, struct group *g, const char *client);
/* The same where the daemon was ended in the middle of it: only whether the rest matters. */
void group_progress_decision(struct funnel *f, struct group *g);
/* Its time is over; arg: the funnel. */
void group_progress_deadline_cb(void *arg, struct group *g);

#endif
