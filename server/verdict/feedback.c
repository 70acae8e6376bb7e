#include "server/verdict/feedback.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/auto.h"
#include "common/error.h"
#include "common/json.h"
#include "common/utf8.h"
#include "server/verdict/cause.h"

#define HEADLINE_MAX 700
#define UNTRACED_MAX 300
#define KERNELS_MAX 3
#define LAUNCH_BOUND_MS 0.02 /* below this a call is mostly its launches */
#define FLOOR_LEAST_MS 0.001 /* the least time of any kernel */

/* --- text that is removed before it enters a prompt --- */

struct span {
    const char *at, *end;
};

static bool
starts(struct span s, const char *text)
{
    size_t size = strlen(text);
    return (size_t)(s.end - s.at) >= size && memcmp(s.at, text, size) == 0;
}

static bool
is_path_char(char c)
{
    return isalnum((unsigned char)c) || strchr("._+@-/", c) != NULL;
}

/* "/usr/lib/python3/dist-packages/triton/x.py" is "triton/x.py", any other path its last part. Returns its length, or 0. */
static size_t
path_at(struct span s, const char *begin, struct span *shown)
{
    static const char *const roots[] = { "site-packages/", "dist-packages/" };
    const char *p = s.at;
    int slashes = 0;

    if (*p != '/' || s.end - p < 2 || p[1] == '/' || !is_path_char(p[1]) ||
        (p > begin && (is_path_char(p[-1]) || p[-1] == ')' || p[-1] == ']')))
        return 0;
    for (; p < s.end && *p && is_path_char(*p); p++)
        slashes += *p == '/';
    if (slashes < 2)
        return 0;
    const char *last = s.at;
    for (const char *q = s.at; q < p; q++)
        if (*q == '/' && q + 1 < p)
            last = q + 1;
    for (size_t i = 0; i < ARRAY_LEN(roots); i++) {
        const char *root = memmem(s.at, (size_t)(p - s.at), roots[i], strlen(roots[i]));
        if (root && root + strlen(roots[i]) < p)
            last = root + strlen(roots[i]);
    }
    *shown = (struct span){ last, p };
    return (size_t)(p - s.at);
}

static size_t
digits_at(struct span s, const char *prefix, int (*is_digit)(int), size_t least)
{
    size_t size = strlen(prefix), n = size;

    if (!starts(s, prefix))
        return 0;
    while (s.at + n < s.end && is_digit((unsigned char)s.at[n]))
        n++;
    return n - size >= least ? n : 0;
}

/* Characters that are invisible, or change the direction of writing: U+200B-200F, 202A-202E, 2060-206F, FEFF. */
static size_t
invisible_at(struct span s)
{
    const unsigned char *u = (const unsigned char *)s.at;

    if (s.end - s.at >= 2 && u[0] == 0xc2 && (u[1] < 0xa0 || u[1] == 0xad))
        return 2; /* C1 controls, the soft hyphen */
    if (s.end - s.at >= 4 && u[0] == 0xf3 && u[1] == 0xa0)
        return 4; /* from U+E0000: tags, and selectors of variants */
    if (s.end - s.at < 3)
        return 0;
    if (u[0] == 0xe2 && u[1] == 0x80 && ((u[2] >= 0x8b && u[2] <= 0x8f) || (u[2] >= 0xa8 && u[2] <= 0xae)))
        return 3;
    if (u[0] == 0xe2 && u[1] == 0x81 && u[2] >= 0xa0 && u[2] <= 0xaf)
        return 3;
    return u[0] == 0xef && u[1] == 0xbb && u[2] == 0xbf ? 3 : 0;
}

/* Marks that would end our quotation for a reader or a tokenizer, each with what stands for it. */
static const struct {
    const char *mark, *shown;
} marks[] = {
    { "```", "'''" },
    { "~~~", "~ ~ ~ " },
    { "<|", "< | " },
    { "|>", "| >" },
    { "<｜", "< ｜ " },
    { "｜>", "｜ >" },
    { "</", "< /" },
    { "<think", "< think" },
    { "<s>", "< s>" },
    { "<eos>", "< eos>" },
    { "<bos>", "< bos>" },
    { "<pad>", "< pad>" },
    { "<unk>", "< unk>" },
    { "<start_of", "< start_of" },
    { "<end_of", "< end_of" },
    { "<tool", "< tool" },
    { "<answer", "< answer" },
    { "[INST", "[ INST" },
    { "[/INST", "[ /INST" },
    { "<<SYS", "< <SYS" },
    { "[THINK", "[ THINK" },
    { "[/THINK", "[ /THINK" },
    { "[TOOL_", "[ TOOL_" },
    { "[AVAILABLE_", "[ AVAILABLE_" },
    { "[SYSTEM_", "[ SYSTEM_" },
};

