/*
 * Copyright (c) 2026, The vTorque authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A user's program for tests of guests of OSv: each argument is done in its turn.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void show(const char *path)
{
    char line[256];
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        fputs(line, stdout);
    if (file)
        fclose(file);
}

int main(int argc, char **argv)
{
    char name[256];
    for (int i = 1; i < argc; i++) {
        char *word = argv[i], *value = strchr(word, '=');
        if (!value)
            return fprintf(stderr, "what is %s?\n", word), 64;
        *value++ = 0;
        if (strcmp(word, "say") == 0)
            printf("%s\n", value);
        else if (strcmp(word, "variable") == 0)
            printf("%s\n", getenv(value) ? getenv(value) : "(none)");
        else if (strcmp(word, "file") == 0)
            show(getenv(value) ? getenv(value) : value);
        else if (strcmp(word, "host") == 0)
            printf("%s\n", gethostname(name, sizeof name) == 0 ? name : "(none)");
        else if (strcmp(word, "lines") == 0)
            for (int n = 1; n <= atoi(value); n++)
                printf("%d\n", n);
        else if (strcmp(word, "wait") == 0)
            fflush(stdout), sleep(atoi(value));
        else if (strcmp(word, "return") == 0)
            return atoi(value);
        else if (strcmp(word, "exit") == 0)
            exit(atoi(value));
        else
            return fprintf(stderr, "what is %s?\n", word), 64;
    }
    return 0;
}
