/*
 * Fences as CommonMark has them, read line by line: an opening line is white
 * space, three or more of one of ` and ~, and an info string; only a line of
 * as many of the same and nothing else closes it, but for a special token that
 * ends an answer: those that decode with special tokens send ```<|im_end|>. So a
 * line ```python inside an open fence is content, as is a shorter run.
 * Indentation is not limited, since models put fences into lists.
 */
#include "common/extract.h"

#include <string.h>
#include <strings.h>

#include "common/auto.h"
#include "common/error.h"

/* Special tokens that end an answer, of the models in use; text that is decoded with them has them at its end. */
static const char *const end_marks[] = {
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>",    "<|end_of_text|>",       "<|eom_id|>", "<|end|>",
    "</s>",       "<eos>",         "<end_of_turn>", "<｜end▁of▁sentence｜>", "<pad>",      "<|pad|>",
};

struct line {
    const char *start;
    const char *end;  /* without the line's end */
    const char *next; /* start of the next line, or the end of the text */
};

struct fence {
    char mark; /* 0: no fence is open */
    size_t length;
    bool is_tagged;
    const char *code;
};

static bool
is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' || c == '\v';
}

static bool
all_blank(const char *start, const char *end)
{
    for (; start < end; start++)
        if (!is_blank(*start))
            return false;
    return true;
}

static bool
begins_with_end_mark(const char *start, const char *end)
{
    while (start < end && is_blank(*start))
        start++;
    for (size_t i = 0; i < ARRAY_LEN(end_marks); i++) {
        size_t size = strlen(end_marks[i]);
        if ((size_t)(end - start) >= size && memcmp(start, end_marks[i], size) == 0)
            return true;
    }
    return false;
}

/* How long the mark is that ends there; 0: none does. */
static size_t
end_mark_before(const char *start, const char *end)
{
    for (size_t i = 0; i < ARRAY_LEN(end_marks); i++) {
        size_t size = strlen(end_marks[i]);
        if ((size_t)(end - start) >= size && memcmp(end - size, end_marks[i], size) == 0)
            return size;
    }
    return 0;
}

/* Where the special tokens at the end begin, or end where there are none. */
static const char *
before_end_marks(const char *start, const char *end)
{
    for (const char *p = end;; end = p) {
        while (p > start && is_blank(p[-1]))
            p--;
        size_t size = end_mark_before(start, p);
        if (size == 0)
            return end;
        p -= size;
    }
}

static struct line
line_at(const char *p, const char *end)
{
    const char *newline = memchr(p, '\n', (size_t)(end - p));
    struct line l = { p, newline ? newline : end, newline ? newline + 1 : end };
    return l;
}

/* The run of fence marks that the line begins with; returns its length, 0 for a line of another kind. */
static size_t
fence_run(const struct line *l, char *mark, const char **rest)
{
    const char *p = l->start;
    while (p < l->end && (*p == ' ' || *p == '\t'))
        p++;
    if (p == l->end || (*p != '`' && *p != '~'))
        return 0;
    const char *begin = p;
    *mark = *p;
    while (p < l->end && *p == *mark)
        p++;
    *rest = p;
    return p - begin >= 3 ? (size_t)(p - begin) : 0;
}

/* Is the first word of the info string the name of what we look for? */
static bool
is_code_tag(const char *info, const char *end)
{
    static const char *const tags[] = { "python", "triton", "py" };
    while (info < end && is_blank(*info))
        info++;
    const char *word = info;
    while (info < end && !is_blank(*info))
        info++;
    size_t size = (size_t)(info - word);
    for (size_t i = 0; i < ARRAY_LEN(tags); i++)
        if (size == strlen(tags[i]) && strncasecmp(word, tags[i], size) == 0)
            return true;
    return false;
}

static void
open_fence(struct fence *fence, const struct line *l)
{
    const char *info = NULL;
    char mark = 0;
    size_t length = fence_run(l, &mark, &info);
    /* Back-ticks after back-ticks are code within a line of prose, not a fence. */
    if (length == 0 || (mark == '`' && memchr(info, '`', (size_t)(l->end - info))))
        return;
    fence->mark = mark;
    fence->length = length;
    fence->is_tagged = is_code_tag(info, l->end);
    fence->code = l->next;
}

static bool
closes(const struct fence *fence, const struct line *l)
{
    const char *rest = NULL;
    char mark = 0;
    size_t length = fence_run(l, &mark, &rest);
    return length >= fence->length && mark == fence->mark &&
           (all_blank(rest, l->end) || begins_with_end_mark(rest, l->end));
}

/* A later fence wins over an earlier one, unless only the earlier is tagged. */
static void
offer(struct extract *best, const struct fence *fence, const char *end, bool is_truncated)
{
    if (!fence->is_tagged && best->from == EXTRACT_TAGGED_FENCE)
        return;
    best->code = fence->code;
    best->size = (size_t)(end - fence->code);
    best->from = fence->is_tagged ? EXTRACT_TAGGED_FENCE : EXTRACT_FENCE;
    best->is_truncated = is_truncated;
}

static const char *
after_thinking(const char *text, const char *end)
{
    static const char mark[] = "</think>";
    const size_t size = sizeof(mark) - 1;
    const char *last = text;
    for (const char *p = text; (p = memmem(p, (size_t)(end - p), mark, size)) != NULL;)
        last = p += size;
    return last;
}

int
extract_code(const char *text, size_t size, struct extract *out)
{
    if (size == 0)
        text = ""; /* so that no arithmetic is done on a null pointer */
    const char *end = before_end_marks(text, text + size);
    const char *start = after_thinking(text, end);
    struct fence fence = { 0, 0, false, NULL };

    *out = (struct extract){ start, (size_t)(end - start), EXTRACT_TEXT, false };
    for (const char *p = start; p < end;) {
        struct line l = line_at(p, end);
        if (fence.mark == 0) {
            open_fence(&fence, &l);
        } else if (closes(&fence, &l)) {
            offer(out, &fence, l.start, false);
            fence.mark = 0;
        }
        p = l.next;
    }
    if (fence.mark != 0)
        offer(out, &fence, end, true);
    if (out->size > EXTRACT_MAX || all_blank(out->code, out->code + out->size))
        return ERR_INPUT;
    return 0;
}