/* Adds what stands at s.at in its safe form. Returns how much of the text that was. */
static size_t
add_one(struct span s, const char *begin, const char *prefix, struct buffer *out)
{
    struct span path;
    size_t n;

    if ((n = path_at(s, begin, &path)) > 0) {
        /* What is left of a path makes no mark with what stands before it: "[/a/INST]". */
        buffer_add(out, s.at > begin && s.at[-1] == '[' ? " " : "");
        buffer_append(out, path.at, (size_t)(path.end - path.at));
        return n;
    }
    if ((n = digits_at(s, "0x", isxdigit, 6)) > 0) {
        buffer_add(out, "0x..");
        return n;
    }
    if ((n = digits_at(s, "pid ", isdigit, 1)) > 0 || (n = digits_at(s, "pid=", isdigit, 1)) > 0) {
        buffer_add(out, "pid ..");
        return n;
    }
    for (size_t i = 0; i < ARRAY_LEN(marks); i++)
        if (starts(s, marks[i].mark)) {
            buffer_add(out, marks[i].shown);
            return strlen(marks[i].mark);
        }
    buffer_append(out, s.at, 1);
    if (*s.at == '\n')
        buffer_add(out, prefix);
    return 1;
}

static void
add_part(const char *text, size_t size, const char *prefix, struct buffer *out)
{
    for (struct span s = { text, text + size }; s.at < s.end;)
        s.at += add_one(s, text, prefix, out);
}

/* A cut is made between characters. */
static const char *
forward(const char *p, const char *end)
{
    while (p < end && ((unsigned char)*p & 0xc0) == 0x80)
        p++;
    return p;
}

/* Control characters and what cannot be seen go first: between its characters they would hide a mark. */
static void
strip(const char *text, size_t size, struct buffer *out)
{
    buffer_reserve(out, size + 1);
    for (struct span s = { text, text + size }; s.at < s.end;) {
        unsigned char c = (unsigned char)*s.at;
        size_t n = invisible_at(s);
        if (n == 0 && (c == '\n' || c == '\t' || (c >= 0x20 && c != 0x7f)))
            buffer_append(out, s.at, 1);
        s.at += n > 0 ? n : 1;
    }
}

int
feedback_quote(const char *raw, size_t raw_size, size_t limit, const char *prefix, struct buffer *out)
{
    AUTO_BUFFER struct buffer visible = BUFFER_INIT;

    strip(raw, raw_size, &visible);
    const char *text = visible.data ? visible.data : "", *end = text + visible.size;
    if (visible.size <= limit) {
        add_part(text, visible.size, prefix, out);
    } else {
        /* The end of a traceback has the error, its beginning the place. */
        const char *head = forward(text + limit / 4, end), *tail = forward(end - (limit - limit / 4), end);
        add_part(text, (size_t)(head - text), prefix, out);
        buffer_printf(out, "\n%s[...]\n%s", prefix, prefix);
        add_part(tail, (size_t)(end - tail), prefix, out);
    }
    return visible.is_short || out->is_short ? ERR_NOMEM : 0;
}

/* --- hints, the same for all candidates: by the rule, by the exception, or by the class --- */

/* The rules that every candidate can keep; the others are not disclosed to a submitter (disclosure.c). */
static const char *
hint_of_rule(const char *rule)
{
    static const struct {
        const char *rule, *hint;
    } hints[] = {
        { "entry_class", "Define the class that was asked for at module level, by exactly that name." },
        { "kernel_required", "Write a @triton.jit function that computes, and launch it from forward." },
        { "require_plan",
          "Decide nothing in Python by a tensor's values, and launch with arguments that its shapes "
          "and constants give." },
        { "foreign_operator", "Move this work into the candidate's own kernels: torch may do only what the "
                              "policy allows." },
    };

    for (size_t i = 0; i < ARRAY_LEN(hints); i++)
        if (strcmp(hints[i].rule, rule) == 0)
            return hints[i].hint;
    return "Leave this out: a candidate computes with torch and Triton and does nothing else.";
}

