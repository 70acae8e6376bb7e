/* profile.h - servers by name: ~/.config/verifier.conf. */
#ifndef CLI_PROFILE_H
#define CLI_PROFILE_H

#include "client/cli/cli.h"

/*
 * Talk to the server of this name from now on: its address, token and certificates take the place of cli's, but a token
 * that --token gave stays. The file is $XDG_CONFIG_HOME/verifier.conf. CLI_OK, or CLI_CONFIG, which has been explained.
 */
int profile_use(struct cli *cli, const char *name);

#endif
