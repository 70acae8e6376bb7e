/* private.h - what the files of the funnel share. Nobody else includes it. */
#ifndef SUBMISSION_PRIVATE_H
#define SUBMISSION_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>
#include <uthash.h>
#include <utlist.h>
#include <uv.h>

#include "common/buffer.h"
#include "common/classes.h"
#include "common/hash.h"
#include "common/ids.h"
#include "common/reward.h"
#include "server/config.h"
#include "server/submission/counters.h"
#include "server/submission/funnel.h"
#include "server/submission/groups.h"
#include "server/submission/pending.h"
#include "common/policy.h"
#include "server/queue/clients.h"
#include "server/queue/scheduler.h"
#include "server/submission/request.h"
#include "server/submission/single_flight.h"
#include "server/submission/state.h"
#include "server/store/store.h"
#include "server/task/registrar.h"
#include "server/workers/devices.h"
#include "server/workers/lane.h"
#include "server/workers/scratch.h"
#include "server/workers/uids.h"
#include "server/workers/spare.h"
#include "server/workers/zygote.h"

#define RULE_SIZE 64
#define DOUBT_SIZE 200

/* --- one submission --- */

struct stage_record {
    enum outcome outcome;
    enum verdict_class class_; /* why it failed; CLASS_NONE otherwise */
    double wait_ms, run_ms;
    int done, of;    /* progress inside the stage */
    const char *why; /* of a skip; static text or NULL */
};

/* All that is known of a submission while it is judged; a queued one has none. */
struct judgement {
    struct submission_row row;
    struct task_row task;
    struct buffer source;
    json_t *request, *policy_json;
    const char *entry; /* view into request */
    struct policy policy;
    struct reward_spec reward;
    int until; /* a stage, or -1 */
    uint64_t seed;

    struct stage_record stages[STAGE_NSTAGES];
    int stage; /* the one it is in or was in last; -1: none yet */
    int64_t entered_ns, started_ns;
    int passed;                /* last stage passed before anything failed; -1: none */
    int failed_stage;          /* of the first failure; -1: none. STAGE_EXTRACT: before the first stage */
    enum verdict_class class_; /* of the first failure; CLASS_NONE: none */
    char rule[RULE_SIZE];      /* what found the first failure, where a rule of ours did; "" otherwise */
    json_t *error;             /* {"type","text","line"} of the first failure, or NULL */
    char text[1600];           /* of the first failure, in plain English */
    char doubt[DOUBT_SIZE];    /* what of it may be a neighbour's doing; "": nothing is known to be */

    json_t *flags;    /* array of strings */
    json_t *kernels;  /* names of the jitted functions, from the syntax tree */
    json_t *compiled; /* what `inspect` found */
    json_t *claim;    /* what the compile child said */
    char *generality;
    json_t *tiny, *full, *timing; /* the referee's details */
    json_t *env;                  /* versions and GPU of the workers that judged it */
    json_t *baseline;             /* of torch.compile, as it is told; NULL: none was made */

    enum { STEP_AST, STEP_COMPILE, STEP_PUBLISH, STEP_INSPECT, STEP_BUILD } step;
    struct child *child;
    json_t *result;                /* of the child */
    bool is_short;                 /* the machine was short of memory when that came */
    char cache[SCRATCH_PATH_SIZE]; /* "" none; ours to remove */
    int plan_fd;                   /* memfd: what the candidate's trace wrote down, a claim; -1: none */
    int images_fd;                 /* memfd: the same, checked, with its kernels' images; -1: none */
    bool is_traced;   /* the compile child was asked for a plan: else what it sends as one is nothing */
    bool is_live;     /* no plan could be made of it: no speed is credited */
    json_t *untraced; /* then: {"type","text","line"} of why, or NULL */
    json_t *plan;     /* else: what it comes to, for the verdict; NULL: there is none */
    struct lane *lane;
    bool is_finishing; /* the verdict is clear, the lane still has to let go */
    bool is_parking;   /* the same, and it will wait for its group */
    bool is_comparing; /* its own verdict is clear, and the lane times the compiled reference */
    bool is_reference_lost;
    char reference_error[512]; /* what the reference said when it was lost */
    struct buffer log;
    int64_t log_lost;
};

