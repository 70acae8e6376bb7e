/* token_command.h - `verifierd token new|list|revoke`: edits the file of tokens, also while the daemon runs. */
#ifndef SERVER_TOKEN_COMMAND_H
#define SERVER_TOKEN_COMMAND_H

/* argv[0] is "token". Returns the exit status; talks on stdout (the token, the list) and stderr. */
int token_command(int argc, char **argv);

#endif
