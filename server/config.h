/*
 * config.h - settings: one table row each (server/config.c), from which the
 * file parser, the flags, --help and verifierd.conf(5) come.
 */
#ifndef SERVER_CONFIG_H
#define SERVER_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

struct config {
    char *listen;        /* "127.0.0.1:8080"; port 0 picks one; loopback only unless allow_remote */
    bool allow_remote;
    char *store;         /* path of the database */
    char *scratch;       /* directory for submissions' private files; emptied at start */
    char *python;        /* interpreter that has torch and triton */
    char *harness;       /* directory of the harness */
    char *device;        /* "auto", "cpu", or "cuda" (all), "cuda:0,1" */
    char *target;        /* compile target without a GPU: "cuda:90" */
    char *log_level;     /* error, warn, info, debug */
    char *log_format;    /* auto, json, text */
    int64_t cpu_jobs;    /* ast and compile children side by side; 0: number of cores */
    int64_t pool;        /* run children kept ready for each GPU */
    int64_t references_kept; /* reference children kept for each GPU */
    int64_t queue_limit; /* submissions waiting before 429 */
    int64_t stage_limit_ms;   /* 60000 */
    int64_t tiny_limit_ms;    /* 10000 */
    int64_t max_attempts;     /* 3 */
    int64_t output_limit_bytes; /* captured output of one submission */
    int64_t memory_limit_bytes; /* RLIMIT_DATA of a child */
    int64_t file_limit_bytes;   /* RLIMIT_FSIZE of a child */
    int64_t interpreter_elements; /* largest task judged in full by the interpreter */
    int64_t uid_first, uid_count; /* range for children when started as root */
    char *sandbox_require; /* comma-separated layers */
    int64_t connections;   /* most HTTP connections */
    int64_t wait_limit_s;  /* longest long poll */
    int64_t drain_ms;      /* grace after SIGTERM */
    bool paused;           /* accept and store, judge nothing (benchmarks, maintenance) */
};

/* Defaults, then the file (--config), then flags. 0, ERR_INPUT (err names file:line or flag). */
int config_load(int argc, char **argv, struct config *out, struct error *err);
void config_release(struct config *c);

#endif