/* A failure for which a neighbour may be to blame, so that it does not count: how it went the first time. */
struct rerun {
    enum verdict_class class_; /* CLASS_NONE: there was none */
    enum stage stage;
    char why[DOUBT_SIZE];
};

enum cancel_reason { CANCEL_ASKED, CANCEL_DEADLINE, CANCEL_DECIDED };

struct submission {
    UT_hash_handle hh;
    struct submission *prev, *next; /* among those not claimed, or those not recorded */
    struct scheduler_job job;
    double device_s; /* that it held devices, over all attempts */
    struct funnel *funnel;
    struct group *group; /* NULL: none */
    struct judgement *judgement;
    struct funnel_wait *waits;
    char id[ID_SIZE];
    enum state state;
    int priority;      /* as asked for */
    int attempts;      /* times begun, over restarts of the daemon */
    int losses;        /* times its worker went down */
    int lonely_losses; /* of those, with nobody else on that worker */
    struct rerun rerun;
    int64_t queued_ns;
    struct submission *older, *newer; /* among those that wait for the same */
    bool is_waiting;
    struct store_claim claim; /* its last; number 0: there was none */
    bool is_claiming;         /* the store was asked for that, and has not agreed yet */
    bool is_cancelled;        /* to be, as soon as its processes are gone */
    bool is_returned;         /* the same for the queue, when the daemon drains */

    bool is_correct; /* by its verdict */
    enum cancel_reason cancel_reason;
    struct group_member member;

    char content[HASH_TEXT_SIZE]; /* what makes another identical; "": it is judged by itself */
    const char *cache;            /* static: "miss", "hit", "joined" or "rechecked" */
    char recheck_of[ID_SIZE];     /* whose verdict is judged again; "": nobody's */
    struct flight_member flight;
    bool is_looked_up;
};

/* --- the whole --- */

struct baseline; /* baseline.c */

/* What a lane judges with, as its workers said: references held, to know whether it is so still. */
struct cache_environment {
    json_t *versions, *run_versions, *gpu;
    char hash[HASH_TEXT_SIZE];
};

struct funnel {
    uv_loop_t *loop;
    const struct config *config;
    struct store *store;
    struct uids *uids;
    struct cgroups *cgroups;
    int scratch_lock;                 /* keeps other daemons out of the scratch directory */
    struct zygote *zygote;            /* compile */
    struct zygote *static_zygote;     /* ast, inspect */
    struct spares *spares[CHILD_RUN]; /* by role: those of the CPU stages */
    struct lane *lanes[DEVICES_MAX];
    int n_lanes;

    struct submission *submissions; /* every one that is not finished, by id */
    struct groups *groups;
    struct registrar *registrar;

    json_t *calibrations;       /* the newest by the GPU's name */
    struct norms *norms;        /* of the canaries of all GPUs */
    struct baseline *baselines; /* by task and device: what torch.compile makes of the reference */

    struct single_flight *flight;
    char fingerprint[HASH_TEXT_SIZE];
    struct cache_environment environments[DEVICES_MAX]; /* by lane */

    struct clients *clients;
    struct scheduler *scheduler;
    struct submission *queued_oldest,
        *ready_oldest; /* who waits for a slot, and for a device, by queued_ns */

    struct submission *unclaimed;  /* have a slot, and the store would not let them begin: tried again */
    struct submission *unrecorded; /* whose verdict the store would not take: tried again */
    uv_timer_t record_timer, drain_timer;
    struct pending *pending;
    bool is_stopping, is_stopped;
    int workers_stopping;
    void (*drained_cb)(void *arg);
    void *drained_arg;
    funnel_event_cb *event_cb;
    void *event_arg;

    struct counters *counters;
};

