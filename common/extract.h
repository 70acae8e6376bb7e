/*
 * extract.h - the code in a model's answer. Pure; bounded by EXTRACT_MAX.
 *
 * After the last </think> (or Harmony's final channel), and the template's heading of an answer: the last fence tagged
 * python, triton or py, else the last fence, else the whole text. Of several fences that are tagged, or of several that
 * are not, the last one that binds the entry class at its outermost indentation counts, since usage examples follow an
 * answer. A fence that is open at the end counts, and sets is_truncated, as does reasoning without its end. Special
 * tokens that end an answer (<|im_end|> and the like) are left out.
 */
#ifndef COMMON_EXTRACT_H
#define COMMON_EXTRACT_H

#include <stdbool.h>
#include <stddef.h>

#include "common/buffer.h"

#define EXTRACT_MAX (1024 * 1024)

enum extract_from { EXTRACT_TAGGED_FENCE, EXTRACT_FENCE, EXTRACT_TEXT };

struct extract {
    const char *code; /* view into the text that was given, with the indentation of a fence in a list */
    size_t size;
    enum extract_from from;
    bool is_truncated;  /* the fence was never closed, or the reasoning never ended */
    bool is_unended;    /* the reasoning never ended */
    const char *indent; /* removed by extract_append() from the start of each line; view, NULL for a text */
    size_t indent_size;
};

/*
 * entry: the class to look for; NULL: any. Returns 0, or ERR_INPUT when nothing but white space is left, or
 * it is longer than EXTRACT_MAX.
 */
int extract_code(const char *text, size_t size, const char *entry, struct extract *out);
/* Where an answer begins behind its reasoning; the start of a text that has no end of one. View. */
const char *extract_answer(const char *text, size_t size);
/* The code as Python reads it, without the indentation. 0 or ERR_NOMEM. */
int extract_append(const struct extract *found, struct buffer *out);

#endif
