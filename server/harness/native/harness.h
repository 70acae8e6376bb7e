/*
 * harness.h - shared by every part of libharness.so: error messages, and the clock.
 *
 * The library is loaded by the Python of the harness through ctypes (server/harness/shared/native.py). It links nothing but
 * libc; the CUDA driver and NVML are opened at run time. Functions that can fail return 0 (or a count or descriptor)
 * or a negative errno; harness_error() then has the message.
 */
#ifndef HARNESS_H
#define HARNESS_H

#include <stdint.h>

#define HARNESS_API __attribute__((visibility("default")))

/* Why the last call of this thread failed; view, valid until the thread's next failing call; "" when none did. */
HARNESS_API const char *harness_error(void);

/* Nanoseconds of CLOCK_MONOTONIC. Any thread. */
HARNESS_API int64_t harness_now_ns(void);

/* Keep the text for harness_error() and return -code (code is a positive errno). */
int harness_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same with errno: ": its text" is appended, -errno returned. */
int harness_fail_errno(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