/* Words of a message of Python, torch or Triton, in one class or (CLASS_NONE) in any, and what helps there. */
static const struct {
    enum verdict_class class_;
    const char *words, *hint;
} findings[] = {
    { CLASS_SYNTAX, "null bytes", "Send the source as text in UTF-8, without NULs." },
    { CLASS_SYNTAX, "line 1: SyntaxError: invalid syntax",
      "The first line is not Python: begin with the code, or send a whole answer as \"completion\"." },
    { CLASS_IMPORT, "ModuleNotFoundError", "Import torch, triton and the standard library only." },
    { CLASS_IMPORT, "cannot import name",
      "The installed version has no such name: take one that it has, or write the function yourself." },
    { CLASS_IMPORT, "ImportError", "Import torch, triton and the standard library only." },
    { CLASS_IMPORT, "__init__()", "The constructor takes what get_init_inputs() returns, in its order." },
    { CLASS_IMPORT, "has no attribute 'arg_names'",
      "triton.autotune and triton.heuristics stand above @triton.jit." },
    { CLASS_IMPORT, "has no attribute", "Use a name that is there." },
    { CLASS_COMPILE, "no kernel of the candidate's was compiled", "Launch a kernel from forward." },
    { CLASS_COMPILE, "too many or too large", "Give triton.autotune fewer configurations." },
    { CLASS_COMPILE, "module 'triton.language",
      "triton.language has no such function: compose it of those it has (tl.exp, tl.maximum, tl.where, "
      "tl.sum), or take it from triton.language.extra.libdevice." },
    { CLASS_COMPILE, "power of 2",
      "Sizes of blocks are powers of two: take triton.next_power_of_2(n) as a tl.constexpr, and mask what is "
      "beyond n." },
    { CLASS_COMPILE, "is not defined",
      "A kernel knows its arguments, its own variables, tl.constexpr globals and @triton.jit functions." },
    { CLASS_COMPILE, "Did you forget to add @triton.jit",
      "Of a kernel's values only triton.language and @triton.jit functions compute: tl.cdiv, not "
      "triton.cdiv." },
    { CLASS_COMPILE, "global variable", "Pass it as an argument, or make it a tl.constexpr." },
    { CLASS_COMPILE, "equal ranks", "tl.dot takes two blocks of two dimensions, each of at least 16." },
    { CLASS_COMPILE, "incompatible dimensions",
      "Blocks of one expression have the same shape: add [:, None] or [None, :], or take equal sizes." },
    { CLASS_COMPILE, "must be real number",
      "Python's math takes no blocks: inside a kernel only triton.language computes." },
    { CLASS_COMPILE, "invalid axis", "An axis is one of the block's dimensions, counted from 0." },
    { CLASS_COMPILE, "program_id axis", "A grid has at most three dimensions: axis 0, 1 or 2." },
    { CLASS_NONE, "out of resource", "Use smaller blocks or fewer stages: they take the shared memory." },
    { CLASS_LAUNCH, "illegal memory access", "Mask every load and store by the bounds of its tensor." },
    { CLASS_LAUNCH, ".forward() ", "forward takes what get_inputs() returns, in its order." },
    { CLASS_LAUNCH, "missing ", "Pass every argument of the kernel, tl.constexpr ones by their names." },
    { CLASS_LAUNCH, "unexpected keyword", "Pass arguments by the names that the definition has." },
    { CLASS_LAUNCH, "is not defined", "Define the name before it is used." },
    { CLASS_LAUNCH, "object has no attribute", "Set the attribute in __init__, or use one that is there." },
    { CLASS_OOM, "can't allocate memory", "Take sizes of tensors from the inputs, not from constants." },
    { CLASS_LAUNCH, "recursion", "A call leads back to itself: end it, or call something else." },
    { CLASS_LAUNCH, "cannot be accessed from Triton", "Move the tensor to the device of the inputs." },
    { CLASS_CRASH, "compile: the candidate's process was killed",
      "No kernel has run yet: look at what the module, its constructor and forward do in Python." },
    { CLASS_CRASH, "exited with status", "Do not end the process: return from forward." },
    { CLASS_CRASH, "SystemExit", "Do not end the process: return from forward." },
    { CLASS_MISMATCH, "other weights, ",
      "Weights and inputs are others here: compute with the module's weights and buffers, and treat tiny, "
      "huge, equal and constant values as the reference does, with its epsilon." },
    { CLASS_MISMATCH, "other weights",
      "Compute with the module's weights and buffers, not with values that they have only at first." },
    { CLASS_MISMATCH, "case \"filled\"",
      "Read every input: those that are zero or one throughout hold other values here." },
    { CLASS_MISMATCH, "not rounded to nearest",
      "Convert once, from float32 with .to(), and divide by the scale that is returned." },
    { CLASS_MISMATCH, "half precision",
      "Compute and store in the reference's precision: no conversion to float16 or bfloat16 on the way." },
    { CLASS_TIMEOUT, "compile: the process did not finish",
      "Look for a loop without an end in the module, its constructor or forward, for blocks or unrolled "
      "loops that are far too large to compile, and for many configurations of triton.autotune." },
    { CLASS_TIMEOUT,
      "compile: ", "Look for a loop without an end in the module, its constructor or forward." },
};

