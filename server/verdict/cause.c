#include "server/verdict/cause.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "common/auto.h"
#include "common/utf8.h"

#define MESSAGE_MAX 400 /* bytes kept of a message */

/* --- messages that are known: %i is a name, possibly with dots, %n a number, %q names in quotes, %o an operator --- */

static const char out_of_resource[] = "out of resource: shared memory, Required: %n, Hardware limit: %n. "
                                      "Reducing block sizes or `num_stages` may help.";

static const char *const known[] = {
    "module '%i' has no attribute '%i'",
    "name '%i' is not defined",
    "%i is not defined",
    "No module named '%i'",
    "'%i' object has no attribute '%i'",
    "'%i' object is not callable",
    "'%i' object is not iterable",
    "'%i' object is not subscriptable",
    "unsupported operand type(s) for %o: '%i' and '%i'",
    "cannot access local variable '%i' where it is not associated with a value",
    "%i() missing %n required positional argument: %q",
    "%i() missing %n required positional arguments: %q",
    "%i() missing %n required keyword-only argument: %q",
    "%i() missing %n required keyword-only arguments: %q",
    "%i() takes %n positional argument but %n was given",
    "%i() takes %n positional argument but %n were given",
    "%i() takes %n positional arguments but %n were given",
    "%i() takes from %n to %n positional arguments but %n were given",
    "%i() got an unexpected keyword argument '%i'",
    "%i() got multiple values for argument '%i'",
    "list index out of range",
    "tuple index out of range",
    "division by zero",
    "maximum recursion depth exceeded",
    "maximum recursion depth exceeded in comparison",
    "maximum recursion depth exceeded while calling a Python object",
    "maximum recursion depth exceeded while getting the str of an object",
    "mat1 and mat2 shapes cannot be multiplied (%nx%n and %nx%n)",
    "The size of tensor a (%n) must match the size of tensor b (%n) at non-singleton dimension %n",
    "index %n is out of bounds for dimension %n with size %n",
    "arange's range must be a power of 2",
    "arange's arguments must be of type tl.constexpr",
    "arange's end argument must be greater than the start argument",
    "program_id axis must be 0, 1, or 2 but got %n",
    "input and other must have equal ranks >= 2",
    "Cannot make_shape_compatible: incompatible dimensions at index %n: %n and %n",
    "Shape element %n must be a power of 2",
    "Cannot access global variable %i from within @jit'ed function.",
    "invalid axis %n. Expected %n <= axis < %n",
    "must be real number, not tensor",
    out_of_resource,
    "Pointer argument (at %n) cannot be accessed from Triton (cpu tensor?)",
    "the process ended before it answered",
    "what runs next depends on a number that only the GPU knows",
    "a later call uses an input of the first one",
    "a later call uses a tensor that the first one computed from its inputs",
    /* clang-format off */
    "kernel %i: %n elements are written outside of all tensors, the first %n bytes before one of %n bytes",
    "kernel %i: %n elements are written outside of all tensors, the first %n bytes behind the end of one of %n bytes",
    /* clang-format on */
    "the import ran for over %n s while it was traced",
    "%i() ran for over %n s while it was traced",
};

static bool
is_name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

bool
cause_is_name(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (!is_name_char(text[i]))
            return false;
    return size > 0 && size <= 64 && !isdigit((unsigned char)text[0]);
}

/* How much of the text is what stands for the letter; 0: it does not begin so. */
static size_t
wildcard_size(char letter, const char *text)
{
    size_t n = 0;

    if (letter == 'i')
        while (n < 64 && (is_name_char(text[n]) || (text[n] == '.' && n > 0 && is_name_char(text[n + 1]))))
            n++;
    else if (letter == 'n')
        while (n < 20 && (isdigit((unsigned char)text[n]) || (n == 0 && text[n] == '-')))
            n++;
    else if (letter == 'o')
        n = strspn(text, "+-*/%@<>=&|^");
    else
        for (size_t name; text[n] == '\'' && (name = wildcard_size('i', text + n + 1)) > 0 &&
                          text[n + 1 + name] == '\'';) {
            n += name + 2;
            n += strncmp(text + n, ", and ", 6) == 0  ? 6
                 : strncmp(text + n, " and ", 5) == 0 ? 5
                 : strncmp(text + n, ", ", 2) == 0    ? 2
                                                      : 0;
        }
    return n;
}

static bool
is_like(const char *pattern, const char *text)
{
    while (*pattern) {
        if (*pattern == '%') {
            size_t n = wildcard_size(pattern[1], text);
            if (n == 0)
                return false;
            text += n;
            pattern += 2;
        } else if (*pattern++ != *text++) {
            return false;
        }
    }
    return !*text;
}

bool
cause_is_known(const char *text)
{
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (is_like(known[i], text))
            return true;
    return false;
}

/* --- what was raised --- */

/* The parts of an error: views into its text. */
struct raised {
    const char *kernel, *type, *message;
    size_t kernel_size, type_size, message_size;
};

static size_t
line_size(const char *text)
{
    return strcspn(text, "\n");
}

/* Behind "candidate.py, line 5: " or "candidate.py: ", where the text begins so. */
static const char *
after_place(const char *text)
{
    static const char file[] = "candidate.py";
    const char *p = text + sizeof(file) - 1;

    if (strncmp(text, file, sizeof(file) - 1) != 0)
        return text;
    if (strncmp(p, ", line ", 7) == 0)
        for (p += 7; isdigit((unsigned char)*p);)
            p++;
    return strncmp(p, ": ", 2) == 0 ? p + 2 : text;
}

