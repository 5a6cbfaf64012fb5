/*
 * Copyright (c) 2026, The vTorque authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * What an image of OSv must have for vTorque, as /usr/lib/vtorque-launcher.so: OSv's REST API tells neither where a
 * guest is nor how a program ended, so this says both on the console.
 *
 *   announce TOKEN NODE            say to the node's discovery that this guest is up, and on the console where it is
 *   run TOKEN PROGRAM [WORD...]    run a program in this process, and say when it begins and with what it returned
 *
 * Make it as all programs of OSv are made, for the image's architecture:
 *
 *   cc -O2 -Wall -fPIC -shared -o vtorque-launcher.so launcher.c -ldl
 *
 * The program is a shared object, or position independent with its `main` exported (-pie -rdynamic).  It returns from
 * main: exit() of OSv ends the guest, and with it nobody would be left to say the status.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DISCARD = 9, LINE = 512 };

extern char **environ;

/* One write: what other threads print meanwhile comes before or after a line, and not into it. */
static void say(const char *form, ...)
{
    char line[LINE];
    va_list words;
    va_start(words, form);
    int length = vsnprintf(line, sizeof line, form, words);
    va_end(words);
    if (length >= (int)sizeof line) {
        length = sizeof line - 1;
        line[length - 1] = '\n';
    }
    for (int done = 0; done < length;) {
        ssize_t count = write(STDOUT_FILENO, line + done, length - done);
        if (count < 0 && errno != EINTR)
            return;
        done += count > 0 ? count : 0;
    }
}

static int announce(const char *token, const char *node)
{
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(DISCARD)}, here;
    socklen_t length = sizeof here;
    char address[INET_ADDRSTRLEN];
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    if (inet_pton(AF_INET, node, &there.sin_addr) != 1 || fd < 0 ||
        connect(fd, (struct sockaddr *)&there, sizeof there) != 0 ||
        getsockname(fd, (struct sockaddr *)&here, &length) != 0) {
        say("vtorque-failed %s network: no way to %s: %s\n", token, node, strerror(errno));
        return 1;
    }
    send(fd, "vtorque", 7, 0);
    close(fd);
    say("vtorque-ready %s %s\n", token, inet_ntop(AF_INET, &here.sin_addr, address, sizeof address));
    return 0;
}

static int run(const char *token, int count, char **words)
{
    int (*program)(int, char **, char **) = NULL;
    void *object = dlopen(words[0], RTLD_NOW | RTLD_GLOBAL);

    say("vtorque-%s-begin\n", token);
    if (object != NULL)
        *(void **)&program = dlsym(object, "main");
    if (program == NULL) {
        say("vtorque-%s-end broken %s: %s\n", token, words[0], object ? "it exports no main" : dlerror());
        return 1;
    }
    int status = program(count, words, environ);
    fflush(NULL);
    say("vtorque-%s-end exit %d\n", token, status & 0xff);
    return status;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "announce") == 0)
        return announce(argv[2], argv[3]);
    if (argc >= 4 && strcmp(argv[1], "run") == 0)
        return run(argv[2], argc - 3, argv + 3);
    say("vtorque: this program is started by vTorque\n");
    return 64;
}