/* submission.c: the one place where a state changes, and where memory of a submission begins and ends */
struct submission *submission_new(struct funnel *f, const char *id, const char *group_id, const char *client,
                                  int priority, int attempts);
void submission_move(struct submission *s, enum event event);
/* It waits from now on: for a slot where it is queued, for a device where it is ready. Its next move ends that. */
void submission_waits(struct submission *s);
/* The memory for it, so that what follows cannot lack it. False: there is none, and nothing has changed. */
bool judgement_make(struct submission *s);
/*
 * Loads what the store has of it. 0, an error of the store, or ERR_NOMEM. s->judgement is there also on failure, to be
 * told with it; but without judgement_make() before it is NULL where there was no memory for it.
 */
int judgement_new(struct submission *s, struct error *err);
/* The same without the task and the source: enough to be told a verdict. */
int judgement_read(struct submission *s, struct error *err);
/*
 * What judgement_read() makes, of a row that was read before (taken, also on failure); any thread. 0, ERR_STORE: its
 * request cannot be read, and the judgement is as whole as any other.
 */
int judgement_read_row(struct judgement *j, struct submission_row *row, struct error *err);
void judgement_free(struct funnel *f, struct judgement *j);
/*
 * The first failure counts, and later ones leave it; but a hack replaces any other of the candidate's. error may be
 * NULL; text is printf-style.
 */
