/* main.c - `belay SUBCOMMAND ...`: finds the row, parses its options, runs it. */
#include "cli/cli.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef BELAY_COMMIT /* the makefile knows it */
#define BELAY_COMMIT ""
#endif

static int run_row(const struct cli_command *command, int argc, char **argv)
{
    struct cli c = {.command = command, .color = cli_color_wanted(STDOUT_FILENO)};
    int code = command->usage_exit ? command->usage_exit : CLI_USAGE;
    if (cli_parse(&c, argc, argv))
        code = cli_given(&c, "help") ? cli_print_help(command) : command->run(&c);
    belay_close(c.belay);
    cli_parse_done(&c);
    return code;
}

/* Rows that parse for themselves still answer --help from the row. */
static bool wants_help(int argc, char **argv)
{
    return argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
}

/* A file or a pipe that gets the number of a closed standard descriptor would be mistaken for
 * it. */
static void open_standard_files(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        (void)close(fd);
}

int main(int argc, char **argv)
{
    open_standard_files();
    cli_built_from(BELAY_COMMIT);
    cli_put_command_first(argc, argv);
    if (argc < 2) {
        char *words[] = {(char[]){"help"}, NULL};
        run_row(&cli_cmd_help, 1, words);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    else if (strcmp(name, "--version") == 0)
        name = "version";
    const struct cli_command *command = cli_find(name);
    if (!command)
        return cli_unknown(name);
    if (command->run_raw && wants_help(argc - 1, argv + 1))
        return cli_print_help(command);
    if (command->run_raw)
        return command->run_raw(argc - 1, argv + 1);
    return run_row(command, argc - 1, argv + 1);
}
