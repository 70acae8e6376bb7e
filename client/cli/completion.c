/*
 * completion.c - what the shells complete, written from the table of commands and from each command's argp, so that it
 * knows every option there is.
 */
#include <stdio.h>
#include <string.h>

#include "client/cli/cli.h"
#include "common/auto.h"

/* --- going over the table --- */

typedef void option_cb(const struct command *command, const struct argp_option *option, const void *arg);

/* The options that argp adds. */
static const struct argp_option added[] = {
    { "help", 'h', NULL, 0, "Say what the command does", 0 },
    { "usage", 0, NULL, 0, "Give a short usage message", 0 },
    { "version", 'V', NULL, 0, "Print the version", 0 },
    { 0 },
};

static void
each_of(const struct argp_option *options, const struct command *command, option_cb *cb, const void *arg)
{
    for (; options && (options->name || options->key || options->doc); options++)
        if (options->name && !(options->flags & OPTION_HIDDEN))
            cb(command, options, arg);
}

/* An argp's own options, then those of its children. */
static void
each_of_argp(const struct argp *argp, const struct command *command, option_cb *cb, const void *arg)
{
    each_of(argp->options, command, cb, arg);
    for (const struct argp_child *child = argp->children; child && child->argp; child++)
        each_of_argp(child->argp, command, cb, arg);
}

/* command NULL: the options of the program itself. */
static void
each_option(const struct command *command, option_cb *cb, const void *arg)
{
    each_of_argp(command ? command->argp : &cli_common_argp, command, cb, arg);
    each_of(added, command, cb, arg);
}

/* An option whose argument is the next word. */
static bool
takes_word(const struct argp_option *o)
{
    return o->arg && !(o->flags & OPTION_ARG_OPTIONAL);
}

static bool
has_short(const struct argp_option *o)
{
    return o->key > ' ' && o->key <= '~';
}

/* The second word of a command of this family; NULL: it is of another, or has none. */
static const char *
second_word(const struct command *command, const char *family)
{
    size_t size = strlen(family);
    bool is_of_it = strncmp(command->name, family, size) == 0 && command->name[size] == ' ';
    return is_of_it ? command->name + size + 1 : NULL;
}

/* The first word of the i-th command, "" where the one before has the same. In a buffer of the caller's. */
static const char *
first_word(size_t i, char word[32])
{
    size_t size = strcspn(commands[i].name, " ");
    bool is_known = i > 0 && strncmp(commands[i - 1].name, commands[i].name, size) == 0 &&
                    commands[i - 1].name[size] == ' ';
    snprintf(word, 32, "%.*s", is_known ? 0 : (int)size, commands[i].name);
    return word;
}

static bool
is_family(const char *word)
{
    for (size_t i = 0; i < commands_count; i++)
        if (second_word(&commands[i], word))
            return true;
    return false;
}

/* Text inside single quotes: of a shell, where a colon may be special, too. */
static void
print_quoted(const char *text, const char *before_colon)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", stdout);
        else if (*text == ':' && *before_colon)
            printf("%s:", before_colon);
        else
            putchar(*text);
    }
}

static void
print_summary(const struct command *command, const char *before_colon)
{
    AUTO_FREE char *summary = command_summary(command->argp);
    print_quoted(summary ? summary : "", before_colon);
}

/* --- bash and zsh: which command is on the line --- */

/* The options with an argument in the next word, as patterns of case, each after arg: that word is not a command. */
static void
print_skipped(const struct command *command, const struct argp_option *o, const void *arg)
{
    (void)command;
    if (takes_word(o))
        printf("%s--%s", (const char *)arg, o->name);
    if (takes_word(o) && has_short(o))
        printf("%s-%c", (const char *)arg, o->key);
}

