/*
 * serving.h - the model's endpoint during `trainer run`: one that runs already, or one that is started by a configured command and
 * ended again; adapters are loaded over vLLM's /v1/load_lora_adapter under a name that is fresh for each content.
 */
#ifndef TRAINER_SERVING_H
#define TRAINER_SERVING_H

#include <stdbool.h>
#include <sys/types.h>

#include <jansson.h>

#include "common/buffer.h"
#include "common/error.h"

#define SERVING_NAME_SIZE 128

struct serving {
    const char *url;            /* with its /v1; borrowed */
    const char *command;        /* "" where it is not ours to start; {model} is the base's path. Borrowed */
    const char *model;          /* the base's path or hub id; borrowed */
    const char *name;           /* what the endpoint calls the base; borrowed */
    const char *log;            /* file for what the command prints; borrowed */
    int wait_s;                 /* how long it may take to be ready */
    pid_t pid;                  /* 0: none of ours runs */
    void (*tend)(void *tended); /* called again and again while it starts; NULL: nothing is */
    void *tended;
};

/* Start it if it is ours and does not run, and wait until it answers. ERR_UNAVAILABLE: it ended, or did not answer in time. */
int serving_start(struct serving *s, struct error *err);
/* End what serving_start() started. */
void serving_stop(struct serving *s);
/*
 * Have an adapter (a checkpoint's directory; "" for the base itself) served; name gets what to ask for. ERR_INPUT: refused.
 */
int serving_adapter(struct serving *s, const char *adapter, char name[SERVING_NAME_SIZE], struct error *err);

/* The shell's command: {model} put in wherever it stands, and exec before it. ERR_NOMEM. */
int serving_command(const struct serving *s, struct buffer *out);
/* The fresh name of an adapter: its directory's, and the first digits of its weights' digest ("sha256:..."). */
void serving_name(const char *adapter, const char *digest, char name[SERVING_NAME_SIZE]);
/* Does the endpoint's list of models ({"data": [{"id": ...}]}, or NULL) have this one? */
bool serving_has(json_t *found, const char *name);

#endif
