/* Looking on: what the daemon is doing and where its time goes, drawn anew every second. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "client/cli/api.h"
#include "client/cli/cli.h"
#include "client/cli/input.h"
#include "client/cli/text.h"
#include "common/auto.h"
#include "common/buffer.h"

struct top {
    struct cli *cli;
    const char *window;
    bool is_once;
    double every_s;
    int bad;
};

enum { OPT_ONCE = 256, OPT_WINDOW, OPT_EVERY };

static const struct argp_option options[] = {
    { "once", OPT_ONCE, NULL, 0, "Print it once and end", 0 },
    { "window", OPT_WINDOW, "TIME", 0, "What to sum over, as 60s, 10m or 2h (default 1m)", 0 },
    { "every", OPT_EVERY, "SECONDS", 0, "Draw it anew so often (default 1)", 0 },
    { 0 },
};

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct top *t = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = t->cli;
        return 0;
    case OPT_ONCE:
        t->is_once = true;
        return 0;
    case OPT_WINDOW:
        t->window = arg;
        return 0;
    case OPT_EVERY:
        t->bad = input_seconds(arg, &t->every_s);
        if (t->bad == CLI_OK && t->every_s < 0.1)
            argp_error(state, "--every is 0.1 s at least");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = { { &cli_common_argp, 0, NULL, -1 }, { 0 } };
static const struct argp argp = { options,  parse, NULL, "Show where work and time go, until q is pressed.",
                                  children, NULL,  NULL };

/* --- the picture --- */

static json_t *
at(json_t *object, const char *first, const char *second)
{
    json_t *value = json_object_get(object, first);
    return second ? json_object_get(value, second) : value;
}

static double
number(json_t *object, const char *first, const char *second)
{
    return json_number_value(at(object, first, second));
}

static const char *
word(json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "-";
}

/* "  12.3", or a dash. */
static void
put_ms(struct buffer *out, json_t *spread, const char *key)
{
    json_t *value = json_object_get(spread, key);

    if (json_is_number(value))
        buffer_printf(out, " %9.*f", json_number_value(value) < 100 ? 1 : 0, json_number_value(value));
    else
        buffer_printf(out, " %9s", "-");
}

static void
put_head(struct buffer *out, json_t *status, json_t *stats)
{
    json_t *q = json_object_get(status, "queues");
    json_t *why = json_object_get(status, "why");

    buffer_printf(out, "verifierd %s  %s%s%s  up %.0f s\n", word(status, "version"), word(status, "state"),
                  json_is_string(why) ? ": " : "", json_is_string(why) ? json_string_value(why) : "",
                  number(status, "uptime_s", NULL));
    buffer_printf(
        out, "waiting   %.0f of %.0f:  queued %.0f interactive, %.0f batch; ready %.0f, %.0f; joined %.0f\n",
        number(q, "waiting", NULL), number(q, "limit", NULL), number(q, "queued", "interactive"),
        number(q, "queued", "batch"), number(q, "ready", "interactive"), number(q, "ready", "batch"),
        number(q, "joined", NULL));
    buffer_printf(out, "running   %.0f of %.0f CPU slots, %.0f on %.0f devices\n",
                  number(q, "cpu_running", NULL), number(q, "cpu_slots", NULL),
                  number(q, "gpu_running", NULL), number(stats, "devices", NULL));
    buffer_printf(out, "verdicts  %.0f in %.0f s (%.2f a second), %.0f of them shared\n",
                  number(stats, "finished", NULL), number(stats, "covered_s", NULL),
                  number(stats, "finished_per_s", NULL), number(stats, "shared", NULL));
    buffer_printf(
        out,
        "devices   busy %.0f%%; %.1f s used, %.1f s saved by early rejection, %.1f s by shared verdicts\n",
        100 * number(stats, "device_busy", NULL), number(stats, "device_s", "used"),
        number(stats, "device_s", "saved_by_rejection"), number(stats, "device_s", "saved_by_cache"));
}

static void
put_stages(struct buffer *out, json_t *stats)
{
    json_t *stage;
    size_t i;

    buffer_printf(out, "\n%-8s %7s %7s %7s %7s %9s %9s %9s %9s %9s\n", "stage", "pass", "fail", "skip",
                  "spared", "wait ms", "most", "takes ms", "most", "device s");
    json_array_foreach(json_object_get(stats, "stages"), i, stage)
    {
        buffer_printf(out, "%-8s %7.0f %7.0f %7.0f %7.0f", word(stage, "stage"), number(stage, "pass", NULL),
                      number(stage, "fail", NULL), number(stage, "skip", NULL),
                      number(stage, "spared", NULL));
        put_ms(out, json_object_get(stage, "wait_ms"), "mean");
        put_ms(out, json_object_get(stage, "wait_ms"), "max");
        put_ms(out, json_object_get(stage, "service_ms"), "mean");
        put_ms(out, json_object_get(stage, "service_ms"), "max");
        buffer_printf(out, " %9.1f\n", number(stage, "device_s", NULL));
    }
}

