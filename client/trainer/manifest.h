/* manifest.h - is a checkpoint what was written? Reads what client/python/finetune/checkpoint.py writes. */
#ifndef TRAINER_MANIFEST_H
#define TRAINER_MANIFEST_H

#include <jansson.h>

#include "common/error.h"

/*
 * Check every file of a checkpoint against its manifest. *out is the manifest, given; out may be NULL.
 * ERR_NOTFOUND: there is no manifest; ERR_INPUT: something is not as it says.
 */
int manifest_verify(const char *directory, json_t **out, struct error *err);
/* Remove the files that are not as their manifest says, and say so on stderr; how many there were. None without a manifest. */
int manifest_drop_damaged(const char *directory);
/* "sha256:..." of a file. */
int manifest_digest(const char *path, char out[80], struct error *err);

#endif
