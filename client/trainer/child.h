/* child.h - a program that is started and ends with us. */
#ifndef TRAINER_CHILD_H
#define TRAINER_CHILD_H

#include <sys/types.h>

/* Start argv (borrowed); it gets SIGTERM when this process ends. -1: the process could not be made. */
pid_t child_spawn(const char *program, char *const *argv);
/* Wait for its end; a signal to stop is passed on. Its exit status, or 128 + its signal. */
int child_wait(pid_t pid);

#endif