static const char *
hint_of_finding(const struct feedback *f)
{
    for (size_t i = 0; i < ARRAY_LEN(findings); i++)
        if ((findings[i].class_ == CLASS_NONE || findings[i].class_ == f->class_) &&
            strstr(f->headline, findings[i].words))
            return findings[i].hint;
    return NULL;
}

/*
 * An answer that is near the expected one everywhere is another formula or precision, and no wrong index. How near is
 * measured as the tolerance is, atol being rtol times the scale of the values: an error has no relative size at 0.
 */
#define NEAR 0.02

static bool
is_near(const struct feedback *f)
{
    double rtol = json_number_value(json_object_get(f->mismatch, "rtol")),
           atol = json_number_value(json_object_get(f->mismatch, "atol")),
           expected = json_number_value(json_object_get(f->mismatch, "expected"));

    return f->max_abs > 0 && f->max_abs * rtol < NEAR * (atol + rtol * fabs(expected));
}

static const char *
hint_of_mismatch(const struct feedback *f)
{
    double wrong = json_number_value(json_object_get(f->mismatch, "differing")),
           of = json_number_value(json_object_get(f->mismatch, "of"));

    if (is_near(f))
        return "The values are close: look for an approximation (tanh for erf), a lower precision (bfloat16, "
               "TF32) or an epsilon that differs.";
    if (of > 0 && wrong < 0.5 * of)
        return "Only some values are wrong: look at masks, strides, the last block of each dimension, "
               "elements that two programs write, and negative or zero inputs.";
    return "Most values are wrong: compare the formula, the axis and the bounds of each reduction, and the "
           "strides of what is read and written, with the reference.";
}

/* Output that no kernel wrote is NaN, and nothing else. */
static const char *
hint_of_nonfinite(const struct feedback *f)
{
    const char *got = json_string_value(json_object_get(f->mismatch, "got"));

    return got && strstr(got, "inf")
               ? "Guard divisions and exponentials: subtract the maximum before exp, keep "
                 "the reference's epsilon, and give masked elements a neutral value."
               : NULL;
}

static const char *
hint_of_answer(const struct feedback *f)
{
    if (f->is_unended)
        return "End the reasoning, then give the whole module in one block fenced as python; think less or "
               "raise the limit of tokens.";
    if (f->is_cut)
        return "The answer was cut off inside its code: write less before it, or raise the limit of tokens.";
    const char *text = json_string_value(json_object_get(f->error, "text"));
    if (text && f->class_ == CLASS_SYNTAX && strstr(text, "__global__"))
        return "A candidate is Python: write the kernels in Triton, not in CUDA C++.";
    return f->is_answer ? "Send a whole answer as \"completion\": \"candidate\" is the code alone." : NULL;
}

