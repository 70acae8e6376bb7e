/* engine.h - the program that copies to a remote and back: rclone, or another that is configured. */
#ifndef TRAINER_ENGINE_H
#define TRAINER_ENGINE_H

#include "common/error.h"

#define ENGINE_COPY "rclone copy {source} {target}"
#define ENGINE_CHECK "rclone check --one-way {source} {target}"

/*
 * Run a command (see engine_words()) and wait; it ends with us. ERR_UNAVAILABLE: it failed, and the text is the line of what it
 * said that tells why, else its last one; ERR_INPUT: the command is empty; ERR_SYS, ERR_NOMEM: there is no process for it.
 */
int engine_run(const char *command, const char *source, const char *target, struct error *err);

/* The words of a command with {source} and {target} put in; no shell reads them. Given: freed by the caller, each and all; NULL: no memory. */
char **engine_words(const char *command, const char *source, const char *target);
/* What an engine's words come down to, whichever it is; "" where they speak for themselves. *at is where it says so (a view). */
const char *engine_meaning(const char *said, const char **at);

#endif
