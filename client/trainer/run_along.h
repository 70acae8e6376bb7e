/*
 * run_along.h - what goes along with a run: `trainer sync` to a remote, and `trainer watch` for the cloud's notices. One that ends
 * is started again, after 1, 2, 4 ... 60 s; training goes on meanwhile.
 */
#ifndef TRAINER_RUN_ALONG_H
#define TRAINER_RUN_ALONG_H

#include "client/trainer/run.h"

enum { COMPANION_OPTIONS = 4, COMPANION_OPTION_SIZE = 1100 };

/* One of them: a command of this program. */
struct companion {
    const char *command; /* NULL: is not configured */
    char options[COMPANION_OPTIONS][COMPANION_OPTION_SIZE];
    pid_t pid; /* 0: does not run */
    int ended; /* how often it ended by itself */
    int soon;  /* ... without having lived for two minutes in between */
    int64_t began_ns, again_ns;
    bool is_over; /* is not started again: its work is done */
};

struct run_along {
    struct run *run;
    struct companion sync, watch;
    bool is_hurried; /* sync was told to copy now */
};

/* How long one waits that ended for the nth time (from 1) within a short life. */
int companion_pause_s(int n);

/*
 * Start what is configured. The remote is written, read back and compared before anything else is done: another exit status than
 * TRAINER_OK says that it cannot be used, and nothing was begun.
 */
int run_along_start(struct run_along *along);
/*
 * Look after them (along is a struct run_along, or NULL): start again what ended, and tell it in training.log and run.json. Once
 * the run is asked to stop nothing is started, and sync is told to copy at once what verifies already.
 */
void run_along_tend(void *along);
/* After the last step, or the interrupted one: end both, and copy a last time. */
void run_along_end(struct run_along *along);

#endif
