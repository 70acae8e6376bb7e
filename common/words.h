/* words.h - lists of words in a text. Pure. */
#ifndef COMMON_WORDS_H
#define COMMON_WORDS_H

#include <stdbool.h>
#include <stddef.h>

/* Whether the list, whose words stand between separators, has the word of this size. */
bool words_have(const char *list, const char *separators, const char *word, size_t size);

#endif