/* NULL: nothing helps it, or there is nothing to help. */
static const char *const class_hints[CLASS_N] = {
    [CLASS_EXTRACT] =
        "Put the whole module into one block fenced as python, at the end of the answer, and close "
        "the fence.",
    [CLASS_SYNTAX] = "The whole module has to parse; look at the line that is named.",
    [CLASS_FORM] = "Define the class that was asked for, and launch a @triton.jit function from its forward.",
    [CLASS_POLICY] = "Compute with the candidate's own kernels: the policy says what torch may do.",
    [CLASS_IMPORT] = "The module and its constructor have to run before forward is called, without a GPU.",
    [CLASS_COMPILE] =
        "Inside a kernel only triton.language is known; sizes of blocks are tl.constexpr and powers "
        "of two.",
    [CLASS_LAUNCH] =
        "Look at the line that is named: the arguments of the launch, their order, the grid, the "
        "shapes.",
    [CLASS_TIMEOUT] =
        "Look for a loop without an end, a grid or a block that is far too large, or work that is "
        "done element by element in Python.",
    [CLASS_OOM] = "Allocate the outputs and little else; smaller blocks or fewer stages need less shared "
                  "memory.",
    [CLASS_CRASH] =
        "Mask every load and store by the tensor's bounds: an access outside of it ends the process.",
    [CLASS_SHAPE] = "Return what the reference returns, in its order and with its shapes.",
    [CLASS_DTYPE] = "Return the reference's dtype, on its device; compute in float32 where it helps, and "
                    "convert when storing.",
    [CLASS_NONFINITE] =
        "Write every element, and mask what is loaded: what no kernel wrote is NaN, as is what lies "
        "outside of a tensor. Guard divisions and exponentials: subtract the maximum before exp, keep "
        "the reference's epsilon, and give masked elements a neutral value.",
    [CLASS_MISMATCH] = "Compare the formula, the masks and the bounds of each reduction with the reference.",
    [CLASS_NONDETERMINISTIC] =
        "Equal inputs must give equal answers: keep nothing between calls, read nothing that was not "
        "written or that another program of the launch writes, and add with atomics what several add.",
    [CLASS_MUTATED_INPUT] = "Write into new tensors: inputs and weights have to stay as they were.",
    [CLASS_OUT_OF_BOUNDS] = "Mask every store by the size of the tensor that it writes to.",
    [CLASS_INFRA] = "As far as is known nothing is wrong with the candidate; submit it again.",
};

static const char *
hint_of_speed(const struct feedback *f, const char *bound)
{
    if (!f->is_timed)
        return NULL;
    if (bound && strcmp(bound, "launch") == 0)
        return "The call is so short that launches are most of it: do the work in one kernel, with few "
               "arguments.";
    if (bound && strcmp(bound, "compute") == 0)
        return "Feed tl.dot with large tiles, keep accumulators in registers, and fuse what follows into the "
               "same kernel.";
    if (bound)
        return "Read and write each element once: fuse what follows, use wide blocks of neighbouring "
               "elements, avoid copies.";
    return NULL;
}

/* Of one that is right and has no plan: what forward raised while it was traced, or what it did that no plan can say. */
static const char *
hint_of_untraced(json_t *error)
{
    static const struct {
        const char *words, *hint;
    } hints[] = {
        { "the constexpr function",
          "Compute it in Python, and hand the number to the kernel as a tl.constexpr argument." },
        { "Tensor.re", "Leave hooks of gradients out: torch.autograd.grad returns the gradient itself." },
        { "which only the host can make", "In a kernel make a plain tuple, and read it by index." },
        { "field of a named tuple", "Give the field a name of its own." },
        { "which is not data",
          "Hand it to the kernel as an argument, or make it a tl.constexpr of a number or a text." },
        { "is best is not known", "Leave best_config unread: what depends on the configuration belongs into "
                                  "the kernel or its grid." },
        { "not one of Triton's values",
          "Hand tensors and numbers to the kernel as arguments of their own, not as fields of an object." },
        { "in Gluon", "Write the kernel in triton.language." },
        { "the address of a tensor",
          "Make a table of addresses of all of them in one list: torch.tensor([x.data_ptr(), "
          "...])." },
        { "CUDA graphs", "Launch the kernels from forward: calls are timed as a CUDA graph anyway." },
    };
    const char *text = json_string_value(json_object_get(error, "text"));

    if (text_is(error, "type", "call"))
        return class_hints[CLASS_LAUNCH];
    for (size_t i = 0; text && i < ARRAY_LEN(hints); i++)
        if (strstr(text, hints[i].words))
            return hints[i].hint;
    return hint_of_rule("require_plan");
}

static const char *
hint_of(const struct feedback *f, const char *bound)
{
    const char *hint = NULL;

    if (f->class_ == CLASS_OK)
        return f->error ? hint_of_untraced(f->error) : hint_of_speed(f, bound);
    if (f->class_ == CLASS_EXTRACT || f->class_ == CLASS_SYNTAX || f->class_ == CLASS_FORM)
        hint = hint_of_answer(f);
    if (!hint && f->rule && *f->rule && f->class_ != CLASS_HACK)
        hint = hint_of_rule(f->rule);
    if (!hint)
        hint = hint_of_finding(f);
    if (!hint && f->class_ == CLASS_MISMATCH && json_is_object(f->mismatch))
        hint = hint_of_mismatch(f);
    if (!hint && f->class_ == CLASS_NONFINITE)
        hint = hint_of_nonfinite(f);
    return hint ? hint : class_hints[f->class_];
}

