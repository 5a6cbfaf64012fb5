/* Copyright (c) 2026, The vTorque authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * How fast a guest's disks and network cards are, each kind of work in turn on every one of them, so that whatever else
 * the machine does meets all alike.
 *
 * probe serve                      on the node: answer on port 7700
 * probe disk ROUNDS NAME=DEVICE... in the guest, as root: writes over the devices
 * probe net ROUNDS NAME=ADDRESS... in the guest: each address is the node's, by another card
 * probe guest NAME MIB PLACE       in the guest: all its processors at once compute, and copy memory of so many MiB each;
 *                                  then the disk of the directory PLACE, or PLACE itself, which is written over
 *
 * A line for each measurement: what, name, seconds of one piece of work.  That is the median of all pieces, which a
 * processor that is taken away for a while changes little; only flows are timed as a whole.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 7700, BLOCK = 4096, PIECE = 1 << 20, SPAN = 32 << 20, SYNCS = 100, READS = 300, TURNS = 300, FLOWS = 4, FLOW = 6 << 20, WORKS = 15, STEPS = 4000000 };

static char *space;

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static int silent, taken;
static double pieces[1024];

static void say(const char *what, const char *name, double seconds)
{
    if (silent)
        return;
    printf("%s %s %.7f\n", what, name, seconds);
    fflush(stdout);
}

static int compare(const void *one, const void *other)
{
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

static void say_median(const char *what, const char *name)
{
    qsort(pieces, taken, sizeof *pieces, compare);
    say(what, name, pieces[taken / 2]);
    taken = 0;
}

static void done(double begin)
{
    pieces[taken++] = now() - begin;
}

static void put(int fd, size_t size, off_t at)
{
    if (pwrite(fd, space, size, at) != (ssize_t)size)
        err(1, "write");
}

static void measure_disk(const char *name, int fd)
{
    for (off_t at = 0; at < SPAN; at += PIECE) {
        double begin = now();
        put(fd, PIECE, at);
        done(begin);
    }
    say_median("write", name);
    for (int count = 0; count < SYNCS; count++) {
        double begin = now();
        put(fd, BLOCK, (off_t)(count * 37 % (SPAN / BLOCK)) * BLOCK);
        if (fdatasync(fd))
            err(1, "fdatasync");
        done(begin);
    }
    say_median("sync", name);
    for (int count = 0; count < READS; count++) {
        double begin = now();
        if (pread(fd, space, BLOCK, (off_t)(count * 7919 % (SPAN / BLOCK)) * BLOCK) != BLOCK)
            err(1, "read");
        done(begin);
    }
    say_median("read", name);
    close(fd);
}

static void disk(const char *name, const char *path)
{
    int fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (fd < 0)
        err(1, "%s", path);
    measure_disk(name, fd);
}

/* a file without a name, which goes with its last descriptor */
static void disk_of(const char *name, const char *directory)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/vtorque-probe-XXXXXX", directory);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0 || unlink(path))
        err(1, "%s", path);
    if (fcntl(fd, F_SETFL, O_DIRECT))
        err(1, "%s: no disk that can be measured, since its files cannot be opened with O_DIRECT", directory);
    measure_disk(name, fd);
}

static pthread_barrier_t gate;
static size_t size;
static volatile double result;

static void compute(void)
{
    double x = 0.5;
    for (int step = 0; step < STEPS; step++)
        x = 3.9 * x * (1 - x);
    result = x; /* or the compiler leaves the loop out */
}

static void *work(void *unused)
{
    char *from = malloc(size), *to = malloc(size);
    if (!from || !to)
        errx(1, "no memory");
    memset(from, 'v', size);
    memset(to, 'v', size);
    for (int count = 0; count < 2 * WORKS; count++) {
        pthread_barrier_wait(&gate);
        if (count < WORKS)
            compute();
        else
            memcpy(to, from, size);
        pthread_barrier_wait(&gate);
    }
    free(from);
    free(to);
    return unused;
}

/* a piece lasts until the last processor is through */
static void processors(const char *name)
{
    long many = sysconf(_SC_NPROCESSORS_ONLN);
    pthread_t thread;
    pthread_barrier_init(&gate, NULL, many + 1);
    for (long number = 0; number < many; number++)
        if (pthread_create(&thread, NULL, work, NULL))
            errx(1, "no thread");
    for (int count = 0; count < 2 * WORKS; count++) {
        pthread_barrier_wait(&gate);
        double begin = now();
        pthread_barrier_wait(&gate);
        done(begin);
        if (count == WORKS - 1)
            say_median("compute", name);
    }
    say_median("copy", name);
}