static const char find_command[] =
    "    for word in \"${before[@]}\"; do\n"
    "        if [ -n \"$skip\" ]; then skip=; continue; fi\n"
    "        case \"$word\" in\n"
    "        %s) skip=1 ;;\n"
    "        -*) ;;\n"
    "        *) case \"$command\" in %s) command=\"${command:+$command }$word\" ;; esac ;;\n"
    "        esac\n"
    "    done\n";

static void
print_find_command(void)
{
    const char *at = find_command, *hole = strstr(at, "%s");

    fwrite(at, 1, (size_t)(hole - at), stdout);
    fputs("''", stdout);
    each_of(cli_common_argp.options, NULL, print_skipped, "|");
    at = hole + 2;
    hole = strstr(at, "%s");
    fwrite(at, 1, (size_t)(hole - at), stdout);
    fputs("''", stdout);
    for (size_t i = 0; i < commands_count; i++) {
        char word[32];
        if (is_family(first_word(i, word)))
            printf("|%s", word);
    }
    fputs(hole + 2, stdout);
}

/* --- bash --- */

static void
print_bash_option(const struct command *command, const struct argp_option *o, const void *arg)
{
    (void)command, (void)arg;
    printf(" --%s%s", o->name, o->arg && !takes_word(o) ? "=" : "");
}

static void
print_bash(void)
{
    char word[32];

    fputs("# bash completion of verifier(1)\n_verifier() {\n"
          "    local current=\"${COMP_WORDS[COMP_CWORD]}\" command= skip= word words=\n"
          "    local before=(\"${COMP_WORDS[@]:1:COMP_CWORD-1}\")\n",
          stdout);
    print_find_command();
    fputs("    case \"$command\" in\n    '') words='", stdout);
    for (size_t i = 0; i < commands_count; i++)
        printf("%s ", first_word(i, word));
    each_option(NULL, print_bash_option, NULL);
    fputs("' ;;\n", stdout);
    for (size_t i = 0; i < commands_count; i++) {
        if (!is_family(first_word(i, word)))
            continue;
        printf("    '%s') words='", word);
        for (size_t k = i; k < commands_count; k++)
            printf("%s ", second_word(&commands[k], word) ? second_word(&commands[k], word) : "");
        fputs("' ;;\n", stdout);
    }
    for (size_t i = 0; i < commands_count; i++) {
        printf("    '%s') words='", commands[i].name);
        each_option(&commands[i], print_bash_option, NULL);
        fputs("' ;;\n", stdout);
    }
    fputs("    esac\n"
          "    case \"$command,$current\" in *,-*|,*|task,*) ;; *) return ;; esac\n"
          "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
          "    case \"${COMPREPLY[0]}\" in *=) compopt -o nospace 2>/dev/null ;; esac\n"
          "}\ncomplete -o default -F _verifier verifier\n",
          stdout);
}

/* --- zsh --- */

static void
print_zsh_option(const struct command *command, const struct argp_option *o, const void *arg)
{
    (void)command, (void)arg;
    printf(" '--%s:", o->name);
    print_quoted(o->doc, "\\");
    putchar('\'');
}

static void
print_zsh_commands(const char *family)
{
    for (size_t i = 0; i < commands_count; i++) {
        char word[32];
        const char *shown = family ? second_word(&commands[i], family) : first_word(i, word);
        if (!shown || !*shown)
            continue;
        printf(" '%s:", shown);
        print_summary(&commands[i], "\\");
        putchar('\'');
    }
}

