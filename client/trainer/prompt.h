/* prompt.h - the one prompt template (client/prompt/); its digest stands in all that is made with it. */
#ifndef TRAINER_PROMPT_H
#define TRAINER_PROMPT_H

#include "common/buffer.h"
#include "common/hash.h"

/*
 * policy: as in --policy, or NULL. If it lets other sizes judge, the prompt mentions that (client/prompt/sizes.txt),
 * and its digest is another.
 */

/* The digest of the template, "sha256:...". */
void prompt_digest(const char *policy, char out[HASH_TEXT_SIZE]);
/* Append the prompt for a reference; the answer's class is to be named class_name. 0 or ERR_NOMEM. */
int prompt_make(const char *reference, const char *class_name, const char *policy, struct buffer *out);

#endif
