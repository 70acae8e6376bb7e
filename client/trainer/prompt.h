/* prompt.h - the one prompt template (client/prompt/kernel.txt); its digest stands in all that is made with it. */
#ifndef TRAINER_PROMPT_H
#define TRAINER_PROMPT_H

#include "common/buffer.h"
#include "common/hash.h"

/* The digest of the template, "sha256:...". */
void prompt_digest(char out[HASH_TEXT_SIZE]);
/* Append the prompt for a reference whose answer has to be called class_name. 0 or ERR_NOMEM. */
int prompt_make(const char *reference, const char *class_name, struct buffer *out);

#endif
