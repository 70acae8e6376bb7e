/*
 * judging.h - what the files share that tell the story of one submission: judge.c (from stage to stage), cpu_stages.c,
 * device_stages.c, failure.c and doubt.c. Nobody else includes it. Loop thread only.
 */
#ifndef SUBMISSION_JUDGING_H
#define SUBMISSION_JUDGING_H

#include "server/submission/private.h"

/* --- judge.c. After those marked (*) the submission may be gone: touch it no more. --- */

/* (*) The stage that it is in ended so, with `done` of `of`: on to the next, or to the end. class_: of OUTCOME_FAIL. */
void judge_decide(struct submission *s, enum outcome outcome, enum verdict_class class_, int done, int of);
/* Whether the next stage follows on the one that was just decided. */
bool judge_goes_on(const struct judgement *j);
/* (*) It waits from now on until its group has chosen whom to time. */
void judge_park(struct submission *s);
/* (*) Nothing follows: its lane lets go of it, or it is concluded at once. */
void judge_finish(struct submission *s);
/* (*) Its processes are gone, and its verdict is clear. */
void judge_conclude(struct submission *s);
/* (*) A worker of ours failed it. Its processes are gone. is_alone: nobody else was on that worker. */
void judge_lose(struct submission *s, bool is_alone, const char *why);
/* Its processes are gone. (*) True: that was all that was waited for. */
bool judge_is_stopped(struct submission *s);

/* The stage that it is in ended so, and nothing is decided yet. */
void judge_note(struct submission *s, enum outcome outcome, enum verdict_class class_, int done, int of);
/* It waited for this stage until now_ns, by the monotonic clock. */
void judge_note_wait(struct submission *s, int stage, int64_t now_ns);
/* What is known of where it is judged. versions: borrowed, an object or NULL. */
void judge_note_env(struct judgement *j, json_t *versions);
/* Those that it has not. flags: borrowed, an array of strings or NULL. */
void judge_add_flags(struct judgement *j, json_t *flags);
void judge_add_flag(struct judgement *j, const char *name);
/* What a process of its printed, to its log, of which limit bytes are kept; lost: bytes not in output. */
void judge_take_output(struct judgement *j, const struct buffer *output, int64_t lost, int64_t limit);

/* --- cpu_stages.c --- */

/* (*) The children of `ast`, and of `compile`; each ends in judge_decide() or judge_lose(). */
void cpu_stages_begin(struct submission *s);
void cpu_stages_compile(struct submission *s);

/* --- device_stages.c --- */

/* (*) It has its lane: the stage that it is in, which ends in judge_decide(). */
void device_stages_go_on(struct submission *s);

/* --- failure.c: all but the first for a failure in the stage that it is in --- */

/* Now it is known how the process ended; the referee could only say that it did. */
void failure_refine(struct submission *s, const struct child_end *end);
/* A child ended without a result: the candidate's doing. Gives the class. */
enum verdict_class failure_by_end(struct submission *s, const struct child_end *end);
/* error: {"type","text","line"} or NULL, borrowed; otherwise: its text where it has none. */
void failure_by_error(struct judgement *j, enum verdict_class class_, json_t *error, const char *otherwise);
/* By a report of outcome LANE_FAIL. Gives the class. */
enum verdict_class failure_by_report(struct submission *s, const struct lane_report *r);
/* Only the first failure counts, so only its rule does. rule: NULL where none of ours found it. */
void failure_note_rule(struct judgement *j, const char *rule);

/* --- doubt.c: all but the last three note it in the judgement, after its first failure --- */

/* It failed because of how its process ended, with this class. */
void doubt_end(struct submission *s, enum verdict_class class_, const struct child_end *end);
/* It failed by this report, with this class. */
void doubt_report(struct submission *s, const struct lane_report *r, enum verdict_class class_);
/* A child of a CPU stage said that it had no memory. */
void doubt_said_oom(struct judgement *j);
/* The reference failed by this report: that is no failure of the candidate's. */
void doubt_reference(struct judgement *j, const struct lane_report *r);
/* Whether its class is one that somebody else may bring about. */
bool doubt_may_be_theirs(const struct judgement *j);
/* True: what is in doubt does not count, and the next time it is judged alone. */
bool doubt_promises_rerun(struct submission *s, enum verdict_class class_, int stage);
/* Not judged again: what nobody may be convicted of for its being found once becomes `infra`. */
void doubt_excuse(struct submission *s);

#endif