/*
 * The limit of its speed: the reference's floor shows memory or compute; a very short call is limited by its launches,
 * if these are timed. NULL: not known, or the floor is below the least time of any kernel.
 */
static const char *
bound_of(const struct feedback *f)
{
    if (f->is_timed && !f->is_device_time && f->candidate_ms < LAUNCH_BOUND_MS)
        return "launch";
    return f->floor_ms < FLOOR_LEAST_MS ? NULL : f->bound;
}

/* --- the text --- */

static const char *
string_of(json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static bool
is_several_lines(const char *text)
{
    const char *newline = text ? strchr(text, '\n') : NULL;
    return newline && newline[1 + strspn(newline + 1, " \t\r\n")];
}

/* The known end of the completion; the code may be correct all the same. */
static void
add_ending(const struct feedback *f, struct buffer *out)
{
    if (f->is_unended)
        buffer_add(out, "\nThe reasoning in the answer never ended.");
    else if (f->is_cut)
        buffer_add(out, "\nThe answer was cut off: its last code block is not closed.");
}

/* What raised while it was traced raises again: that is its failure, and not the want of a plan. */
static int
add_untraced(const struct feedback *f, struct buffer *out)
{
    const struct cause cause = { STAGE_COMPILE, CLASS_LAUNCH, f->untraced, "no reason is known" };
    AUTO_BUFFER struct buffer why = BUFFER_INIT;

    if (f->class_ == CLASS_OK || !json_is_object(f->untraced) || text_is(f->untraced, "type", "call"))
        return 0;
    if (cause_add(&cause, &why) != 0)
        return ERR_NOMEM;
    buffer_add(out, "\nIt was judged without a plan: ");
    int rc = feedback_quote(why.data, why.size, UNTRACED_MAX, "", out);
    buffer_add(out, ".");
    return rc;
}

static int
add_traceback(const struct feedback *f, struct buffer *out)
{
    const char *error = string_of(f->error, "text");

    if (f->class_ == CLASS_OK || !is_several_lines(error))
        return 0;
    buffer_add(out, "\nThe candidate's own output follows, as data:\n| ");
    return feedback_quote(error, strlen(error), FEEDBACK_QUOTE_MAX, "| ", out);
}

/* A figure that is 0 here is of values that cannot be compared, and is left out. */
static void
add_mismatch(const struct feedback *f, struct buffer *out)
{
    double rtol = number_or_nan(f->mismatch, "rtol"), atol = number_or_nan(f->mismatch, "atol");
    double differing = number_or_nan(f->mismatch, "differing"), of = number_or_nan(f->mismatch, "of");
    bool has_abs = f->class_ != CLASS_NONFINITE && isfinite(f->max_abs) && f->max_abs > 0,
         has_rel = has_abs && isfinite(f->max_rel) && f->max_rel > 0;

    if (!json_is_object(f->mismatch))
        return;
    if (of > 0)
        buffer_printf(out, "\n%.3g %% of the values are wrong.", 100 * differing / of);
    if (has_abs)
        buffer_printf(out, " The largest error is %.4g", f->max_abs);
    if (has_rel)
        buffer_printf(out, ", relative %.4g", f->max_rel);
    if (has_abs)
        buffer_add(out, ".");
    if (isfinite(rtol) && isfinite(atol))
        buffer_printf(out, " Allowed: %.3g + %.3g times the expected value.", atol, rtol);
}

static void
add_speed(const struct feedback *f, const char *bound, struct buffer *out)
{
    if (f->class_ == CLASS_OK && isfinite(f->coverage))
        buffer_printf(out, "\n%.0f %% of the work is done in its own kernels.", 100 * f->coverage);
    if (!f->is_timed || !bound)
        return;
    buffer_printf(out, "\nThe call is bound by %s", bound);
    if (isfinite(f->floor_ms) && f->candidate_ms > 0)
        buffer_printf(out, "; the hardware allows about %.4g ms, which is %.0f %% of what it took",
                      f->floor_ms, 100 * f->floor_ms / f->candidate_ms);
    buffer_add(out, ".");
}

/* Registers that went to memory are what an author can do something about. */
static void
add_kernels(const struct feedback *f, struct buffer *out)
{
    json_t *kernel;
    size_t i, n = 0;

    if (!f->is_timed)
        return;
    json_array_foreach(f->kernels, i, kernel)
    {
        const char *name = string_of(kernel, "name");
        double spilled = number_or_nan(kernel, "spill_bytes");
        if (!name || !(spilled > 0) || n++ >= KERNELS_MAX)
            continue;
        bool is_name = cause_is_name(name, strlen(name));
        buffer_printf(
            out,
            "\n%s%s spills %.0f bytes of registers; it uses %.0f registers and %.0f bytes of shared memory.",
            is_name ? "Kernel " : "A kernel", is_name ? name : "", spilled,
            number_or_nan(kernel, "registers"), number_or_nan(kernel, "shared_bytes"));
    }
}

static int
make_text(const struct feedback *f, const char *bound, const char *hint, struct buffer *out)
{
    int rc = feedback_quote(f->headline, strcspn(f->headline, "\n"), HEADLINE_MAX, "", out);

    add_ending(f, out);
    add_mismatch(f, out);
    if (f->class_ != CLASS_OK && !class_info(f->class_)->is_cheat && f->cases > 1)
        buffer_printf(out, "\n%d of %d cases passed.", f->cases_passed, f->cases);
    if (rc == 0)
        rc = add_untraced(f, out);
    if (rc == 0)
        rc = add_traceback(f, out);
    add_speed(f, bound, out);
    add_kernels(f, out);
    if (hint)
        buffer_printf(out, "\nHint: %s", hint);
    if (rc != 0 || out->is_short)
        return ERR_NOMEM;
    if (out->size <= FEEDBACK_TEXT_MAX)
        return 0;
    out->size = utf8_cut(out->data, FEEDBACK_TEXT_MAX);
    out->data[out->size] = '\0';
    return 0;
}

/* --- the object --- */

static json_t *
safe_string(const char *text, size_t limit)
{
    AUTO_BUFFER struct buffer b = BUFFER_INIT;

    if (!text || feedback_quote(text, strlen(text), limit, "", &b) != 0)
        return json_null();
    json_t *out = json_string(b.data ? b.data : "");
    return out ? out : json_null();
}

static json_t *
error_json(const struct feedback *f)
{
    json_t *line = json_object_get(f->error, "line");

    if (!json_is_object(f->error) || f->class_ == CLASS_OK)
        return json_null();
    return json_pack("{s:o, s:O?, s:o}", "type", safe_string(string_of(f->error, "type"), 128), "line",
                     json_is_integer(line) ? line : NULL, "trace",
                     safe_string(string_of(f->error, "text"), FEEDBACK_QUOTE_MAX));
}

static json_t *
mismatch_json(const struct feedback *f)
{
    json_t *out = json_is_object(f->mismatch) ? json_copy(f->mismatch) : NULL;

    if (!out)
        return json_null();
    json_object_set_new(out, "max_abs", real_or_null(f->max_abs));
    json_object_set_new(out, "max_rel", real_or_null(f->max_rel));
    return out;
}

static json_t *
timing_json(const struct feedback *f)
{
    if (!f->is_timed)
        return json_null();
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "reference_ms", real_or_null(f->reference_ms),
                     "candidate_ms", real_or_null(f->candidate_ms), "speedup", real_or_null(f->speedup),
                     "speedup_lo", real_or_null(f->speedup_lo), "speedup_hi", real_or_null(f->speedup_hi),
                     "floor_ms", real_or_null(f->floor_ms));
}

json_t *
feedback_json(const struct feedback *f)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    const char *bound = bound_of(f), *hint = hint_of(f, bound);

    if (make_text(f, bound, hint, &text) != 0)
        return NULL;
    if (text.data)
        utf8_clean(text.data);
    return json_pack("{s:s, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "class", class_name(f->class_),
                     "stage", text_or_null(f->stage), "passed", text_or_null(f->passed), "text",
                     text.data ? text.data : "", "error", error_json(f), "mismatch", mismatch_json(f),
                     "timing", timing_json(f), "coverage", real_or_null(f->coverage), "bound",
                     text_or_null(f->is_timed ? bound : NULL), "hint", text_or_null(hint));
}