static void
print_zsh(void)
{
    char word[32];

    fputs("#compdef verifier\n_verifier() {\n"
          "    local current=\"${words[CURRENT]}\" command= skip= word\n"
          "    local -a before options names\n"
          "    before=(\"${(@)words[2,CURRENT-1]}\")\n",
          stdout);
    print_find_command();
    fputs("    case \"$command\" in\n    '')\n        names=(", stdout);
    print_zsh_commands(NULL);
    fputs(" )\n        options=(", stdout);
    each_option(NULL, print_zsh_option, NULL);
    fputs(" ) ;;\n", stdout);
    for (size_t i = 0; i < commands_count; i++) {
        if (!is_family(first_word(i, word)))
            continue;
        printf("    '%s')\n        names=(", word);
        print_zsh_commands(word);
        fputs(" ) ;;\n", stdout);
    }
    for (size_t i = 0; i < commands_count; i++) {
        printf("    '%s')\n        options=(", commands[i].name);
        each_option(&commands[i], print_zsh_option, NULL);
        fputs(" ) ;;\n", stdout);
    }
    fputs("    esac\n"
          "    if [[ \"$current\" == -* ]]; then _describe -o option options\n"
          "    elif (( ${#names} )); then _describe command names\n"
          "    else _files\n"
          "    fi\n"
          "}\nif [ \"$funcstack[1]\" = _verifier ]; then _verifier \"$@\"; else compdef _verifier verifier; "
          "fi\n",
          stdout);
}

/* --- fish --- */

static void
print_fish_option(const struct command *command, const struct argp_option *o, const void *arg)
{
    (void)arg;
    printf("complete -c verifier -n '__verifier_is%s%s' -l %s", command ? " " : "",
           command ? command->name : "", o->name);
    if (has_short(o))
        printf(" -s %c", o->key);
    fputs(takes_word(o) ? " -r -d '" : " -d '", stdout);
    print_quoted(o->doc, "");
    fputs("'\n", stdout);
}

static void
print_fish(void)
{
    char word[32];

    fputs("# fish completion of verifier(1)\n"
          "function __verifier_is\n"
          "    set -l skip\n"
          "    set -l found\n"
          "    for word in (commandline -opc)[2..-1]\n"
          "        if test -n \"$skip\"\n"
          "            set skip\n"
          "            continue\n"
          "        end\n"
          "        switch $word\n"
          "            case ''",
          stdout);
    each_of(cli_common_argp.options, NULL, print_skipped, " ");
    fputs("\n"
          "                set skip 1\n"
          "            case '-*'\n"
          "            case '*'\n"
          "                contains -- \"$found\" ''",
          stdout);
    for (size_t i = 0; i < commands_count; i++)
        if (is_family(first_word(i, word)))
            printf(" %s", word);
    fputs("; and set found $found $word\n"
          "        end\n"
          "    end\n"
          "    test \"$found\" = \"$argv\"\n"
          "end\n",
          stdout);
    each_option(NULL, print_fish_option, NULL);
    for (size_t i = 0; i < commands_count; i++) {
        const char *second = strchr(commands[i].name, ' ');
        if (*first_word(i, word)) {
            printf("complete -c verifier -f -n __verifier_is -a %s -d '", word);
            print_summary(&commands[i], "");
            fputs("'\n", stdout);
        }
        if (second) {
            printf("complete -c verifier -f -n '__verifier_is %.*s' -a %s -d '",
                   (int)(second - commands[i].name), commands[i].name, second + 1);
            print_summary(&commands[i], "");
            fputs("'\n", stdout);
        }
        each_option(&commands[i], print_fish_option, NULL);
    }
}

/* --- */

static const struct {
    const char *name;
    void (*print)(void);
} shells[] = { { "bash", print_bash }, { "zsh", print_zsh }, { "fish", print_fish } };

const struct argp completion_argp = CLI_ARGP(
    NULL, "SHELL", "Print what makes a shell complete commands and options.\vSHELL: bash, zsh or fish.");

int
completion_command(struct cli *cli, int argc, char **argv)
{
    const char *shell = "";

    CLI_TAKE(cli, &completion_argp, argc, argv, TAKE_ARGUMENT(&shell, "which SHELL: bash, zsh or fish?"));
    for (size_t i = 0; i < ARRAY_LEN(shells); i++) {
        if (strcmp(shell, shells[i].name) == 0) {
            shells[i].print();
            return CLI_OK;
        }
    }
    return cli_complain(CLI_USAGE, "SHELL is one of bash, zsh, fish, not \"%s\"", shell);
}
