/*
 * hub.h - a data set's files from the hub (huggingface.co or what speaks its calls), by id, revision and digest.
 *
 * The revision is resolved to a commit first, so that a download that is gone on with is of the same bytes. A file is written
 * beside its name, gone on with where it ended (Range), and gets its name once size and SHA-256 are what the listing says.
 */
#ifndef TRAINER_HUB_H
#define TRAINER_HUB_H

#include <stdint.h>

#include <jansson.h>

#include "common/error.h"

struct hub_options {
    const char *url;      /* NULL: HF_ENDPOINT, or https://huggingface.co */
    const char *id;       /* "GPUMODE/KernelBook" */
    const char *revision; /* a branch, a tag or a commit */
    const char *pattern;  /* which files, by fnmatch(3) on the whole path; '*' matches '/' too */
    const char *digest;   /* "sha256:..." that one of them must have; NULL: none is asked for */
    int attempts;         /* of one request */
};

/*
 * Have them in workdir/data/raw: *out is {"id", "revision", "commit", "files": [{"path", "file" (where it lies), "size",
 * "digest"}]}, given, files in the order of their paths. Nothing that lies there whole is asked for again. Progress goes to stderr.
 * ERR_INPUT: the hub does not know the id or revision, no file matches, or a file is not what it should be (it is removed);
 * ERR_UNAVAILABLE: the hub cannot be reached (what is there is gone on with), or interrupted; ERR_SYS: the disk.
 */
int hub_fetch(const struct hub_options *o, const char *workdir, json_t **out, struct error *err);

#endif
