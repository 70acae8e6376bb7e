/*
 * config.h - settings: one table row each (server/config.c), from which the
 * file parser, the flags, --help and verifierd.conf(5) come.
 */
#ifndef SERVER_CONFIG_H
#define SERVER_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/error.h"

/* The task that the command line selects. */
enum config_task {
    CONFIG_SERVE,  /* run the daemon */
    CONFIG_CHECK,  /* --check-config: the settings are fine, say so and exit; migrate: --check */
    CONFIG_MANUAL, /* --help-conf: print the settings' section of verifierd.conf(5) and exit */
};

struct config {
    enum config_task task;
    char *file;   /* --config, or NULL */
    char *listen; /* "127.0.0.1:8080"; port 0 picks one; loopback only unless allow_remote */
    bool allow_remote;
    char *tokens;              /* path of the tokens (server/token.h) */
    char *store;               /* path or URL of the database */
    char *durability;          /* of a database: "strict" or "relaxed" */
    char *node;                /* name among those that share it; "": the host's */
    char *role;                /* of this node: "all", "compile" or "http" */
    char *scratch;             /* directory for submissions' private files; emptied at start */
    bool is_scratch_ours;      /* it was not given: removed at the end */
    char *python;              /* interpreter that has torch and triton */
    char *harness;             /* directory of the harness */
    char *device;              /* "auto", "cpu", "cpu:0,1", or "cuda" (all), "cuda:0,1" */
    char *target;              /* compile target without a GPU: "cuda:90" */
    char *log_level;           /* error, warn, info, debug */
    char *log_format;          /* auto, json, text */
    int64_t cpu_jobs;          /* ast and compile children side by side; 0: number of cores */
    int64_t stage_pool;        /* children of each CPU stage that are kept ready */
    int64_t timing_cores;      /* for each GPU; -1: as many as the machine can spare */
    int64_t pool;              /* run children kept ready for each device */
    int64_t canary_interval_s; /* most between two canaries that passed, of a GPU; 0: no limit */
    int64_t references_kept;   /* reference children kept for each GPU */
    int64_t queue_limit;       /* submissions waiting before 429 */
    char *quotas;              /* server/queue/quota.h */
    bool cache;                /* identical candidates are judged once */
    int64_t cache_recheck_percent;
    int64_t stage_limit_ms;       /* 60000 */
    int64_t tiny_limit_ms;        /* 10000 */
    int64_t max_attempts;         /* 3 */
    int64_t output_limit_bytes;   /* captured output of one submission */
    int64_t memory_limit_bytes;   /* RLIMIT_DATA of a child */
    int64_t file_limit_bytes;     /* RLIMIT_FSIZE of a child */
    char *peaks;                  /* "NAME=FIGURE,..."; "": all measured */
    int64_t scratch_limit_bytes;  /* all files of a child together */
    int64_t interpreter_elements; /* largest task judged in full by the interpreter */
    int64_t uid_first, uid_count; /* range for children when started as root */
    char *cgroup;                 /* "auto", "off", or the path of a group for the children's groups */
    char *sandbox_require;        /* comma-separated layers */
    int64_t connections;          /* most HTTP connections */
    int64_t wait_limit_s;         /* longest long poll */
    int64_t events_kept;          /* for event streams */
    char *notify_hosts;           /* where ends of groups may be posted: "HOST HOST:PORT"; "": nowhere */
    char *notify_key;             /* path of the key that signs them */
    int64_t heartbeat_ms;         /* of an event stream */
    int64_t header_limit_ms;      /* from connecting to the end of a request's header */
    int64_t body_limit_ms;        /* from there to the end of its body */
    int64_t drain_ms;             /* grace after SIGTERM */
    int64_t retention_days;       /* of what has ended; 0: for ever */
    int64_t retention_rows;       /* most that have ended; 0: no bound */
    int64_t retention_log_days;   /* of captured output; 0: as long as its submission */
    int64_t retention_interval_s; /* between two sweeps */
    bool paused;                  /* accept and store, judge nothing (benchmarks, maintenance) */
};

/*
 * Defaults, then the file (--config), then flags. argv is borrowed and not
 * changed. Returns 0, ERR_INPUT (err names file:line or flag), ERR_SYS or
 * ERR_NOMEM; out is empty then. --help, --version and unknown flags
 * end the process, as GNU programs do. Any thread, one at a time.
 */
int config_load(int argc, char **argv, struct config *out, struct error *err);
void config_release(struct config *c);

/*
 * Take over from `now` the settings that may change while the daemon runs. Others
 * stay unchanged (their strings too), and tell is called with the name of each
 * that differs. now still has to be released. Returns how many differ.
 */
int config_adopt(struct config *c, struct config *now, void (*tell)(void *arg, const char *name), void *arg);

/* Split listen into a host ("127.0.0.1", "::1") and a port; both given by the caller. 0 or ERR_INPUT. */
#define CONFIG_HOST_SIZE 64
int config_split_listen(const char *listen, char host[CONFIG_HOST_SIZE], uint16_t *port, struct error *err);

/* Whether that is the role of this daemon. */
bool config_has_role(const struct config *c, const char *role);
/* Whether listen names an address that only this machine reaches. */
bool config_is_loopback(const struct config *c);

/* The settings as a section of verifierd.conf(5), in roff. */
void config_print_manual(FILE *to);

#endif