static void guest(const char *name, const char *mib, const char *place)
{
    struct stat facts;
    size = strtoul(mib, NULL, 10) << 20;
    if (size == 0 || stat(place, &facts))
        err(2, "%s MiB, %s", mib, place);
    processors(name);
    (S_ISDIR(facts.st_mode) ? disk_of : disk)(name, place);
}

static int reach(const char *address, char kind)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (inet_pton(AF_INET, address, &to.sin_addr) != 1 || connect(fd, (void *)&to, sizeof to))
        err(1, "%s", address);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (write(fd, &kind, 1) != 1)
        err(1, "%s", address);
    return fd;
}

static void empty(int fd)
{
    ssize_t got;
    while ((got = read(fd, space, PIECE)) > 0)
        ;
    if (got < 0)
        err(1, "read");
}

static void fill(int fd)
{
    for (size_t left = FLOW; left > 0;) {
        ssize_t put = write(fd, space, left < PIECE ? left : PIECE);
        if (put <= 0)
            err(1, "write");
        left -= put;
    }
}

static void flows(const char *address, char kind, int count)
{
    for (int flow = 0; flow < count; flow++)
        if (fork() == 0) {
            int fd = reach(address, kind);
            if (kind == 'f')
                fill(fd);
            shutdown(fd, SHUT_WR);
            empty(fd);
            exit(0);
        }
    int status;
    while (wait(&status) > 0)
        if (status)
            exit(1);
}

static void net(const char *name, const char *address)
{
    int fd = reach(address, 'p');
    for (int count = 0; count < TURNS; count++) {
        double begin = now();
        if (write(fd, space, 64) != 64 || recv(fd, space, 64, MSG_WAITALL) != 64)
            err(1, "ping-pong");
        done(begin);
    }
    say_median("pingpong", name);
    close(fd);
    double begin = now();
    flows(address, 'f', 1);
    say("send", name, now() - begin);
    begin = now();
    flows(address, 'r', 1);
    say("receive", name, now() - begin);
    begin = now();
    flows(address, 'r', FLOWS);
    say("receive_flows", name, now() - begin);
}

static void answer(int fd)
{
    char kind;
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (read(fd, &kind, 1) != 1)
        return;
    ssize_t got;
    if (kind == 'p')
        while ((got = recv(fd, space, 64, MSG_WAITALL)) == 64 && write(fd, space, 64) == 64)
            ;
    if (kind == 'r')
        fill(fd);
    if (kind == 'f')
        empty(fd);
}

static void serve(void)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int one = 1, door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(door, (void *)&here, sizeof here) || listen(door, 64))
        err(1, "port %d", PORT);
    signal(SIGCHLD, SIG_IGN);
    for (int fd; (fd = accept(door, NULL, NULL)) >= 0; close(fd))
        if (fork() == 0) {
            answer(fd);
            exit(0);
        }
}

int main(int count, char **words)
{
    if (posix_memalign((void **)&space, BLOCK, PIECE))
        errx(1, "no memory");
    memset(space, 'v', PIECE);
    if (count == 2 && strcmp(words[1], "serve") == 0) {
        serve();
        return 1;
    }
    if (count == 5 && strcmp(words[1], "guest") == 0) {
        guest(words[2], words[3], words[4]);
        return 0;
    }
    if (count < 4)
        errx(2, "serve, or disk|net ROUNDS NAME=PLACE..., or guest NAME MIB PLACE");
    int many = count - 3, rounds = atoi(words[2]);
    /* the first round finds new files and cold memory, and says nothing; each of the others begins with another one */
    for (int round = 0; round <= rounds; round++) {
        silent = round == 0;
        for (int turn = 0; turn < many; turn++) {
            char *name = strdup(words[3 + (round + turn) % many]), *place = strchr(name, '=');
            if (!place)
                errx(2, "%s: no =", name);
            *place++ = '\0';
            (strcmp(words[1], "disk") ? net : disk)(name, place);
            free(name);
        }
    }
    return 0;
}