/* "kernel NAME does not compile", as the first line. */
static void
find_kernel(const char *text, struct raised *r)
{
    static const char before[] = "kernel ", after[] = " does not compile";
    const char *p = after_place(text);
    size_t size = line_size(p), n = sizeof(before) - 1, m = sizeof(after) - 1;

    if (size > n + m && memcmp(p, before, n) == 0 && memcmp(p + size - m, after, m) == 0) {
        r->kernel = p + n;
        r->kernel_size = size - n - m;
    }
}

/* Of a traceback the first line of the message, which follows the type; else the last line that is not empty. */
static void
find_message(const char *text, const char *type, struct raised *r)
{
    size_t named = strlen(type);

    for (const char *p = text; *p; p += *p == '\n') {
        size_t size = line_size(p);
        if (strspn(p, " \t\r") < size) {
            r->message = p;
            r->message_size = size;
        }
        p += size;
    }
    for (const char *p = text; named > 0 && *p && (p = strstr(p + 1, type)) != NULL;)
        if (p[-1] == '\n' && p[named] == ':') {
            r->message = p;
            r->message_size = line_size(p);
        }
}

/* "NameError: text", and "NameError('text')", are a type and a text. */
static void
split_type(struct raised *r)
{
    const char *p = r->message, *end = p + r->message_size;
    size_t n = 0;

    while (p + n < end && is_name_char(p[n]))
        n++;
    if (n == 0 || !isupper((unsigned char)p[0]) || p + n >= end)
        return;
    if (p[n] == ':' && p + n + 1 < end && p[n + 1] == ' ') {
        r->type = p;
        r->type_size = n;
        r->message = p + n + 2;
    } else if (end - p > (ptrdiff_t)n + 4 && p[n] == '(' && (p[n + 1] == '\'' || p[n + 1] == '"') &&
               end[-1] == ')' && end[-2] == p[n + 1]) {
        r->type = p;
        r->type_size = n;
        r->message = p + n + 2;
        end -= 2;
    }
    r->message_size = (size_t)(end - r->message);
}

/* --- the line --- */

/* The text was written by a process that never ran the candidate: by the stage, or by what only such a one finds. */
static bool
is_ours(const struct cause *c)
{
    switch (c->class_) {
    case CLASS_EXTRACT:
    case CLASS_SYNTAX:
    case CLASS_FORM:
    case CLASS_POLICY:
    case CLASS_SHAPE:
    case CLASS_DTYPE:
    case CLASS_NONFINITE:
    case CLASS_MISMATCH:
    case CLASS_NONDETERMINISTIC:
    case CLASS_MUTATED_INPUT:
    case CLASS_HACK:
    case CLASS_INFRA:
        return true;
    case CLASS_IMPORT:
    case CLASS_COMPILE:
    case CLASS_LAUNCH:
    case CLASS_TIMEOUT:
    case CLASS_OOM:
    case CLASS_CRASH:
    case CLASS_OUT_OF_BOUNDS:
    case CLASS_OK:
    case CLASS_NONE:
    case CLASS_N:
        break;
    }
    return false;
}

static int
add_message(const char *text, bool is_bare, struct buffer *out)
{
    size_t size = strlen(text), kept = size > MESSAGE_MAX ? utf8_cut(text, MESSAGE_MAX) : size;
    const char *quote = is_bare ? "" : "\"";

    buffer_add(out, quote);
    for (size_t i = 0; i < kept; i++)
        buffer_append(out, !is_bare && text[i] == '"' ? "'" : text + i, 1);
    return buffer_printf(out, "%s%s", kept < size ? "…" : "", quote);
}

static void
add_place(const struct cause *c, const struct raised *r, struct buffer *out)
{
    json_t *line = json_object_get(c->error, "line");
    bool has_kernel = r->kernel && cause_is_name(r->kernel, r->kernel_size);

    buffer_printf(out, "%s: ", stage_name(c->stage));
    if (json_is_integer(line))
        buffer_printf(out, "line %lld%s", (long long)json_integer_value(line), has_kernel ? ", " : ": ");
    if (has_kernel)
        buffer_printf(out, "kernel %.*s: ", (int)r->kernel_size, r->kernel);
}

int
cause_add(const struct cause *c, struct buffer *out)
{
    const char *text = json_string_value(json_object_get(c->error, "text")),
               *type = json_string_value(json_object_get(c->error, "type"));
    struct raised r = { 0 };
    char message[2048];

    text = text && *text ? text : c->otherwise;
    find_kernel(text, &r);
    if (is_ours(c)) {
        r.message = after_place(text);
        r.message_size = line_size(r.message);
    } else {
        find_message(text, type && !r.kernel ? type : "", &r);
        r.message = r.message ? r.message : text;
        split_type(&r);
    }
    snprintf(message, sizeof(message), "%.*s", (int)r.message_size, r.message);
    bool is_bare = is_ours(c) || text == c->otherwise || cause_is_known(message);
    add_place(c, &r, out);
    /* A kernel's message is enough; for an exception of Python the type is half of the information. */
    if (r.type && !(r.kernel && is_bare) && cause_is_name(r.type, r.type_size))
        buffer_printf(out, "%.*s: ", (int)r.type_size, r.type);
    return add_message(message, is_bare, out);
}
