/*
 * embed.h - files of the source tree as texts inside the program, so that there is no second copy to keep up to date.
 */
#ifndef EMBED_H
#define EMBED_H

/* const char name[]: the file's text, as the compiler finds it from the top of the tree. The Makefile names it, too. */
#define EMBED_TEXT(name, path)                                         \
    __asm__(".pushsection .rodata\n" #name ":\n.incbin \"" path "\"\n" \
            ".byte 0\n.popsection\n");                                 \
    extern const char name[]

#endif
