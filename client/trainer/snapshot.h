/*
 * snapshot.h - what goes up: checkpoints that verify, by hard links (their files never change, so that pruning and replacing do
 * not matter), and copies of the rest, in three parts that are sent one after the other.
 */
#ifndef TRAINER_SNAPSHOT_H
#define TRAINER_SNAPSHOT_H

#include <jansson.h>

#include "common/error.h"

#define SNAPSHOT_PATH_SIZE 3000 /* of a path below the working directory; longer ones are refused */

struct snapshot {
    char root[SNAPSHOT_PATH_SIZE];  /* the working directory */
    char stage[SNAPSHOT_PATH_SIZE]; /* root/.sync: the parts, a directory each, with paths as below root */
    json_t
        *sent; /* {relative path of a checkpoint: digest of its manifest}, of those that are on the remote */
};

/* In the order in which they go: a remote never has a manifest whose data is not there. */
#define SNAPSHOT_PARTS                \
    {                                 \
        "data", "manifests", "latest" \
    }

/*
 * Lay out the parts in the stage. now (an object) gets the checkpoints that are in them, as sent has those of before, which are
 * left out. A checkpoint that does not verify is left out and told on stderr. ERR_SYS: it cannot be laid out.
 */
int snapshot_take(struct snapshot *s, json_t *now, struct error *err);
/* Remove the stage, if there is one. */
void snapshot_remove(const struct snapshot *s);

#endif
