/* durable_source.h - the sources that durable_load and durable_store send: about 4 KB each, no two alike. */
#ifndef TESTS_BENCH_DURABLE_SOURCE_H
#define TESTS_BENCH_DURABLE_SOURCE_H

#include "common/buffer.h"

#define SOURCE_LINES 60

/* Fill out with the source of submission number i. newline: "\n", or "\\n" for text inside JSON. */
static inline void
write_source(struct buffer *out, long i, const char *newline)
{
    buffer_clear(out);
    buffer_printf(out, "# candidate %ld%s", i, newline);
    for (int line = 0; line < SOURCE_LINES; line++)
        buffer_printf(out, "    acc_%d = tl.load(x_ptr + %ld + offsets * %d, mask=mask, other=0.0)%s", line,
                      i * 31 + line, line + 1, newline);
}

#endif
