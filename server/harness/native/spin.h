/* spin.h - what a loop that waits does between two looks. */
#ifndef HARNESS_SPIN_H
#define HARNESS_SPIN_H

static inline void
spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

#endif
