/* fuzz.h - the entry of a fuzz target: libFuzzer calls it, or replay.c with the committed inputs. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* assert() that no build flag turns off: a broken promise is a finding. */
#define FUZZ_CHECK(condition) \
    do {                      \
        if (!(condition))     \
            __builtin_trap(); \
    } while (0)

#endif