void judgement_fail(struct judgement *j, int stage, enum verdict_class class_, json_t *error,
                    const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Its verdict is clear and its processes are gone: write it, then tell those who wait. */
void submission_conclude(struct submission *s, enum event event);
/*
 * The same in three steps, for many that waited: submission_move(), then this in any thread, while nobody touches s, which
 * has what judgement_read_row() gave it, then submission_concluded().
 */
void submission_fill_cancelled(struct submission *s); /* what of the judgement is not needed any more goes */
void submission_concluded(struct submission *s);
/*
 * The same with the verdict that another got: verdict is the document as it is for this one. s has what
 * judgement_read() gave it. 0 or ERR_NOMEM, and nothing has changed then.
 */
int submission_conclude_as(struct submission *s, const struct submission_row *from, json_t *verdict);
/* It is another's, or gone: what is known of it here goes, and those who wait look at its row. */
void submission_give_up(struct submission *s);
/* Back to the queue's head. gives_back: the attempt was cut short by us and does not count. */
void submission_return(struct submission *s, bool gives_back);
/* What could not be done for now, a verdict stored or a submission begun, is tried again in a second. */
void submission_try_later(struct funnel *f);

/* Whether s, right in full, has to wait until its group has chosen. */
bool judge_group_chooses(const struct submission *s);
/* judge.c: the story of one submission; what its parts share is in judging.h */
void judge_begin(struct submission *s); /* it has a CPU slot: claimed first, or once more */
/*
 * Tells the store whether its present attempt counts if the daemon dies now: while it has a slot or a device
 * (is_running), and not while it waits for a device.
 */
void judge_count_attempt(const struct submission *s, bool is_running);
/* Ready, and not among those that its group has timed: ends it. */
void judge_untimed(struct submission *s);
void judge_stop(struct submission *s); /* is_cancelled or is_returned was set: end its processes */

/* device_stages.c */
void device_stages_begin(struct submission *s, struct lane *l); /* ready, and l is idle */

/* failure.c */
void crash_text(const struct child_end *end, char *out, size_t size);

/* verdict.c */
json_t *real_or_null(double x);                        /* given; null for what is not finite */
json_t *get_or_null(json_t *object, const char *key);  /* given */
double number_or_nan(json_t *object, const char *key); /* NAN for what is no number */
/* What a reward tells beside its scalar, or null; given. */
json_t *reward_parts_json(const struct reward_spec *spec, const struct reward_input *in);
/* Fill in what only a finished group knows: each item's rank, and the rewards that need it. */
void rescore_group(json_t *items);
json_t *verdict_json(const struct submission *s);               /* given; s has a judgement */
const char *verdict_stage(const struct judgement *j);           /* the last one reached, or NULL */
enum verdict_class verdict_class_of(const struct judgement *j); /* CLASS_OK where nothing failed */

/* Of class ok, and it came as far as being held against the reference. */
bool verdict_is_correct(json_t *verdict);
/* What a stored verdict tells a reward. False: it is not finished. */
bool verdict_input(json_t *verdict, struct reward_input *in);
/* NAN where only the whole group can tell. */
double verdict_reward(const struct reward_spec *spec, const struct reward_input *in);

/* funnel.c: whose child serves a stage that needs no device. View. */
struct zygote *funnel_zygote_of(const struct funnel *f, enum child_role role);
/* Whether any submission asks for such children: `build` is for plans alone. */
bool funnel_has_role(const struct funnel *f, enum child_role role);

/* cache.c: identical candidates are judged once */
/* What makes another submission identical; "" where the request wants none of it. row, request: as they are stored at first. */
void cache_content(const struct submission_row *row, json_t *request, char out[HASH_TEXT_SIZE]);
/* Of the code that judges: the daemon's version and the harness, file by file. */
void cache_fingerprint(const char *harness, char out[HASH_TEXT_SIZE]);
void cache_forget_environments(struct funnel *f); /* the settings are others, or it ends */
/* A new submission to the queue, to its primary, or to its end. */
void cache_enqueue(struct submission *s);
/* True: s has ended with a stored verdict. Does nothing the second time, once the workers have said what they are. */
bool cache_answers(struct submission *s);
void cache_leave(struct submission *s); /* s follows its primary no more */
/* Its verdict (j: its judgement) is durable: those that follow get it, or are judged. */
void cache_settle(struct submission *s, struct judgement *j);
/* The key under which its verdict may be found later; "": not at all. s->judgement has its row filled in. */
void cache_key(const struct submission *s, char out[HASH_TEXT_SIZE]);
void cache_compare(struct submission *s); /* with the verdict that it was to check, where it was to */

/* canaries.c */
int canaries_load(struct funnel *f, struct error *err); /* f->norms, as the store has them */

/* calibration.c */
int calibration_load(struct funnel *f, struct error *err);
json_t *calibration_brief(const struct funnel *f,
                          const char *gpu); /* given: for "env"; null where there is none */

/* baseline.c: the reference under torch.compile, timed once for a task on a device */
/* After a timing that was measured. True: the lane is at it, and its reports are baseline_report()'s from here on. */
bool baseline_begin(struct submission *s);
/* True: that was all, and s->judgement->baseline says how it went. */
bool baseline_report(struct submission *s, const struct lane_report *r);
void baseline_lost(struct submission *s, const char *why); /* the lane went down meanwhile */
/* Given: as it is told under timing.baselines. */
json_t *baseline_json(const struct judgement *j);
/* The compiled reference's time over the candidate's, whose speed-up is given; NAN where one is not known. */
double baseline_speedup(const struct judgement *j, double speedup);
void baselines_free(struct funnel *f);

/* submit.c */
int funnel_retry_after(const struct funnel *f); /* seconds */
/* Submissions that wait for a slot, for a device, or for the verdict of an identical one. */
int64_t funnel_waiting(const struct funnel *f);
/* FUNNEL_OK, or the refusal of n more of the client's by its quota, which a tells then. */
enum funnel_refusal submit_admit(struct funnel *f, const char *client, size_t n, struct funnel_answer *a);

/* cancel.c */
/*
 * Cancels what is not finished; where the group is decided, but for those that are right and wait to be timed or are
 * timed. 0, ERR_CONFLICT, or an error of the store.
 */
int group_cancel_rest(struct funnel *f, const char *id, enum cancel_reason why, struct error *err);

/* wait.c */
void waits_notify(struct funnel_wait **head);
void funnel_tell(struct funnel *f, const struct funnel_event *event);

/* funnel.c */
bool zygotes_are_ready(const struct funnel *f); /* both that the CPU stages need */
#endif
