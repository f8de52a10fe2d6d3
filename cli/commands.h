/* commands.h - the table of subcommands: dispatch, help, man pages and
 * completion all come from it. */
#ifndef KVF_CLI_COMMANDS_H
#define KVF_CLI_COMMANDS_H

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_LOST = 3 };

struct command {
    const char *name;
    const char *group;   /* heading in the help; equal groups are adjacent */
    const char *args;    /* "X.kvf [-o FILE]" */
    const char *summary; /* one line; also the man page's NAME line */
    const char *example; /* one line, shown by -h */
    int (*run)(const struct command *self, int argc, char **argv); /* argv[0] = the name */
};

extern const struct command command_table[]; /* ends with .name == NULL */
int commands_main(int argc, char **argv);

#endif
