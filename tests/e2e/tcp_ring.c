/*
 * Copyright (c) 2026, The vTorque authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * tcp_ring RANK END HOST...: a message goes round the hosts over TCP, whose content each of them checks.  The first
 * prints a line for each round, and ends the ring when the file END is there.  Whoever reads what was not written, or
 * whose connection breaks, ends with 1 and says so.
 */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORT = 7100, PAYLOAD = 1024, TRIES = 600 };

struct message {
    unsigned round, hops, last;
    unsigned char payload[PAYLOAD];
};

static void fail(const char *what)
{
    printf("ring broken: %s\n", what);
    fflush(stdout);
    exit(1);
}

static unsigned char byte_of(unsigned round, unsigned hops, int at)
{
    return (unsigned char)(round * 31 + hops * 17 + (unsigned)at * 7);
}

static void fill(struct message *one)
{
    for (int at = 0; at < PAYLOAD; at++)
        one->payload[at] = byte_of(one->round, one->hops, at);
}

static void check(const struct message *one, unsigned round, unsigned hops)
{
    if (one->round != round || one->hops != hops)
        fail("a message of another round");
    for (int at = 0; at < PAYLOAD; at++)
        if (one->payload[at] != byte_of(round, hops, at))
            fail("another content");
}

static void transfer(int fd, struct message *one, int writes)
{
    for (size_t done = 0; done < sizeof *one;) {
        char *at = (char *)one + done;
        ssize_t some = writes ? write(fd, at, sizeof *one - done) : read(fd, at, sizeof *one - done);
        if (some <= 0)
            fail(writes ? "the next one is gone" : "the former one is gone");
        done += (size_t)some;
    }
}

/* A static program finds names by itself: the libraries that would do it are not in every guest. */
static struct in_addr address_of(const char *host)
{
    FILE *hosts = fopen("/etc/hosts", "r");
    struct in_addr found = {0};
    char line[1024];

    while (hosts && fgets(line, sizeof line, hosts)) {
        char *address = strtok(line, " \t\n"), *name = address;
        while (address && address[0] != '#' && (name = strtok(NULL, " \t\n")))
            if (strcmp(name, host) == 0 && inet_aton(address, &found)) {
                fclose(hosts);
                return found;
            }
    }
    fail("a host without an address");
    return found;
}

static int connect_to(const char *host)
{
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr = address_of(host)};

    for (int tries = 0; tries < TRIES; tries++, usleep(100000)) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&there, sizeof there) == 0)
            return fd;
        close(fd);
    }
    fail("nobody listens");
    return -1;
}

int main(int argc, char **argv)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    struct message one = {0};
    int yes = 1;

    if (argc < 4)
        return 2;
    unsigned rank = (unsigned)atoi(argv[1]), size = (unsigned)argc - 3;
    signal(SIGPIPE, SIG_IGN);
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listening, (struct sockaddr *)&here, sizeof here) || listen(listening, 1))
        fail("the port is taken");
    int next = connect_to(argv[3 + (rank + 1) % size]);
    int former = accept(listening, NULL, NULL);
    for (unsigned round = 1; !one.last; round++) {
        if (rank == 0) {
            one.round = round, one.hops = 0, one.last = access(argv[2], F_OK) == 0;
            fill(&one);
            transfer(next, &one, 1);
            transfer(former, &one, 0);
            check(&one, round, size - 1);
            printf("line %u\n", round);
            fflush(stdout);
            usleep(100000);
        } else {
            transfer(former, &one, 0);
            check(&one, round, rank - 1);
            one.hops = rank;
            fill(&one);
            transfer(next, &one, 1);
        }
    }
    return 0;
}
