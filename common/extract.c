/*
 * Fences as CommonMark has them, read line by line: an opening line is white
 * space, three or more of one of ` and ~, and an info string; only a line of
 * as many of the same and nothing else closes it, but for a special token that
 * ends an answer: those that decode with special tokens send ```<|im_end|>. So a
 * line ```python inside an open fence is content, as is a shorter run.
 * Indentation is not limited, since models put fences into lists. The code of such a
 * fence is moved left by the indentation of its first line that is not a comment: no module
 * in Python begins with an indented statement.
 */
#include "common/extract.h"

#include <string.h>
#include <strings.h>

#include "common/auto.h"
#include "common/error.h"

/* Special tokens that end an answer, of the models in use; text that is decoded with them has them at its end. */
static const char *const end_marks[] = {
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>",
    "<|end|>",    "</s>",          "<eos>",      "<end_of_turn>",   "<｜end▁of▁sentence｜>",
    "<pad>",      "<|pad|>",       "<|return|>", "<|call|>",        "<|eot|>",
};

struct line {
    const char *start;
    const char *end;  /* without the line's end */
    const char *next; /* start of the next line, or the end of the text */
};

struct fence {
    char mark; /* 0: no fence is open */
    size_t length;
    bool is_tagged, is_binding;
    const char *code;
    const char *indent; /* of the first line of code that is not a comment; NULL before it */
    size_t indent_size;
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

static const char *
after_blanks(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    return p;
}

/* The run of fence marks that the line begins with; returns its length, 0 for a line of another kind. */
static size_t
fence_run(const struct line *l, char *mark, const char **rest)
{
    const char *p = after_blanks(l->start, l->end);
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
    *fence = (struct fence){
        .mark = mark, .length = length, .is_tagged = is_code_tag(info, l->end), .code = l->next
    };
}

/* How much of the indentation the line has at its start. */
static size_t
shared_indent(const char *indent, size_t size, const char *line, const char *end)
{
    size_t n = 0;
    while (n < size && line + n < end && line[n] == indent[n])
        n++;
    return n;
}

/* Does a statement of the module that begins at p bind the name: "class NAME" or "NAME ="? */
static bool
binds(const char *p, const char *end, const char *name)
{
    const size_t size = strlen(name);
    const bool is_class = end - p > 6 && memcmp(p, "class", 5) == 0 && (p[5] == ' ' || p[5] == '\t');
    p = is_class ? after_blanks(p + 5, end) : p;
    if ((size_t)(end - p) < size || memcmp(p, name, size) != 0)
        return false;
    p = after_blanks(p + size, end);
    if (is_class) /* "class NAMEs" is another one's */
        return p == end || *p == ':' || *p == '(' || *p == '[' || *p == '\r';
    return p < end && *p == '=' && (p + 1 == end || p[1] != '=');
}

/* A line of an open fence's code. */
static void
read_code(struct fence *fence, const struct line *l, const char *entry)
{
    const char *p = after_blanks(l->start, l->end);
    if (all_blank(p, l->end) || *p == '#')
        return;
    if (!fence->indent) {
        fence->indent = l->start;
        fence->indent_size = (size_t)(p - l->start);
    }
    size_t n = shared_indent(fence->indent, fence->indent_size, l->start, l->end);
    if (entry && l->start + n == p)
        fence->is_binding = fence->is_binding || binds(p, l->end, entry);
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

/* The best fence so far, and how good it is. */
struct choice {
    struct extract *found;
    int rank; /* -1: none yet */
};

/* Tagged before untagged, of these one that binds the entry class, of these the last. */
static void
offer(struct choice *best, const struct fence *fence, const char *end, bool is_truncated)
{
    const int rank = 2 * fence->is_tagged + fence->is_binding;
    if (rank < best->rank)
        return;
    best->rank = rank;
    *best->found = (struct extract){ .code = fence->code,
                                     .size = (size_t)(end - fence->code),
                                     .from = fence->is_tagged ? EXTRACT_TAGGED_FENCE : EXTRACT_FENCE,
                                     .is_truncated = is_truncated,
                                     .indent = fence->indent,
                                     .indent_size = fence->indent_size };
}

/* The marks at the end and the beginning of reasoning: of <think> and the like, and of Harmony's channels. */
static const struct {
    const char *begins, *ends;
} reasonings[] = {
    { "<think>", "</think>" },
    { "[THINK]", "[/THINK]" },
    { "<|channel|>analysis<|message|>", "<|channel|>final<|message|>" },
};

/* Headings of an answer in the usual chat templates: text that is decoded with special tokens may begin with one. */
static const char *const headings[] = {
    "<|im_start|>assistant",
    "<|start_header_id|>assistant<|end_header_id|>",
    "<|header_start|>assistant<|header_end|>",
    "<|assistant|>",
    "<|start|>assistant",
    "<start_of_turn>model",
    "<｜Assistant｜>",
    "[/INST]",
};

static bool
begins_with(const char *start, const char *end, const char *mark)
{
    return (size_t)(end - start) >= strlen(mark) && memcmp(start, mark, strlen(mark)) == 0;
}

static const char *
after_heading(const char *text, const char *end)
{
    const char *p = text;

    while (p < end && is_blank(*p))
        p++;
    for (size_t i = 0; i < ARRAY_LEN(headings); i++)
        if (begins_with(p, end, headings[i]))
            return p + strlen(headings[i]);
    return text;
}

static const char *
after_thinking(const char *text, const char *end)
{
    const char *last = text;

    for (size_t i = 0; i < ARRAY_LEN(reasonings); i++) {
        size_t size = strlen(reasonings[i].ends);
        for (const char *p = text; (p = memmem(p, (size_t)(end - p), reasonings[i].ends, size)) != NULL;) {
            p += size;
            last = p > last ? p : last;
        }
    }
    return last;
}

/* An answer that ends before its reasoning does. */
static bool
is_unended(const char *text, const char *end)
{
    while (text < end && is_blank(*text))
        text++;
    for (size_t i = 0; i < ARRAY_LEN(reasonings); i++)
        if (begins_with(text, end, reasonings[i].begins))
            return true;
    return false;
}

const char *
extract_answer(const char *text, size_t size)
{
    return after_thinking(text, text + size);
}

int
extract_code(const char *text, size_t size, const char *entry, struct extract *out)
{
    if (size == 0)
        text = ""; /* so that no arithmetic is done on a null pointer */
    const char *end = before_end_marks(text, text + size);
    const char *start = after_thinking(after_heading(text, end), end);
    struct fence fence = { 0 };
    struct choice best = { out, -1 };

    *out = (struct extract){ .code = start, .size = (size_t)(end - start), .from = EXTRACT_TEXT };
    for (const char *p = start; p < end;) {
        struct line l = line_at(p, end);
        if (fence.mark == 0) {
            open_fence(&fence, &l);
        } else if (closes(&fence, &l)) {
            offer(&best, &fence, l.start, false);
            fence.mark = 0;
        } else {
            read_code(&fence, &l, entry);
        }
        p = l.next;
    }
    if (fence.mark != 0)
        offer(&best, &fence, end, true);
    out->is_unended = is_unended(start, end);
    out->is_truncated = out->is_truncated || out->is_unended;
    if (out->size > EXTRACT_MAX || all_blank(out->code, out->code + out->size))
        return ERR_INPUT;
    return 0;
}

int
extract_append(const struct extract *found, struct buffer *out)
{
    const char *end = found->code + found->size;
    int rc = 0;

    if (found->indent_size == 0)
        return buffer_append(out, found->code, found->size);
    for (const char *p = found->code; rc == 0 && p < end;) {
        struct line l = line_at(p, end);
        p += shared_indent(found->indent, found->indent_size, l.start, l.end);
        rc = buffer_append(out, p, (size_t)(l.next - p));
        p = l.next;
    }
    return rc;
}
