/* Copyright (c) 2026, The vTorque authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Round trips between two guests of a job on one host: over the memory that they share, if there is some, and over TCP.
 *
 *   gcc -O2 -o pingpong pingpong.c
 *   pingpong pong           in one guest: answers, and ends when the other has measured
 *   pingpong ping GUEST     in the other: measures
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PORT "5471"
#define MOST 20000     /* rounds of each way, */
#define MEASURE_S 3.0  /* or what can be done in this time */
#define PATIENCE_S 120 /* for the other guest to begin */
#define END UINT32_MAX

/* The start of the region: a line of the cache for each direction.  The region is all zeros when the job starts. */
struct box {
    uint32_t ping __attribute__((aligned(64)));
    uint32_t pong __attribute__((aligned(64)));
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void await(const uint32_t *from, uint32_t wanted)
{
    double until = now() + PATIENCE_S;
    for (long spins = 1; __atomic_load_n(from, __ATOMIC_ACQUIRE) != wanted; spins++)
        if (spins % 1000000 == 0 && now() > until) {
            fprintf(stderr, "the other guest does not answer\n");
            exit(1);
        }
}

/* NULL: the job has none */
static struct box *map_region(void)
{
    const char *path = getenv("VTORQUE_SHM");
    struct stat facts;
    int fd = open(path ? path : "/dev/vtorque-shm", O_RDWR);
    if (fd < 0 && errno == ENOENT)
        return NULL;
    if (fd < 0 || fstat(fd, &facts) < 0)
        fail("/dev/vtorque-shm");
    void *memory = mmap(NULL, facts.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        fail("mmap");
    return memory;
}

static void say(const char *way, double seconds, uint32_t rounds)
{
    printf("%s: %.2f us for a round trip, %u of them\n", way, seconds / rounds * 1e6, rounds);
}

static void ping_region(struct box *box)
{
    if (!box)
        return;
    double begin = 0;
    uint32_t round = 0;
    do {
        __atomic_store_n(&box->ping, ++round, __ATOMIC_RELEASE);
        await(&box->pong, round);
        if (round == 1) /* the other guest has begun */
            begin = now();
    } while (round <= MOST && (round == 1 || round % 16 || now() - begin < MEASURE_S));
    say("region", now() - begin, round - 1);
    __atomic_store_n(&box->ping, END, __ATOMIC_RELEASE);
    await(&box->pong, END);
    __atomic_store_n(&box->ping, 0, __ATOMIC_RELEASE);
}

static void pong_region(struct box *box)
{
    if (!box)
        return;
    uint32_t round = 0;
    for (double until = now() + PATIENCE_S; round != END;) {
        uint32_t seen = __atomic_load_n(&box->ping, __ATOMIC_ACQUIRE);
        if (seen != round && seen != 0)
            __atomic_store_n(&box->pong, round = seen, __ATOMIC_RELEASE);
        else if (round == 0 && now() > until)
            exit(1);
    }
}

static void no_delay(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static int listen_tcp(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(atoi(PORT))};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&any, sizeof any) < 0 || listen(fd, 1) < 0)
        fail("listen");
    return fd;
}

static void ping_tcp(const char *guest)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(guest, PORT, &hints, &found) != 0) {
        fprintf(stderr, "%s: no address\n", guest);
        exit(1);
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    for (double until = now() + PATIENCE_S; connect(fd, found->ai_addr, found->ai_addrlen) < 0; usleep(100000))
        if (errno != ECONNREFUSED || now() > until) /* without a region it may not listen yet */
            fail(guest);
    no_delay(fd);
    uint32_t round = 0, word = 0;
    double begin = now();
    do {
        word = ++round;
        if (write(fd, &word, sizeof word) != sizeof word || recv(fd, &word, sizeof word, MSG_WAITALL) != sizeof word)
            fail("tcp");
    } while (round < MOST && now() - begin < MEASURE_S);
    say("tcp", now() - begin, round);
    close(fd);
}

static void pong_tcp(int listening)
{
    uint32_t word;
    int fd = accept(listening, NULL, NULL);
    if (fd < 0)
        fail("accept");
    no_delay(fd);
    while (recv(fd, &word, sizeof word, MSG_WAITALL) == sizeof word)
        if (write(fd, &word, sizeof word) != sizeof word)
            fail("tcp");
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "ping") == 0) {
        ping_region(map_region());
        ping_tcp(argv[2]);
    } else if (argc == 2 && strcmp(argv[1], "pong") == 0) {
        int listening = listen_tcp();
        pong_region(map_region());
        pong_tcp(listening);
    } else {
        fprintf(stderr, "usage: pingpong pong | pingpong ping GUEST\n");
        return 2;
    }
    return 0;
}