static void
put_workers(struct buffer *out, json_t *status)
{
    json_t *row;
    size_t i;

    buffer_printf(out, "\n%-24s %-10s %-12s %7s %7s %7s %9s\n", "worker", "state", "device", "starts",
                  "ready", "of", "waited s");
    json_array_foreach(json_object_get(status, "workers"), i, row)
    {
        const char *lane = json_string_value(json_object_get(row, "lane"));
        buffer_printf(out, "%-24s %-10s %-12s %7.0f", word(row, "name"), lane ? lane : word(row, "state"),
                      word(row, "device"), number(row, "starts", NULL));
        if (json_object_get(row, "pool"))
            buffer_printf(out, " %7.0f %7.0f %9.1f", number(row, "pool", "ready"),
                          number(row, "pool", "most"), number(row, "pool", "waited_s"));
        buffer_printf(out, "\n");
    }
    json_array_foreach(json_object_get(status, "gpus"), i, row)
        buffer_printf(out, "%s%-8s %-40s %s\n", i == 0 ? "\n" : "", word(row, "device"), word(row, "name"),
                      word(row, "state"));
}

static int
ask(struct top *t, json_t **status, json_t **stats)
{
    AUTO_BUFFER struct buffer path = BUFFER_INIT;

    api_path_add(&path, "/v1/stats?window=", t->window);
    int code = api_call(t->cli, "GET", "/v1/status", NULL, status);
    return code == CLI_OK ? api_call(t->cli, "GET", path.data, NULL, stats) : code;
}

static int
draw(struct top *t, struct buffer *out)
{
    AUTO_JSON json_t *status = NULL, *stats = NULL;
    int code = ask(t, &status, &stats);

    if (code != CLI_OK)
        return code;
    if (t->cli->is_json) {
        AUTO_JSON json_t *both = json_pack("{s:O, s:O}", "status", status, "stats", stats);
        text_json(both);
        return CLI_OK;
    }
    put_head(out, status, stats);
    put_stages(out, stats);
    put_workers(out, status);
    return out->data ? CLI_OK : cli_complain(CLI_CONFIG, "out of memory");
}

/* --- the terminal --- */

static struct termios cooked;
static bool is_raw;
static volatile sig_atomic_t is_ending;

static void
end_handler(int number)
{
    (void)number;
    is_ending = 1;
}

static void
restore_terminal(void)
{
    static const char leave[] = "\x1b[?25h\x1b[?1049l"; /* the cursor, and the screen as it was */

    if (!is_raw)
        return;
    is_raw = false;
    tcsetattr(STDIN_FILENO, TCSANOW, &cooked);
    if (write(STDOUT_FILENO, leave, sizeof(leave) - 1) < 0)
        return; /* the terminal has gone */
}

static void
take_terminal(void)
{
    struct termios raw;

    if (tcgetattr(STDIN_FILENO, &cooked) != 0)
        return;
    raw = cooked;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    is_raw = true;
    const struct sigaction end = { .sa_handler = end_handler };
    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGHUP, &end, NULL);
    atexit(restore_terminal);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    fputs("\x1b[?1049h\x1b[?25l", stdout);
}

/* As many lines as there is room for, each as wide as there is room for: what does not fit is left out. */
static void
show(const char *text)
{
    struct winsize size = { .ws_row = 24, .ws_col = 80 };

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
        size = (struct winsize){ .ws_row = 24, .ws_col = 80 };
    fputs("\x1b[H", stdout);
    for (int row = 1; *text && row < size.ws_row; row++) {
        size_t width = strcspn(text, "\n");
        for (size_t i = 0; i < width && i < size.ws_col; i++)
            putchar(text[i] >= ' ' && text[i] < 0x7f ? text[i] : '?');
        fputs("\x1b[K\n", stdout);
        text += width + (text[width] == '\n');
    }
    fputs("\x1b[J q quits", stdout);
    fflush(stdout);
}

/* True: it is to end. */
static bool
wait_for_key(double seconds)
{
    struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
    char key = 0;

    if (poll(&in, 1, (int)(seconds * 1000)) <= 0)
        return is_ending;
    ssize_t n = read(STDIN_FILENO, &key, 1);
    return n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN) || key == 'q' || key == 'Q' || key == 3;
}

int
top_command(struct cli *cli, int argc, char **argv)
{
    struct top t = { .cli = cli, .window = "1m", .every_s = 1 };
    int code;

    argp_parse(&argp, argc, argv, 0, NULL, &t);
    if (t.bad != CLI_OK)
        return t.bad;
    if (cli->is_json || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        t.is_once = true;
    do {
        AUTO_BUFFER struct buffer text = BUFFER_INIT;
        code = draw(&t, &text);
        if (code != CLI_OK || cli->is_json)
            break;
        if (t.is_once) {
            text_print(stdout, text.data);
            break;
        }
        if (!is_raw)
            take_terminal();
        show(text.data ? text.data : "");
    } while (!wait_for_key(t.every_s));
    restore_terminal();
    return code;
}
