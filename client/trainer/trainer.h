/*
 * trainer.h - what the commands of `trainer` share: exit codes, options, and the
 * two services that a round talks to. Data goes to files and stdout, talk to stderr.
 */
#ifndef TRAINER_H
#define TRAINER_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "common/error.h"

/* As verifier(1): scripts depend on these. */
enum trainer_exit {
    TRAINER_OK = 0,
    TRAINER_FAILED = 1, /* it ran, and did not reach its goal */
    TRAINER_USAGE = 2,
    TRAINER_CONFIG = 3,  /* a file, an option's value, the disk */
    TRAINER_NOTHING = 5, /* resume: the remote was read, and has no checkpoint */
    TRAINER_SERVICE = 7, /* verifierd or the endpoint cannot be talked to */
    TRAINER_UNEXTRACTED =
        9, /* evaluate, run: no code was found in any answer, so the rates say nothing of kernels */
    TRAINER_RESUME = 75, /* interrupted with a checkpoint written: the same command goes on */
    TRAINER_INTERRUPTED = 130,
};

/* Where the services are, and how to sample. Strings are borrowed from argv or the environment. */
struct trainer {
    const char *daemon_url, *daemon_token; /* verifierd; the token may be NULL */
    const char *run;                       /* the label of submissions; NULL: the command's name for it */
    const char *endpoint_url;              /* with its /v1; NULL: none was given */
    const char *endpoint_name;             /* written to a journal in place of the URL; NULL: the URL */
    const char *endpoint_key;              /* NULL: none */
    const char *model;
    bool is_completions; /* /completions, else /chat/completions */
    double temperature, top_p;
    int max_tokens;
    double timeout_s;    /* of one request to the endpoint */
    int attempts;        /* of one request, the first included */
    bool is_plain;       /* send what OpenAI's own API knows and no more */
    bool wants_logprobs; /* ask for log-probabilities and token ids, too */
    const char *cache;   /* a directory of answers by what was asked; NULL: none */
    uint64_t seed;
    int concurrency; /* tasks in flight */
    const char *workdir;
    bool is_argument_check; /* `trainer run` asks whether this line is one that the command takes */
};

/*
 * The first child of a command's argp, its input a struct trainer. common: --workdir and --cacert; daemon: --url, too; sampling:
 * --endpoint, --model and how to sample, too.
 */
extern const struct argp trainer_common_argp, trainer_daemon_argp, trainer_sampling_argp;

/* Print "trainer: ..." on stderr; returns code. */
int trainer_complain(enum trainer_exit code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * Report on stderr what the program waits for, and why: a line in ten seconds at most, for all threads. Without it a
 * user takes the outage of a service for work in progress.
 */
void trainer_tell_wait(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Sleep, but no longer than until a signal asks to stop. */
void trainer_pause(double seconds);

/* True once SIGINT or SIGTERM came: finish the present write and stop. */
bool trainer_is_stopping(void);
/* Install handlers of SIGINT and SIGTERM for it. */
void trainer_catch_signals(void);

/* Let a Python that is started now find the package `finetune`. ERR_SYS: it is not installed with this program. */
int finetune_environment(struct error *err);

/* The commands. argv[0] is the command's full name; each returns an enum trainer_exit. */
int prepare_command(struct trainer *t, int argc, char **argv);  /* and fuse: python -m prepare */
int pipeline_command(struct trainer *t, int argc, char **argv); /* run, status, sync ...: pipeline */
int extraction_command(struct trainer *t, int argc, char **argv);
int bestofn_command(struct trainer *t, int argc, char **argv);
int evaluate_command(struct trainer *t, int argc, char **argv);
int watch_command(struct trainer *t, int argc, char **argv);
int sft_command(struct trainer *t, int argc, char **argv);
int weighted_command(struct trainer *t, int argc, char **argv);
int reinforce_command(struct trainer *t, int argc, char **argv);
int grpo_command(struct trainer *t, int argc, char **argv);
int selftest_command(struct trainer *t, int argc, char **argv);

#endif
