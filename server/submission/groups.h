/*
 * groups.h - groups of submissions that are not finished: how many are left, whom to time, and whether the rest still
 * matters. A group decides, and its caller does what it decided. Loop thread only.
 */
#ifndef SUBMISSION_GROUPS_H
#define SUBMISSION_GROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>
#include <uv.h>

struct groups;
struct group;

/* Part of a submission. All zero at first, but for rough_ms. */
struct group_member {
    int index;       /* in its group; set before it is parked */
    double rough_ms; /* of a call in `full`, by the referee's clock; NAN: not known */
    /* The fields below are set by groups.c alone. */
    bool is_parked; /* it waits for its group to choose whom to time */
    bool is_chosen; /* it was chosen */
    struct group_member *prev, *next;
};

/* deadline_cb runs when the time of a group is over. NULL: no memory. */
struct groups *groups_new(uv_loop_t *loop, void (*deadline_cb)(void *arg, struct group *g), void *arg);
void groups_free(struct groups *gs);                          /* with all groups; NULL is fine */
struct group *groups_find(struct groups *gs, const char *id); /* NULL: it is finished, or unknown */
struct group *groups_get(struct groups *gs, const char *id);  /* made where it is missing; NULL: no memory */

const char *group_id(const struct group *g);
/* Applies the request's settings for the group, age_ms after its arrival: before its first submission waits. */
void group_configure(struct group *g, json_t *request, int64_t age_ms);
bool group_is_configured(const struct group *g);
/* All unfinished members are known here; not so if one of another node's group was adopted alone. */
void group_set_whole(struct group *g);
bool group_is_whole(const struct group *g);
bool group_chooses(json_t *request);           /* it stops early, or times some of its members */
bool group_stops_early(const struct group *g); /* it is decided once enough of its submissions are correct */
bool group_times_some(const struct group *g);  /* it chooses whom to time */
/* Where its end is to be posted; NULL: nowhere. View. */
const char *group_notify_url(const struct group *g);
/* The waits for its end: the head of a list that the caller owns. View. */
struct funnel_wait **group_waits(struct group *g);

/* --- the progress of its members --- */

void group_join(struct group *g);         /* one more submission that is not finished */
bool group_is_new(const struct group *g); /* just one has joined */
void group_add_correct(struct group *g);  /* one that was finished before this daemon began */
/* One more, or one less, waits for the verdict of an identical submission. */
void group_begin_following(struct group *g);
void group_end_following(struct group *g);
/*
 * Some unfinished members are judged by another node: one more, of those that joined (m, which is not parked) or in
 * addition to them (NULL); one is this node's again; one has ended there, which is otherwise as group_finish_one().
 */
void group_begin_elsewhere(struct group *g, const struct group_member *m);
void group_end_elsewhere(struct group *g);
bool group_finish_elsewhere(struct group *g, bool is_correct);
void group_park(struct group *g, struct group_member *m);
void group_unpark(struct group *g, struct group_member *m);
/* True: that was the last one. The group is not found any more, and is the caller's: group_free(). */
bool group_finish_one(struct group *g, bool was_chosen, bool is_correct);
void group_free(struct group *g);

/* --- what it decides --- */

/* True once: enough are correct that the rest would change nothing. */
bool group_decides(struct group *g);
/*
 * The rest could not be cancelled: the group may be decided again, and the deadline that has passed is set to a second
 * from now.
 */
void group_put_off(struct group *g);
/*
 * Chooses which to time, once no unfinished member could be faster: takes all that are parked, the fastest first, into
 * out (room for GROUP_MAX). Returns their number; is_chosen marks those that are timed.
 */
size_t group_choose(struct group *g, struct group_member **out);

#endif
