/* prepare.h - what `trainer prepare` was asked for: its own files share it. Strings are borrowed from argv or the environment. */
#ifndef TRAINER_PREPARE_H
#define TRAINER_PREPARE_H

#include <stdbool.h>

#include "client/trainer/hub.h"

struct prepare_options {
    const char *file, *source, *overlap, *licenses, *python;
    const char *policy;      /* of --verify */
    const char *labelled_by; /* "operations" or "heuristic" */
    struct hub_options hub;
    int most, lines_most;
    bool is_static, verifies, enlarges;
};

#endif
