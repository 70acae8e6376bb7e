/*
 * labels.h - the members of a request that the store reads: the run and step in its metadata, the GPU. Pure; any
 * thread.
 */
#ifndef STORE_LABELS_H
#define STORE_LABELS_H

#include <stdint.h>

#include "server/store/store.h"

#define LABEL_MAX_CHARS 200
#define LABEL_STEP_MAX 9007199254740991 /* the largest integer that a double represents exactly */
#define LABEL_STEP_NONE (-1)

struct labels {
    char run[LABEL_MAX_CHARS * 4 + 1]; /* UTF-8; "": none, and then there is no step either */
    int64_t step;
    char gpu[STORE_GPU_SIZE]; /* a part of its name; "": any will do */
};

/* From a row's request, JSON text or NULL. A value of another type or too long is treated as missing. */
void labels_read(const char *request, struct labels *out);

#endif
